"""Device helpers as text: emitted files carry the helpers that they use, not an import of them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

_DEVICE = Path(__file__).parent / "device"
_PORTABLE = ("signals", "orders", "movement", "math")
_NVIDIA = ("nvidia",)


@cache
def _helpers(arch: str) -> dict[str, str]:
    """name -> text with decorator, in the order of the files; a later file replaces what an earlier one has."""
    found: dict[str, str] = {}
    for file in (*_PORTABLE, *(_NVIDIA if arch.startswith("sm_") else ())):
        text = (_DEVICE / f"{file}.py").read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                first = min(decorator.lineno for decorator in node.decorator_list)
                found[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    return found


def embed(body: str, arch: str) -> str:
    """Text of every helper for GPUs of `arch` that `body` names, directly or through another helper."""
    helpers = _helpers(arch)
    wanted: set[str] = set()

    def visit(text: str) -> None:
        for name in helpers:
            if name not in wanted and re.search(rf"\b{name}\(|\b{name}\b(?=,)", text):
                wanted.add(name)
                visit(helpers[name])

    visit(body)
    return "\n\n\n".join(text for name, text in helpers.items() if name in wanted)
