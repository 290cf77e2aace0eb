"""A page of docs/tutorials from its script: the prose, the code, and what each cell prints when the script runs.

    python tests/docs/tutorial_page.py docs/tutorials/1_the_queue.py   # prints the page

A script is cut into cells as notebooks are: `# %% [markdown]` before prose in comments, `# %%` before code. A cell that is one
call of `sh` becomes the line of a shell. Seconds and milliseconds that a run took are shown as `…`, since they vary;
the folder of the script is left out.
`pytest --update-golden tests/docs/test_tutorials.py` writes the pages anew.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

MARK = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)
NUMBERED = "[1-9]_*.py"
_TIME = re.compile(r"\b\d+(?:\.\d+)?(?= (?:s|ms)\b)")


@dataclass(frozen=True, slots=True)
class Cell:
    is_prose: bool
    text: str
    line: int  # of its first line in the script


def cells(script: str) -> list[Cell]:
    """Prose without its `# `, and code. What stands before the first mark is left out."""
    marks = list(MARK.finditer(script))
    ends = [*(mark.start() for mark in marks[1:]), len(script)]
    found = []
    for mark, end in zip(marks, ends, strict=True):
        text, line = script[mark.end() : end].strip("\n"), script.count("\n", 0, mark.end()) + 1
        if mark[1]:
            rows = text.splitlines()
            assert all(row.startswith("# ") or row == "#" for row in rows), f"line {line}: prose stands in comments"
            text = "\n".join(row[2:] for row in rows)
        found.append(Cell(bool(mark[1]), text, line))
    return found


def prose_of(script: str) -> str:
    """What a page says, without code and outputs."""
    return "\n\n".join(cell.text for cell in cells(script) if cell.is_prose)


def title(path: Path) -> str:
    return prose_of(path.read_text(encoding="utf-8")).partition("\n")[0].removeprefix("# ")


def page(path: Path) -> str:
    """The text of the page. Runs the script, in this process."""
    head, *rest = cells(path.read_text(encoding="utf-8"))
    heading, _, opening = head.text.partition("\n")
    run_it = f"*Made from [{path.name}]({path.name}): `python docs/tutorials/{path.name}` runs it.*"
    parts = [f"{heading}\n{run_it}\n\n{opening.strip()}"]
    module = ModuleType("__main__")  # as `python FILE` calls it
    module.__file__ = str(path)
    sys.modules["__main__"], sys.path[0] = module, str(path.parent)
    for cell in rest:
        parts.append(cell.text if cell.is_prose else _shown(cell, _printed(cell, path, module)))
    return "\n\n".join([*parts, _neighbours(path)]) + "\n"


def _printed(cell: Cell, path: Path, module: ModuleType) -> str:
    """What the cell prints."""
    code = "\n" * (cell.line - 1) + cell.text  # lines as in the script, where Triton and tracebacks look them up
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, str(path), "exec", dont_inherit=True), vars(module))
    printed = _TIME.sub("…", output.getvalue().replace(f"{path.parent}/", ""))
    return "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())


def _shown(cell: Cell, output: str) -> str:
    code = f"```python\n{cell.text}\n```"
    if is_command(cell):
        line, _, output = output.partition("\n")
        exits = re.search(r"\bexits=(\d)", cell.text)
        code = f"```sh\n{line.removeprefix('$ ')}{f'  # exits {exits[1]}' if exits else ''}\n```"
    return f"{code}\n```text\n{output}```" if output else code


def is_command(cell: Cell) -> bool:
    """The cell is one call of `sh`, which prints the line and what the line prints."""
    match ast.parse(cell.text).body:
        case [ast.Expr(ast.Call(ast.Name("sh"))) | ast.Assign(value=ast.Call(ast.Name("sh")))]:
            return True
    return False


def _neighbours(path: Path) -> str:
    every = sorted(path.parent.glob(NUMBERED))
    after = every[every.index(path) + 1 :][:1]
    return " | ".join([f"Next: [{title(one)}]({one.stem}.md)" for one in after] + ["[All tutorials](README.md)"])


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1]).resolve()))
