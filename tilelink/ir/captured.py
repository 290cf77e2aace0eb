"""The text of one function, and what it takes from outside: which names, where, and how they are written instead."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator


class Captured:
    """The text of one function, whose outer names can be spelled otherwise, with lines put in front of its body."""

    def __init__(self, text: str) -> None:
        """`text` is that of a `def` at the margin."""
        self._lines = text.rstrip().splitlines()
        (self.node,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
        (table,) = symtable.symtable(text, "function", "exec").get_children()
        self._outer = set(_outer_names(table))
        self._edits: set[tuple[int, int, int, str]] = set()  # line, first and last byte of what is replaced, by what
        self._front: list[str] = []

    def names(self) -> dict[str, ast.Name]:
        """Names that signature and body take from outside, each with its first use."""
        return {name: uses[0] for name, uses in self._uses().items()}

    def in_signature(self, name: str) -> bool:
        """Whether a default or an annotation uses `name`: no line of the body comes before that."""
        return any(use in list(self._signature()) for use in self._uses()[name])

    def annotations(self) -> list[ast.expr]:
        """Those of the parameters and of the result."""
        given = self.node.args
        parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
        found = [parameter.annotation for parameter in parameters if parameter is not None]
        return [annotation for annotation in (*found, self.node.returns) if annotation is not None]

    def put_in_front(self, lines: str) -> None:
        """Statements that the body is to begin with."""
        self._front.extend(lines.splitlines())

    def spell(self, name: str, text: str) -> None:
        """Write every use of the outer `name` as `text`."""
        for use in self._uses()[name]:
            self.spell_one(use, text)

    def attributes(self, name: str) -> list[ast.Attribute]:
        """`name.x` for each x that is used; empty if `name` is used in any other way."""
        found = [node for node in self._walk() if isinstance(node, ast.Attribute) and _is_name(node.value, name)]
        return found if len(found) == len(self._uses()[name]) else []

    def spell_one(self, node: ast.expr, text: str) -> None:
        """Write this expression, which stands in one line, as `text`."""
        self._edits.add((node.lineno, node.col_offset, node.end_col_offset or node.col_offset, text))

    def text(self) -> str:
        lines = [line.encode() for line in self._lines]
        for number, first, last, text in sorted(self._edits, reverse=True):
            lines[number - 1] = lines[number - 1][:first] + text.encode() + lines[number - 1][last:]
        out = [line.decode() for line in lines]
        if self._front:
            self._insert(out)
        return "\n".join(out) + "\n"

    def _insert(self, out: list[str]) -> None:
        body = self.node.body
        first = body[1] if ast.get_docstring(self.node) is not None and len(body) > 1 else body[0]
        at, indent = first.lineno - 1, first.col_offset
        if out[at][:indent].strip():  # it stands behind the colon
            out[at : at + 1] = [out[at][:indent].rstrip(), f"    {out[at][indent:]}"]
            at, indent = at + 1, 4
        out[at:at] = [f"{' ' * indent}{line}".rstrip() for line in self._front]

    def _signature(self) -> Iterator[ast.AST]:
        arguments = self.node.args
        for part in (*arguments.defaults, *filter(None, arguments.kw_defaults), *self.annotations()):
            yield from ast.walk(part)

    def _walk(self) -> Iterator[ast.AST]:
        yield from self._signature()
        for statement in self.node.body:
            yield from ast.walk(statement)

    def _uses(self) -> dict[str, list[ast.Name]]:
        found: dict[str, list[ast.Name]] = {}
        signature = list(self._signature())
        for node in self._walk():
            if isinstance(node, ast.Name) and (node in signature or node.id in self._outer):
                found.setdefault(node.id, []).append(node)
        return found


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _outer_names(table: symtable.SymbolTable) -> Iterator[str]:
    """Names that a function, or a scope inside of it, takes from outside."""
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_local()}
    for symbol in table.get_symbols():
        if symbol.is_global() or symbol.is_free():
            yield symbol.get_name()
    for child in table.get_children():
        yield from (name for name in _outer_names(child) if name not in own)
