"""One table of a TOML descriptor, read key by key: a fault names the file, the key and what is legal."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from topologies.errors import MalformedDescriptor, did_you_mean
from topologies.topology import Ramp

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Table:
    """Each method reads one key and raises MalformedDescriptor where its value is not of that kind."""

    file: str
    key: str  # dotted path of this table, empty for the whole file
    entries: Mapping[str, object]

    def path(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name

    def fault(self, name: str, reason: str, legal: str) -> MalformedDescriptor:
        return MalformedDescriptor(file=self.file, where=f"key {self.path(name)}", reason=reason, legal=legal)

    def check_keys(self, legal: Collection[str]) -> None:
        """Raises MalformedDescriptor for the first key that is not in `legal`."""
        for name in self.entries:
            if name not in legal:
                hint = did_you_mean(name, legal)
                raise self.fault(name, f"unknown key {name!r}", f"Legal keys: {', '.join(legal)}.{hint}")

    def _take(self, name: str, kinds: tuple[type, ...], legal: str) -> object:
        if name not in self.entries:
            raise self.fault(name, "the key is missing", f"It takes {legal}.")
        value = self.entries[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.fault(name, f"{spell(value)} has the wrong type", f"It takes {legal}.")
        return value

    def text(self, name: str) -> str:
        value = self._take(name, (str,), "a string that is not empty")
        assert isinstance(value, str)
        if not value.strip():
            raise self.fault(name, "the string is empty", "It takes a string that is not empty.")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """The strings of an array; the key may be absent."""
        legal = "an array of strings"
        values = self._take(name, (list,), legal) if name in self.entries else []
        assert isinstance(values, list)
        for value in values:
            if not isinstance(value, str):
                raise self.fault(name, f"{spell(value)} has the wrong type", f"It takes {legal}.")
        return tuple(values)

    def flag(self, name: str) -> bool:
        value = self._take(name, (bool,), "true or false")
        assert isinstance(value, bool)
        return value

    def whole(self, name: str, at_least: int = 1) -> int:
        legal = f"a whole number of at least {at_least}"
        value = self._take(name, (int,), legal)
        assert isinstance(value, int)
        if value < at_least:
            raise self.fault(name, f"{value} is below {at_least}", f"It takes {legal}.")
        return value

    def number(self, name: str) -> float:
        legal = "a positive, finite number"
        value = self._take(name, (int, float), legal)
        if not _is_positive(value):
            raise self.fault(name, f"{spell(value)} is not positive and finite", f"It takes {legal}.")
        assert isinstance(value, int | float)
        return float(value)

    def choice(self, name: str, kind: type[E]) -> E:
        values = [str(member.value) for member in kind]
        legal = " or ".join(f'"{value}"' for value in values)
        value = self._take(name, (str,), legal)
        if value not in values:
            hint = did_you_mean(str(value), values)
            raise self.fault(name, f"{spell(value)} is not one of them", f"It takes {legal}.{hint}")
        return kind(value)

    def table(self, name: str) -> Table:
        value = self._take(name, (dict,), f"a table, [{self.path(name)}]")
        assert isinstance(value, dict)
        return Table(self.file, self.path(name), value)

    def tables(self, name: str) -> tuple[Table, ...]:
        legal = f"tables, each under a line [[{self.path(name)}]]"
        values = self._take(name, (list,), legal)
        assert isinstance(values, list)
        if not values or not all(isinstance(value, dict) for value in values):
            raise self.fault(name, f"{spell(values)} is not that", f"It takes {legal}.")
        return tuple(Table(self.file, f"{self.path(name)}[{i}]", value) for i, value in enumerate(values))

    def ramp(self, name: str) -> Ramp:
        """Points [x, GB/s]; each x greater than the one before."""
        legal = "an array of points [x, GB/s], positive and finite, each x greater than the one before"
        values = self._take(name, (list,), legal)
        assert isinstance(values, list)
        points: list[tuple[float, float]] = []
        for value in values:
            match value:
                case [int() | float() as x, int() | float() as y] if _is_positive(x) and _is_positive(y):
                    points.append((float(x), float(y)))
                case _:
                    raise self.fault(name, f"{spell(value)} is not a point", f"It takes {legal}.")
            if len(points) > 1 and points[-2][0] >= points[-1][0]:
                reason = f"the x of {spell(value)} is not greater than the one before, {points[-2][0]:g}"
                raise self.fault(name, reason, f"It takes {legal}.")
        if not points:
            raise self.fault(name, "the array is empty", f"It takes {legal}.")
        return Ramp(tuple(points))


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return value > 0 and math.isfinite(value)
    except OverflowError:  # a TOML integer may be longer than any float
        return False


def spell(value: object) -> str:
    """`value` as TOML spells it: a Python repr would say True or None to somebody who wrote neither."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case list():
            return "[" + ", ".join(spell(item) for item in value) + "]"
        case dict():
            return "a table"
        case datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return str(value)
