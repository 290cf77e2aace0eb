"""What of this folder an emitted file needs: definitions that its text names, and of classes the methods that are called."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilelink.ir import user_reference

_FILES = (
    Path(user_reference.__file__),
    *(Path(__file__).with_name(f"{name}.py") for name in ("near", "attention", "routed", "states", "compare")),
)


@dataclass(frozen=True, slots=True)
class _Definition:
    """Lines of a function, a class, a constant or a method of the class `owner`; `pattern` finds its uses."""

    name: str
    text: str
    pattern: str
    owner: str = ""


def needed_by(text: str) -> str:
    """Definitions that `text` names, directly or through others, in the order of the files."""
    kept: set[_Definition] = set()
    found = [text]
    while found:
        part = found.pop()
        for one in _definitions():
            if one not in kept and re.search(one.pattern, part):
                kept.add(one)
                found.append(one.text)
    names = {one.name for one in kept if not one.owner}
    sections = []
    for one in _definitions():
        if one in kept and (not one.owner or one.owner in names):
            sections += [*([""] if one.owner else ["", ""]), one.text]
    return "\n".join(sections).strip("\n")


@cache
def _definitions() -> tuple[_Definition, ...]:
    return tuple(one for file in _FILES for one in _of_file(file.read_text()))


def _of_file(text: str) -> Iterator[_Definition]:
    lines = text.splitlines()

    def shown(first: int, last: int | None) -> str:
        return "\n".join(lines[first - 1 : last])

    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            name = ast.unparse(node.targets[0]).strip("()").split(",")[0]  # of several the first
            yield _Definition(name, shown(node.lineno, node.end_lineno), rf"(?<!\.)\b{name}\b")
        if isinstance(node, ast.FunctionDef):
            yield _Definition(node.name, shown(_first(node), node.end_lineno), rf"(?<!\.)\b{node.name}\b")
        if isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name[:2] != "__"]
            # fields and special methods stand before the others, and come along with the class
            head = shown(node.lineno, _first(methods[0]) - 1 if methods else node.end_lineno).rstrip()
            yield _Definition(node.name, head, rf"(?<!\.)\b{node.name}\b")
            for method in methods:
                static = any(ast.unparse(decorator) == "staticmethod" for decorator in method.decorator_list)
                called = rf"\b{node.name}\.{method.name}\b" if static else rf"\.{method.name}\b"
                yield _Definition(method.name, shown(_first(method), method.end_lineno), called, node.name)


def _first(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
