"""Spells indices: the names and ranges in scope, remainders as the language computes them, named numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, prod

import numpy as np

from lowering import names as limits
from lowering.steps.constants import Constants, Group
from tilelink.schedule.index import BINDS, Index, Ints, Number, evaluate, names_in, spelled, tables_in
from tilelink.schedule.known import Known
from tilelink.schedule.ranges import Range, range_of, truncation_is_floor
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Let

POSITION = "tile"  # what phases call it
MOST_VALUES = 2**20  # of a name, for all ranks and positions


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one place to the next along each dimension of a row-major array."""
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


@dataclass
class Scope:
    """What is known where a step stands: ranges of names and of entries of tables. `values`: of the rank, the program, the
    position, and of names that depend on nothing else, for all of these: ranges of names know nothing of each other."""

    schedule: Schedule
    role: str = ""
    programs: int = 0  # of the role
    names: dict[str, Range] = field(default_factory=dict)
    values: dict[str, int | Ints] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names |= {name: Range(size, size) for name, size in self.schedule.sizes.items()}
        self.names |= {"rank": Range(0, self.schedule.num_ranks - 1), "call": Range(1, inf)}
        self.names["program"] = Range(0, self.programs - 1) if self.programs else Range(0, inf)
        self.tables = {
            table.name: Range(0, range_of(table.below, self.names).high - 1) for table in self.schedule.tables
        }

    def range(self, index: Number) -> Range:
        """Exact where all values of its names are known."""
        if isinstance(index, Index) and not index.is_name and self._valued(index):
            found = evaluate(index, self.values)
            return Range(int(np.min(found)), int(np.max(found)))
        return range_of(index, self.names, self.tables)

    def _valued(self, index: Number) -> bool:
        return names_in(index) <= self.values.keys() and not tables_in(index)

    @contextmanager
    def inside(self, variable: str = "", count: Number = 1, first: Number = 0, let: Let = ()) -> Iterator[None]:
        """A loop over `variable`, whose names, those of `let` too, end with it."""
        before, values = dict(self.names), dict(self.values)
        self.values.pop(variable, None)
        if variable:
            self.names[variable] = Range(self.range(first).low, self.range(first + count).high - 1)
        if variable == POSITION and isinstance(first, int) and isinstance(count, int):
            ranks = self.schedule.num_ranks
            if 0 < ranks * count <= MOST_VALUES:
                self.values[POSITION] = np.arange(first, first + count)
                self.values |= {"rank": np.arange(ranks)[:, None], **self.schedule.sizes}
            if 0 < ranks * count * self.programs <= MOST_VALUES:
                self.values["program"] = np.arange(self.programs)[:, None, None]
        for _ in self.bind(let):
            pass
        yield
        self.names, self.values = before, values

    def bind(self, let: Let) -> Iterator[tuple[str, Number]]:
        """The names of `let`, each known behind its turn."""
        for name, index in let:
            yield name, index
            self.values.pop(name, None)
            self.names[name] = self.range(index)
            if self._valued(index):
                self.values[name] = found = evaluate(index, self.values)
                self.names[name] = Range(int(np.min(found)), int(np.max(found)))


class Spelling:
    """An index as a kernel spells it."""

    minimum, maximum = "tl.minimum", "tl.maximum"

    def __init__(self, scope: Scope, constants: Constants) -> None:
        self.scope = scope
        self.constants = constants
        self.schedule = scope.schedule
        self.lanes = ""  # the mask of look-ups by `lane`
        self.named: set[str] = set()  # names in what was spelled

    def number(self, base: str, value: int, what: str, group: Group = Group.LOOPS, text: str = "") -> str:
        """A named number; `text` spells it in constants."""
        return self.constants.name(base, value, what, self.scope.role, group, text)

    def ranks(self) -> str:
        return self.number("NUM_RANKS", self.schedule.num_ranks, "ranks of the group")

    def __call__(self, index: Number, around: int = 0, unit: tuple[int, str] = (0, "")) -> str:
        """`around`: how tight the operator around binds. `unit`: a number and what it is called, for an index that counts
        in it."""
        if isinstance(index, Known):
            return self.known(index.index, around)
        if isinstance(index, int):
            return unit[1] if index == unit[0] and unit[1] else str(index)
        if index.is_name:
            return self.name(index.op)
        if index.is_lookup:
            return self.look_up(index)
        left, right = index.args
        if index.op in ("min", "max"):
            return (
                f"{self.minimum if index.op == 'min' else self.maximum}({self(left, 0, unit)}, {self(right, 0, unit)})"
            )
        if index.op in ("//", "%") and not truncation_is_floor(index, self.scope.names, self.scope.tables):
            return self.floored(index.op, self(left), self._divisor(index))
        binds = BINDS[index.op]
        units = (unit if index.op in "+-*" else (0, ""),) * 2
        if index.op in "+-" and not (_counts_in(left, unit[0]) and _counts_in(right, unit[0])):
            units = ((0, ""), (0, ""))
        second = self(right, binds + 1, units[1]) if index.op != "%" else self._divisor(index, binds + 1)
        text = f"{self(left, binds, units[0])} {index.op} {second}"
        return f"({text})" if binds < around else text

    def known(self, index: Number, around: int = 0) -> str:
        """An expression of constants."""
        return spelled(index, around)

    def _divisor(self, index: Index, around: int = 0) -> str:
        """Remainders of what depends on the own rank are ranks, where they are of so many."""
        left, right = index.args
        if isinstance(right, Known):
            return self(right, around)
        if index.op == "%" and right == self.schedule.num_ranks and "rank" in names_in(left):
            return self.ranks()
        return self(right, around)

    def name(self, name: str) -> str:
        self.named.add(name)
        return name

    def look_up(self, index: Index) -> str:
        mask = f", mask={self.lanes}, other=0" if self.lanes and "lane" in names_in(index) else ""
        return f"tl.load({' + '.join(self.entry(index))}{mask})"

    def entry(self, index: Index) -> list[str]:
        """The terms of the address of an entry of a table."""
        return [index.op, *self.flat(index.args, index.op, 0)]

    def floored(self, op: str, left: str, right: str) -> str:
        return f"{'floor_mod' if op == '%' else 'floor_div'}({left}, {right})"

    def flat(self, index: tuple[Number, ...], array: str, leave: int) -> list[str]:
        """Terms of the place of `index` in an array, row after row, without those of the last `leave` dimensions."""
        shape = self.schedule.shapes[array]
        kept = list(zip(index, range(len(shape) - leave), strict=False))
        return [self.scaled(one, array, dim) for one, dim in kept if one != 0]

    def scaled(self, index: Number, array: str, dim: int) -> str:
        """`index` places along a dimension, in elements."""
        shape = self.schedule.shapes[array]
        text = self(index, 1 if dim == len(shape) - 1 else 2)
        return self.times(text, array, dim)

    def times(self, text: str, array: str, dim: int) -> str:
        """`text` times the elements from one place to the next along a dimension; in 64 bits where 32 are too few."""
        shape = self.schedule.shapes[array]
        if prod(shape) >= limits.INT32_LIMIT:
            text = self.wide(text)
        step = strides(shape)[dim]
        return text if step == 1 and not isinstance(step, Known) else f"{text} * {self.constant(self.step(array, dim))}"

    def constant(self, name: str) -> str:
        """A constant at the top of the file."""
        return name

    def step(self, array: str, dim: int) -> str:
        """Elements from one place to the next along a dimension of an array: a row, what has rows, and so on."""
        shape = self.schedule.shapes[array]
        step = strides(shape)[dim]
        if dim == len(shape) - 2:
            return self.constants.name(f"{array}_COLS", step, f"columns of {array}", group=Group.BUFFERS)
        rows = dim == len(shape) - 3
        base, what = (f"{array}_ROWS", f"rows of {array}") if rows else (f"{array}_SIZE_{dim + 1}", f"size of {array}")
        places = self.constants.name(base, shape[dim + 1], what, group=Group.BUFFERS)
        text = f"{places} * {self.step(array, dim + 1)}"
        base, what = (f"{array}_PART", "part") if rows else (f"{array}_STEP_{dim}", f"place along dimension {dim}")
        return self.constants.name(base, int(step), f"elements of a {what} of {array}", group=Group.BUFFERS, text=text)

    def wide(self, text: str) -> str:
        return f"tl.cast({text}, tl.int64)"


class HostSpelling(Spelling):
    """An index as host code spells it, where a remainder is what Python computes."""

    minimum, maximum = "min", "max"

    def number(self, base: str, value: int, what: str, group: Group = Group.LOOPS, text: str = "") -> str:
        return self.constant(super().number(base, value, what, group, text))

    def constant(self, name: str) -> str:
        return name if name.isdigit() else f"{name}.value"

    def known(self, index: Number, around: int = 0) -> str:
        return re.sub(r"[A-Za-z_]\w*", r"\g<0>.value", spelled(index, around))

    def name(self, name: str) -> str:
        """A stream of its own is no loop over streams."""
        return "0" if name == "program" and self.scope.programs == 1 else super().name(name)

    def floored(self, op: str, left: str, right: str) -> str:
        return f"({left}) {op} {right}"

    def wide(self, text: str) -> str:
        return text


def _counts_in(index: Number, unit: int) -> bool:
    """Whether `index` is written as a multiple of `unit`."""
    if isinstance(index, int):
        return bool(unit) and index % unit == 0
    return index.op == "*" and unit in index.args
