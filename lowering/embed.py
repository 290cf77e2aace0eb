"""Device helpers as text: emitted files carry the helpers that they use, not an import of them."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_DEVICE = Path(__file__).parent / "device"


@cache
def _helpers(files: tuple[str, ...]) -> dict[str, str]:
    """name -> text with decorator, in the order of the files; a later file replaces what an earlier one has."""
    found: dict[str, str] = {}
    for file in files:
        text = (_DEVICE / f"{file}.py").read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = min(decorator.lineno for decorator in node.decorator_list)
                found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def embed(module: str, files: tuple[str, ...], jit: str) -> str:
    """Text of every helper of `files` that `module` names, directly or through another helper, decorated with `jit`: what
    targets share is written with the decorator of stock Triton. Variables that are called like a helper do not name it."""
    helpers = _helpers(files)
    wanted: set[str] = set()

    def visit(text: str) -> None:
        for name in _globals(text) & helpers.keys() - wanted:
            wanted.add(name)
            visit(helpers[name])

    visit(module)
    texts = (text for name, text in helpers.items() if name in wanted)
    return "\n\n\n".join(text.replace("@triton.jit", f"@{jit}", 1) for text in texts)


@cache
def _globals(module: str) -> frozenset[str]:
    """Names that functions of `module` take from it."""

    def names(table: symtable.SymbolTable) -> Iterator[str]:
        yield from (symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
        for inner in table.get_children():
            yield from names(inner)

    return frozenset(names(symtable.symtable(module, "emitted", "exec")))
