"""Device helpers as text: emitted files carry the helpers that they use, not an import of them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

_DEVICE = Path(__file__).parent / "device"


@cache
def _helpers() -> dict[str, tuple[str, str]]:
    """name -> (text with decorator, name of its file), in the order of the files."""
    found: dict[str, tuple[str, str]] = {}
    for file in ("signals", "orders", "movement", "math"):
        text = (_DEVICE / f"{file}.py").read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = min(decorator.lineno for decorator in node.decorator_list)
                found[node.name] = ("\n".join(lines[first - 1 : node.end_lineno]), file)
    return found


def helper_names() -> tuple[str, ...]:
    return tuple(_helpers())


def embed(body: str) -> str:
    """Text of every helper that `body` names, directly or through another helper."""
    helpers = _helpers()
    wanted: set[str] = set()

    def visit(text: str) -> None:
        for name in helpers:
            if name not in wanted and re.search(rf"\b{name}\(|\b{name}\b(?=,)", text):
                wanted.add(name)
                visit(helpers[name][0])

    visit(body)
    return "\n\n\n".join(text for name, (text, _) in helpers.items() if name in wanted)
