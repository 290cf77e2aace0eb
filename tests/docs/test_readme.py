"""README.md and docs/: Python blocks run, `tilelink` lines exit 0, and what is shown as printed or emitted is that.

A ```text block right after a ```sh block is the output of its commands, the whole of it unless it ends with a line `…`; a
```python block there is a function of the file that the command writes. `pytest --update-golden` writes both anew.
A command that exits with another code than 0 says so: `# exits 1`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.mark import ParameterSet
from typer.testing import CliRunner

from tilelink.cli import app

ROOT = Path(__file__).resolve().parents[2]
USERS = (
    "getting_started",
    "reading_a_plan",
    "pins",
    "your_own_ops",
    "in_a_model",
    "command_line",
    "several_nodes",
    "verification",
)
PAGES = ("README.md", "docs/design.md", *(f"docs/{name}.md" for name in USERS))
NAMED = re.compile(r"# (\w+\.py)\n")
CUT = "…\n"  # ends an output of which a page shows the beginning
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
ELSEWHERE = (
    "--device cuda",
    "topo detect",
    "tilelink verify small.py",  # another line writes it; test_stranger_path.py runs both
)
SLOW = (
    "examples/05_mlp.py",
    "tilelink verify",
    "tilelink mutate",
    "tilelink demo",
    "M=8192 K=4096 N=4096 --ranks 8",
)  # many structures to plan, many runs
VARIES = re.compile(r"\d\.\de[+-]\d\d|\d+\.\d s\b|\d+ ms\b", re.MULTILINE)  # errors and seconds of a run


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of its first line in the page
    after: str  # text of the ```sh block that it directly follows, else empty


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Block] = []
    end, last = -1, ""
    for match in BLOCK.finditer(text):
        language, body = match[1], match[2]
        after = last if match.start() == end else ""
        found.append(Block(language, body, text.count("\n", 0, match.start()) + 2, after))
        end, last = match.end(), body if language == "sh" else ""
    return found


def shell_lines() -> list[ParameterSet]:
    """One parameter set for each `tilelink` line that runs here by itself; `test_printed` runs those whose output is shown."""
    found = [(page, block) for page in PAGES for block in blocks(page)]
    shown = {(page, block.after) for page, block in found if block.language == "text"}
    shell = [block.text for page, block in found if block.language == "sh" and (page, block.text) not in shown]
    lines = dict.fromkeys(line for text in shell for line in text.splitlines() if line.startswith("tilelink "))
    return [
        pytest.param(line, id=line, marks=[pytest.mark.slow] if any(words in line for words in SLOW) else [])
        for line in lines
        if not any(words in line for words in ELSEWHERE)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder in which `examples/` and `topologies/` are found, as from the root of the repository, and the files that
    pages ask to be written: Python blocks that begin with their name, `# layers.py`."""
    for name in ("examples", "topologies"):
        (tmp_path / name).symlink_to(ROOT / name)
    for page in PAGES:
        for block in blocks(page):
            if named := NAMED.match(block.text):
                (tmp_path / named[1]).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(lines: str) -> str:
    """Standard output of `tilelink` lines, which exit as they say, and of others, which a shell runs."""
    output = ""
    for line in lines.splitlines():
        command, _, comment = line.partition("  # ")
        if not command.startswith("tilelink "):
            output += subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
            continue
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        wanted = int(comment.removeprefix("exits ")) if comment.startswith("exits ") else 0
        assert result.exit_code == wanted, f"{line}\n{result.stderr}"
        output += result.stdout
    return output


def test_the_pages_have_something_to_test() -> None:
    assert len(shell_lines()) >= 8
    assert len(printed()) >= 5
    assert sum(block.language == "python" for block in blocks("README.md")) >= 4


@pytest.mark.parametrize("line", shell_lines())
def test_command(line: str, folder: Path) -> None:
    output = run(line)
    written = re.search(r" -o (\S+)", line)
    assert output or (written and (folder / written[1]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [PAGES[0], *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES[1:])])
def test_python(page: str, folder: Path) -> None:
    """The blocks of a page run one after the other in one module, each from a file: Triton reads kernels there."""
    module = ModuleType("page")
    for block in blocks(page):
        if block.language == "python" and not block.after:
            file = folder / f"{Path(page).stem}_line_{block.line}.py"
            # the line numbers of a traceback are those of the page
            file.write_text("\n" * (block.line - 1) + block.text, encoding="utf-8")
            exec(compile(file.read_text(encoding="utf-8"), str(file), "exec", dont_inherit=True), vars(module))


def compare(page: str, block: Block, found: str, request: pytest.FixtureRequest) -> None:
    """Fails unless `block` is `found`, or its beginning; with --update-golden puts `found` into the page."""
    if block.text.endswith(CUT):
        found = "".join([*found.splitlines(keepends=True)[: block.text.count("\n") - 1], CUT])
    if request.config.getoption("--update-golden"):
        path = ROOT / page
        fence = f"```{block.language}\n"
        text = path.read_text(encoding="utf-8")
        old, new = (f"{block.after}```\n{fence}{shown}```\n" for shown in (block.text, found))
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        return
    wanted, got = VARIES.sub("#", block.text), VARIES.sub("#", found)
    assert got == wanted, f"{page}:{block.line} is out of date: pytest --update-golden, then read the diff"


def printed() -> list[ParameterSet]:
    """(page, line) of each block with printed output."""
    return [
        pytest.param(page, block, marks=[pytest.mark.slow] if any(word in block.after for word in SLOW) else [])
        for page in PAGES
        for block in blocks(page)
        if block.language == "text" and block.after
    ]


@pytest.mark.parametrize(("page", "block"), printed())
def test_printed(page: str, block: Block, folder: Path, request: pytest.FixtureRequest) -> None:
    compare(page, block, run(block.after), request)


@pytest.mark.parametrize("page", PAGES)
def test_emitted(page: str, folder: Path, request: pytest.FixtureRequest) -> None:
    for block in blocks(page):
        if block.language == "python" and block.after:
            run(block.after)
            emitted = (folder / block.after.split(" -o ")[1].strip()).read_text(encoding="utf-8")
            start = emitted.index(block.text[: block.text.index("(")])
            compare(page, block, emitted[start : emitted.index("\n\n\n", start) + 1], request)
