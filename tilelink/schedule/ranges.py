"""Ranges of indices: between which numbers an index lies, by those of its names.

They tell the extent of the largest tile, whether an access can lie outside of its buffer, whether an offset fits into 32 bits,
and where a language that truncates may spell `//` and `%` as it does. They know nothing of how two names depend on each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from tilelink.schedule.index import OPERATORS, Index, Number


@dataclass(frozen=True, slots=True)
class Range:
    """`low <= index <= high`; infinite where nothing is known."""

    low: float
    high: float

    @property
    def constant(self) -> bool:
        return self.low == self.high

    def within(self, low: float, high: float) -> bool:
        return low <= self.low and self.high <= high


ANYTHING = Range(-inf, inf)


def range_of(index: Number, names: Mapping[str, Range], tables: Mapping[str, Range] = {}) -> Range:
    """The range of `index`, if names and entries of tables lie in theirs (anywhere if they are not given)."""
    if isinstance(index, int):
        return Range(index, index)
    if index.is_name:
        return names.get(index.op, ANYTHING)
    if index.is_lookup:
        return tables.get(index.op, ANYTHING)
    return combined(index.op, *(range_of(one, names, tables) for one in index.args))


def combined(op: str, a: Range, b: Range) -> Range:
    """The range of `a op b`."""
    match op:
        case "+":
            return Range(a.low + b.low, a.high + b.high)
        case "-":
            return Range(a.low - b.high, a.high - b.low)
        case "min":
            return Range(min(a.low, b.low), min(a.high, b.high))
        case "max":
            return Range(max(a.low, b.low), max(a.high, b.high))
        case "%" if b.low > 0:
            return a if a.low >= 0 and a.high < b.low else Range(0, min(b.high - 1, a.high if a.low >= 0 else inf))
        case "//" if b.low > 0:
            return _corners(op, a, b)
        case "*":
            return _corners(op, a, b)
    return ANYTHING


def _corners(op: str, a: Range, b: Range) -> Range:
    found = [_applied(op, x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(found), max(found))


def _applied(op: str, x: float, y: float) -> float:
    if op == "*":
        return 0 if 0 in (x, y) else x * y
    if abs(x) == inf:
        return x
    return (0 if x >= 0 else -1) if y == inf else OPERATORS[op](int(x), int(y))


def truncation_is_floor(index: Index, names: Mapping[str, Range], tables: Mapping[str, Range] = {}) -> bool:
    """Whether `//` or `%` at the root of `index` gives the same in a language that rounds towards zero."""
    left, right = (range_of(one, names, tables) for one in index.args)
    return left.low >= 0 and right.low > 0
