"""Device helpers as text: emitted files carry the helpers that they use, not an import of them."""

from __future__ import annotations

import ast
import re
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


def embed(body: str, files: tuple[str, ...], jit: str) -> str:
    """Text of every helper of `files` that `body` names, directly or through another helper, decorated with `jit`:
    what targets share is written with the decorator of stock Triton."""
    helpers = _helpers(files)
    wanted: set[str] = set()

    def visit(text: str) -> None:
        for name in helpers:
            if name not in wanted and re.search(rf"\b{name}\(|\b{name}\b(?=,)", text):
                wanted.add(name)
                visit(helpers[name])

    visit(body)
    texts = (text for name, text in helpers.items() if name in wanted)
    return "\n\n\n".join(text.replace("@triton.jit", f"@{jit}", 1) for text in texts)
