"""Tiles that are counted late: when the next tile of their program is computed."""

from __future__ import annotations

import re

from lowering.names import in_order
from lowering.operands import TileScope
from lowering.positions import print_order
from lowering.signalling import print_notify
from lowering.source import Source
from tilelink.ir.steps import Notify


class LateCounts:
    """A function that counts a tile of the loop over the first `tiles` positions, called `end`, and its calls.

    The loop is not to branch on its tile, or the compiler does not pipeline it: where a program has stored no tile yet,
    the function counts none, instead of not being called.
    """

    def __init__(self, scope: TileScope, steps: list[Notify], tiles: int, end: str) -> None:
        role = scope.role
        inner = TileScope(scope.schedule, scope.dialect, scope.numbers, role)
        counted, printed = Source(), Source()
        for step in steps:
            print_notify(counted, inner, step, "number")
        named = set(re.findall(r"\w+", counted.text()))
        print_order(printed, inner, named)
        printed.lines(counted.text())
        scope.need(*inner.parameters)
        self.arguments = in_order(inner.parameters)
        self.name, self.programs, self.end = f"count_{role.name}", scope.numbers.programs(role), end
        self.few = tiles < role.programs
        self.scope = scope
        out = Source()
        out.line(scope.dialect.decorator())
        what = f"Count tile `tile` of {role.name}, which this program has stored, if `number` is 1; count nothing if it is 0."
        with out.function(self.name, ["tile", "number", *self.arguments], what):
            out.lines(printed.text())
        scope.functions.append(out.text())

    def print_before(self, out: Source) -> None:
        """Inside the loop: count the tile before."""
        before = f"tl.maximum(tile - {self.programs}, 0)"
        self._call(out, before, f"(tile >= {self.programs}).to(tl.int32)")

    def print_last(self, out: Source) -> None:
        """Behind the loop: count the last tile, if the program had any."""
        numbers, end, programs = self.scope.numbers, self.end, self.programs
        if self.few:
            numbers.require(f"{end} < {programs}", "some programs have no tile to count")
            self._call(out, f"tl.minimum(program, {end} - 1)", f"(program < {end}).to(tl.int32)")
            return
        numbers.require(f"{end} >= {programs}", "every program has a tile to count")
        self._call(out, f"program + ({end} - 1 - program) // {programs} * {programs}", "1")

    def _call(self, out: Source, tile: str, number: str) -> None:
        out.call(f"{self.name}(", [tile, number, *(self.scope.taken(name) for name in self.arguments)])
