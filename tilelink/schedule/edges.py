"""Edges between regions and words: which words of a signal belong to the elements of a region.

A signal that tells of chunks has a word for `size` elements each along one dimension of a buffer. The words of a region are the
image of its box under the division by `size`: computed from the indices of the region, whatever these depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from types import MappingProxyType

from tilelink.schedule.index import Number
from tilelink.schedule.ranges import range_of
from tilelink.schedule.steps import Let


def divisor(index: Number, names: Mapping[str, int]) -> int:
    """A number that divides every value of `index`, if those of `names` divide the values of names; 0 divides 0 only."""
    if isinstance(index, int):
        return abs(index)
    if index.is_name or index.is_lookup:
        return names.get(index.op, 1) if index.is_name else 1
    a, b = (divisor(one, names) for one in index.args)
    match index.op:
        case "+" | "-" | "min" | "max" | "%":
            return gcd(a, b)
        case "*":
            return a * b
        case "//" if isinstance(index.args[1], int) and b:
            return a // b if a % b == 0 else 1
    return 1


def divisors(let: Let, known: Mapping[str, int] = MappingProxyType({})) -> dict[str, int]:
    """Numbers that divide what names stand for: those of `let`, and those that are `known`."""
    found = dict(known)
    for name, index in let:
        found[name] = divisor(index, found)
    return found


def image(start: Number, extent: Number, size: int, names: Mapping[str, int]) -> tuple[Number, Number]:
    """(first, number) of the chunks of `size` elements that `extent` elements from `start` on touch; `extent` is not 0."""
    most = range_of(extent, {}).high
    step = gcd(divisor(start, names), size)
    if most <= step or (
        isinstance(start, int) and isinstance(extent, int) and start // size == (start + extent - 1) // size
    ):
        return start // size, 1  # it begins at a multiple of `step`, and no chunk ends before the next one
    return start // size, (start + extent - 1) // size - start // size + 1
