"""A source, its schedule and its mutant: what rules of equivalence judge."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tilelink.ir.schedule import Schedule
from tilelink.mutation.mutant import SourceMutant
from tilelink.mutation.text import SourceText


@dataclass(frozen=True, slots=True)
class SourcePair:
    """The original, parsed, the schedule that it was emitted from, and what was changed."""

    text: SourceText
    schedule: Schedule
    mutant: SourceMutant

    def statements(self) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
        """Statements that start in the mutated line, each with the one behind it."""
        for block in self.text.blocks():
            for one, other in pairwise([*block, None]):
                if one is not None and one.lineno == self.mutant.line:
                    yield one, other

    def function(self) -> str:
        """Name of the function or method that was changed."""
        for function in (*self.text.kernels, *self.text.methods()):
            if function.lineno <= self.mutant.line <= (function.end_lineno or 0):
                return function.name
        return ""


Holds = Callable[[SourcePair], bool]


def leftmost(node: ast.expr) -> ast.expr:
    """`a` of `a + b + c`."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return node
