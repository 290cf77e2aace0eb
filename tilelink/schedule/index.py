"""Indices: integers that depend on loop variables, on `rank`, on `call`, on sizes, and on entries of tables.

Parts, chunks, slots, items, peers and routed tokens are all indices. An index is one for all ranks and calls; `evaluate` gives
its value for one environment, or for many at once where the environment holds arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
T = TypeVar("T", int, Ints)


class NoSuchEntry(Exception):
    """An index looks up an entry that its table does not have. `place` are the arguments."""

    def __init__(self, table: str, place: tuple[object, ...]) -> None:
        super().__init__(f"{table}[{', '.join(map(str, place))}]")
        self.table, self.place = table, place


def _smaller(a: T, b: T) -> T:
    return cast("T", np.minimum(a, b)) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else min(a, b)


def _larger(a: T, b: T) -> T:
    return cast("T", np.maximum(a, b)) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else max(a, b)


OPERATORS: Mapping[str, Callable[..., int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,  # rounds down, as `%` is never negative: a printer for a language that truncates has to know
    "%": operator.mod,
    "min": _smaller,
    "max": _larger,
}


@dataclass(frozen=True, slots=True)
class Index:
    """A name (`Index("m")`), an operator of `OPERATORS` and its arguments, or the entry of a table at `args`.

    Arithmetic on indices simplifies what is constant and what is neutral, so that printed indices have no `+ 0` and no `* 1`.
    """

    op: str
    args: tuple[Index | int, ...] = ()

    def __add__(self, other: Index | int) -> Index | int:
        return made("+", self, other)

    def __radd__(self, other: int) -> Index | int:
        return made("+", other, self)

    def __sub__(self, other: Index | int) -> Index | int:
        return made("-", self, other)

    def __rsub__(self, other: int) -> Index | int:
        return made("-", other, self)

    def __mul__(self, other: Index | int) -> Index | int:
        return made("*", self, other)

    def __rmul__(self, other: int) -> Index | int:
        return made("*", other, self)

    def __floordiv__(self, other: Index | int) -> Index | int:
        return made("//", self, other)

    def __rfloordiv__(self, other: int) -> Index | int:
        return made("//", other, self)

    def __mod__(self, other: Index | int) -> Index | int:
        return made("%", self, other)

    def __str__(self) -> str:
        return spelled(self)

    @property
    def is_name(self) -> bool:
        return not self.args

    @property
    def is_lookup(self) -> bool:
        return bool(self.args) and self.op not in OPERATORS


Number = Index | int


def less(index: Number) -> tuple[Number, Number]:
    """(a, b) of `a - b`; (index, 0) of anything else."""
    if isinstance(index, Index) and index.op == "-":
        return index.args[0], index.args[1]
    return index, 0


rank = Index("rank")  # the own one
call = Index("call")  # the first call is 1


def least(*indices: Number) -> Number:
    """The smallest of `indices`."""
    return reduce(lambda a, b: made("min", a, b), indices)


def greatest(*indices: Number) -> Number:
    """The largest of `indices`."""
    return reduce(lambda a, b: made("max", a, b), indices)


def rounded_up(extent: Number, by: Number) -> Number:
    """How many pieces of `by` cover `extent`."""
    return (extent + by - 1) // by


def made(op: str, a: Number, b: Number) -> Number:
    """`a op b`, simplified where a number is neutral or both are numbers."""
    if isinstance(a, int) and isinstance(b, int):
        return OPERATORS[op](a, b)
    if _plain(b) and (op, b) in (("+", 0), ("-", 0), ("*", 1), ("//", 1)):
        return a
    if _plain(a) and (op, a) in (("+", 0), ("*", 1)):
        return b
    if (op == "*" and ((_plain(a) and a == 0) or (_plain(b) and b == 0))) or (op == "-" and a == b):
        return 0
    if (_plain(b) and (op, b) == ("%", 1)) or (op in ("//", "%") and _plain(a) and a == 0):
        return 0
    return a if op in ("min", "max") and a == b else Index(op, (a, b))


def _plain(number: Number) -> bool:
    """Whether it is a number that follows from no name: one that does (`known.Known`) may be another one in an edited file."""
    return type(number) is int


BINDS = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


def spelled(index: Number, around: int = 0) -> str:
    """The index as Python spells it, with the brackets that it needs. `around`: how tight the operator around it binds."""
    if isinstance(index, int):
        return str(index)
    if index.op in ("min", "max"):
        return f"{index.op}({', '.join(spelled(one) for one in index.args)})"
    if index.op not in OPERATORS:
        return f"{index.op}[{', '.join(spelled(one) for one in index.args)}]" if index.args else index.op
    binds = BINDS[index.op]
    left, right = index.args
    text = f"{spelled(left, binds)} {index.op} {spelled(right, binds + 1)}"
    return f"({text})" if binds < around else text


def evaluate(index: Number, env: Mapping[str, int | Ints], tables: Mapping[str, Ints] = {}) -> int | Ints:
    """The value of `index`: an int, or an array where a name in `env` is one (arrays of one shape).

    A table of `tables` is an array of non-negative numbers; -1 is where it has no entry. Raises NoSuchEntry for those and outside
    of the table, KeyError for a name that `env` lacks, ZeroDivisionError (ints only).
    """
    if isinstance(index, int):
        return index
    if index.is_name:
        return env[index.op]
    args = [evaluate(one, env, tables) for one in index.args]
    if index.op in OPERATORS:
        return OPERATORS[index.op](*args)
    return _looked_up(index.op, tables[index.op], args)


def value_of(index: Number, sizes: Mapping[str, int]) -> int:
    """The value of an index of sizes."""
    found = evaluate(index, sizes)
    assert isinstance(found, int)
    return found


def _looked_up(name: str, table: Ints, args: list[int | Ints]) -> int | Ints:
    places = np.broadcast_arrays(*args)
    outside = np.zeros(places[0].shape, bool)
    for place, extent in zip(places, table.shape, strict=True):
        outside |= (place < 0) | (place >= extent)
    found = np.where(outside, -1, table[tuple(np.where(outside, 0, place) for place in places)])
    if (found < 0).any():
        bad = tuple(int(place.ravel()[np.flatnonzero(found.ravel() < 0)[0]]) for place in places)
        raise NoSuchEntry(name, bad)
    return found if any(isinstance(one, np.ndarray) for one in args) else int(found)


def replaced(index: Number, by: Mapping[str, Number]) -> Number:
    """`index` with names replaced, and simplified."""
    if isinstance(index, int):
        return index
    if index.is_name:
        return by.get(index.op, index)
    args = tuple(replaced(one, by) for one in index.args)
    return made(index.op, *args) if index.op in OPERATORS else Index(index.op, args)


def terms(index: Number, factor: int = 1) -> Iterator[tuple[Number, int]]:
    """The terms of a sum, each with its factor; 1 stands for the constant."""
    if isinstance(index, int):
        yield 1, factor * index
    elif index.op in ("+", "-"):
        yield from terms(index.args[0], factor)
        yield from terms(index.args[1], factor if index.op == "+" else -factor)
    elif index.op == "*" and any(isinstance(one, int) for one in index.args):
        number, inner = sorted(index.args, key=lambda one: isinstance(one, Index))
        assert isinstance(number, int)
        yield from terms(inner, factor * number)
    else:
        yield index, factor


def added_up(found: Iterable[tuple[Number, int]]) -> dict[Number, int]:
    """Terms with their factors, each once."""
    total: dict[Number, int] = {}
    for term, factor in found:
        total[term] = total.get(term, 0) + factor
    return total


def terms_of(index: Number) -> dict[Number, int]:
    """The terms of a sum that are left of it, each once."""
    return {term: factor for term, factor in added_up(terms(index)).items() if factor}


def sum_of(found: Mapping[Number, int]) -> Number:
    """The sum of terms with their factors."""
    total: Number = 0
    for term, factor in found.items():
        total = total + (factor if term == 1 else term * factor)
    return total


def difference(one: Number, other: Number) -> int | None:
    """`one - other` where it is a number in every environment."""
    found = terms_of(Index("-", (one, other)))
    constant = found.pop(1, 0)
    return None if found else constant


def subindices(index: Number) -> Iterator[Index]:
    """`index` and all in it, outermost first."""
    if isinstance(index, Index):
        yield index
        for one in index.args:
            yield from subindices(one)


def names_in(index: Number) -> frozenset[str]:
    """Names that `index` depends on; tables are none."""
    return frozenset(one.op for one in subindices(index) if one.is_name)


def tables_in(index: Number) -> frozenset[str]:
    return frozenset(one.op for one in subindices(index) if one.is_lookup)
