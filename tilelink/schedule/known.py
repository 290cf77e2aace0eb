"""Numbers that know how they follow from names: equal to the number, and spelled as the index.

    tile = Known(128, Index("TILE_M"))
    2048 // tile            # 16, and `2048 // TILE_M`
    m % tile == m % 128     # as indices: analyses see numbers

Whoever makes steps from numbers, or text from steps, so decides by values and keeps names. Where arithmetic leaves this class
(shifts, `min`), a plain number is left.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelink.schedule.index import OPERATORS, Index, Number, added_up, made, terms


class Known(int):
    """`value`, which is `index` in names."""

    index: Index

    def __new__(cls, value: int, index: Index) -> Known:
        made = super().__new__(cls, value)
        made.index = index
        return made

    def __getnewargs__(self) -> tuple[int, Index]:  # type: ignore[override]
        return int(self), self.index

    def __neg__(self) -> int:
        """`-(-a // b)`, as Python spells a quotient that is rounded up, is spelled `(a + b - 1) // b`."""
        match self.index:
            case Index("-", (0, inner)):
                return known(-int(self), inner)
            case Index("//", (Index("-", (0, inner)), by)):
                return known(-int(self), (inner + by - 1) // by)
            case Index("//", (int(less), by)) if less < 0:
                return known(-int(self), (by + (-less - 1)) // by)
        return known(-int(self), 0 - self.index)

    def __floordiv__(self, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        by = origin(other)
        if self.index == by:
            return 1
        if self.index.op == "*" and self.index.args[1] == by:
            return known(int(self) // int(other), self.index.args[0])
        return _combined("//", self, other)


def known(value: int, index: Number) -> int:
    """`value` with its `index`, if that has names."""
    return value if isinstance(index, int) else Known(value, index)


def origin(number: Number) -> Number:
    """`number` in names, inside of an index as well."""
    if isinstance(number, Known):
        return number.index
    if isinstance(number, int) or number.is_name:
        return number
    return Index(number.op, tuple(map(origin, number.args)))


def _combined(op: str, left: int, right: int) -> int:
    sides = origin(left), origin(right)
    return known(OPERATORS[op](int(left), int(right)), added(op, *sides) if op in "+-" else made(op, *sides))


def added(op: str, left: Number, right: Number) -> Number:
    """The sum or the difference, of which each term stands there once."""
    both = [*terms(left), *terms(right, -1 if op == "-" else 1)]
    total = added_up(both)
    if len(total) == len(both):
        return made(op, left, right)
    found: Number = 0
    for term, factor in sorted(total.items(), key=lambda one: (one[1] < 0, isinstance(one[0], int))):
        found = made("+" if factor >= 0 else "-", found, made("*", term, abs(factor)))
    return found


def _operator(op: str, reflected: bool = False) -> Callable[[int, int], int]:
    def combined(self: int, other: int) -> int:
        if not isinstance(other, int):
            return NotImplemented
        return _combined(op, other, self) if reflected else _combined(op, self, other)

    return combined


for _op, _method in (("+", "add"), ("-", "sub"), ("*", "mul"), ("//", "floordiv"), ("%", "mod")):
    if _op != "//":
        setattr(Known, f"__{_method}__", _operator(_op))
    setattr(Known, f"__r{_method}__", _operator(_op, reflected=True))
