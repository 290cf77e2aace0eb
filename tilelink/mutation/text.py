"""Source text with its syntax tree: edits at nodes that leave every other character and every line number alone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tilelink.mutation.errors import NoHostClass
from tilelink.mutation.mutant import SourceMutant
from tilelink.runtime.constants import constants_of, number

N = TypeVar("N", bound=ast.AST)
Span = tuple[int, int]  # bytes of the source, [first, end)
Function = ast.FunctionDef


@dataclass(frozen=True, slots=True)
class Change:
    """What stands at `span` becomes `text`."""

    span: Span
    text: str


Changes = Iterator[tuple[Change, ...]]  # one tuple for each mutant
SourceOperator = Callable[["SourceText"], Changes]


class SourceText:
    """A source, and the nodes of it that may be mutated: the class that declares INPUTS, and the `@triton.jit` functions
    that it names, directly or through other functions. Fabric, self-check and header are none of them.

    Raises NoHostClass if the text does not parse or has no such class.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._bytes = source.encode()
        try:
            self._tree = ast.parse(source)
        except SyntaxError as error:
            raise NoHostClass(reason=f"it does not parse ({error})") from error
        self._starts = [0]
        for line in self._bytes.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.constants = constants_of(self._tree)
        self.host = _host_class(self._tree)
        self.kernels = _kernels(self._tree, self.host)
        self._parents = {
            child: parent
            for region in (*self.kernels, self.host)
            for parent in ast.walk(region)
            for child in ast.iter_child_nodes(parent)
        }
        self._blocks = tuple(
            [statement for statement in block if not _is_text(statement)]
            for function in (*self.kernels, *self.methods())
            for node in ast.walk(function)
            for block in (getattr(node, "body", None), getattr(node, "orelse", None))
            if isinstance(block, list) and block
        )

    def nodes(self, kind: type[N]) -> Iterator[N]:
        """Nodes of class `kind` in kernels and host methods, in the order of the text; decorators and annotations are
        none of them."""
        for function in (*self.kernels, *self.methods()):
            for statement in function.body:
                yield from sorted(
                    (node for node in ast.walk(statement) if isinstance(node, kind)), key=lambda node: self.span(node)
                )

    def methods(self) -> tuple[Function, ...]:
        """Methods of the host class."""
        return tuple(node for node in self.host.body if isinstance(node, ast.FunctionDef))

    def blocks(self) -> tuple[list[ast.stmt], ...]:
        """Every list of statements that follow each other, without docstrings."""
        return self._blocks

    def on_host(self, node: ast.AST) -> bool:
        """Whether the host runs it."""
        while node in self._parents:
            node = self._parents[node]
        return node is self.host

    def function(self, node: ast.AST) -> Function:
        """The function that the node stands in."""
        while not isinstance(node, ast.FunctionDef):
            node = self._parents[node]
        return node

    def in_call(self, node: ast.AST) -> bool:
        """Whether the host runs it in every call."""
        return self.function(node).name in ("__call__", "enqueue")

    def number(self, node: ast.AST) -> int | None:
        """What a number or a named constant is; None for any other expression."""
        simple = isinstance(node, ast.Constant | ast.Name | ast.Attribute)
        return number(node, self.constants) if simple and isinstance(node, ast.expr) else None

    def parent(self, node: ast.AST) -> ast.AST:
        return self._parents[node]

    def span(self, node: ast.AST) -> Span:
        """Bytes that the node takes; those of an operator or a context are empty."""
        if not isinstance(node, ast.expr | ast.stmt | ast.keyword | ast.arg):
            return 0, 0
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = self._starts[node.lineno - 1] + node.col_offset
        return first, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        first, end = self.span(node)
        return self._bytes[first:end].decode()

    def between(self, left: ast.AST, right: ast.AST) -> Span:
        """What stands between two nodes: an operator with its spaces."""
        return self.span(left)[1], self.span(right)[0]

    def mutant(self, operator: str, changes: tuple[Change, ...]) -> SourceMutant | None:
        """The source with `changes`, or None if it is the same or does not parse."""
        ordered = sorted(changes, key=lambda change: change.span)
        first, end = ordered[0].span[0], ordered[-1].span[1]
        new, here = b"", first
        for change in ordered:
            new += self._bytes[here : change.span[0]] + change.text.encode()
            here = change.span[1]
        before = self._bytes[first:end]
        if new == before or not self._parses(first, end, new):
            return None
        source = (self._bytes[:first] + new + self._bytes[end:]).decode()
        line = self._bytes.count(b"\n", 0, first) + 1
        return SourceMutant(operator, line, before.decode(), new.decode(), source)

    def _parses(self, first: int, end: int, new: bytes) -> bool:
        """Whether the function or class around [first, end) parses with `new` there: the rest is as it was."""
        region = next(r for r in (*self.kernels, self.host) if self.span(r)[0] <= first < self.span(r)[1])
        outer = self.span(region)
        try:
            ast.parse(self._bytes[outer[0] : first] + new + self._bytes[end : outer[1]])
        except SyntaxError:
            return False
        return True


def dotted(node: ast.AST) -> str:
    """`self.copy_x.copy` of such an expression, empty for anything else; subscripts are left out."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value)}.{attr}"
        case ast.Subscript(value=value):
            return dotted(value)
        case ast.Call(func=func):
            return dotted(func)
        case _:
            return ""


def called(node: ast.AST) -> str:
    """What a call, or a statement that is a call, calls: `tl.store`, `wait_epoch`, `main.copy`; empty otherwise."""
    if isinstance(node, ast.Expr):
        node = node.value
    return dotted(node.func) if isinstance(node, ast.Call) else ""


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _host_class(tree: ast.Module) -> ast.ClassDef:
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and "INPUTS" in _bound(node)]
    if len(found) != 1:
        raise NoHostClass(reason=f"{len(found) or 'none'} of its classes declare INPUTS")
    return found[0]


def _bound(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(target) for one in node.body if isinstance(one, ast.Assign) for target in one.targets}


def _kernels(tree: ast.Module, host: ast.ClassDef) -> tuple[Function, ...]:
    """The jit functions that the host class reaches, in the order of the text."""
    jitted = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(dotted(d).endswith("jit") for d in node.decorator_list)
    }
    reached: set[str] = set()
    waiting: list[ast.AST] = [host]
    while waiting:
        for node in ast.walk(waiting.pop()):
            if isinstance(node, ast.Name) and node.id in jitted and node.id not in reached:
                reached.add(node.id)
                waiting.append(jitted[node.id])
    return tuple(node for name, node in jitted.items() if name in reached)
