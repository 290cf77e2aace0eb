"""Numbers with a name at the top of the printed file: choices, sizes, what follows from both, strides, places of words.

    TILE_M = tl.constexpr(128)          # a dim that was chosen
    M_TILES = M_SIZE // TILE_M          # one that follows
    Y_COLS = tl.constexpr(4096)         # what printers ask a name for

A file whose choices were edited follows them as far as the asserts behind say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count

from tilelink.schedule.index import names_in, spelled
from tilelink.schedule.known import Known
from tilelink.schedule.memory import Dim


class Group(IntEnum):
    """Sections, in the order of the file. A constant follows from those of its own section and of earlier ones."""

    CHOSEN = 0
    SIZES = 1
    LOOPS = 2
    BUFFERS = 3
    WORDS = 4


_TITLES = {
    Group.CHOSEN: "choices of the planner: change them here, and the constants below follow",
    Group.SIZES: "sizes of tensors, ranks and machine: fixed by the schedule",
    Group.LOOPS: "tiles, chunks and programs",
    Group.BUFFERS: "sizes of buffers, and strides in elements",
    Group.WORDS: "layout of signals and counts, in words",
}
_HEAD = "# Kernels read these constants directly, host code reads their `.value`."
_EDITED = "# The proof of the schedule does not cover an edited file: check it again with `tilelink verify FILE`."
_RELIES = "the code below relies on these; where one does not hold, emit another file"
_WIDTH = 106  # of a line with its comment, without what stands between them


@dataclass(frozen=True, slots=True)
class Constant:
    """`text` is a number, or an expression of other constants. `title` says what it counts."""

    name: str
    value: int
    text: str
    title: str
    group: Group

    @property
    def needs(self) -> set[str]:
        """Constants that its text names."""
        return set(re.findall(r"[A-Za-z_]\w*", self.text))


@dataclass
class Constants:
    """`taken`: names that mean something else. One name has one value; it is printed once, with what it is."""

    taken: frozenset[str]
    found: dict[str, Constant] = field(default_factory=dict)
    required: dict[str, str] = field(default_factory=dict)  # what has to hold: why
    edited: bool = False  # whether there are choices

    def add(self, dims: Iterable[Dim], sizes: dict[str, int], layout: bool = False) -> None:
        """Constants for `dims`, whose values are `sizes`. `layout`: they say where words lie."""
        for dim in dims:
            group = Group.WORDS if layout else self._group(dim)
            self.edited |= dim.chosen
            self.found[dim.name] = Constant(dim.name, sizes[dim.name], spelled(dim.size), dim.title, group)
            for by in dim.multiples:
                self.require(f"{dim.name} % {spelled(by, 3)} == 0", f"whole pieces, no masks: {dim.title}")

    def _group(self, dim: Dim) -> Group:
        if dim.chosen:
            return Group.CHOSEN
        sizes = all(self.found[name].group is Group.SIZES for name in names_in(dim.size))
        return Group.SIZES if sizes else Group.LOOPS

    def require(self, text: str, why: str) -> None:
        """Printed code relies on `text`, a condition on constants that holds now."""
        self.required.setdefault(text, why)

    def name(self, base: str, value: int, what: str, role: str = "", group: Group = Group.LOOPS, text: str = "") -> str:
        """What `value` is called: the dim that it is, or `base`, or that of `role` where `base` is another number already, or
        else the number. `text`: an expression of constants that has this value."""
        if isinstance(value, Known):
            if value.index.is_name:
                return value.index.op
            text = spelled(value.index)
        for one in _tried(base, role, several=bool(text)):
            name = one.upper()
            constant = Constant(name, int(value), text or str(int(value)), what, group)
            if name not in self.taken and _same(self.found.setdefault(name, constant), constant):
                return name
        return str(value)

    def lines(self, used: Iterable[str]) -> list[str]:
        """Definitions of those that are `used`, and of what these follow from; then what the code relies on."""
        wanted = self._closure(used)
        required = [(text, why) for text, why in self.required.items() if self._leaves(_names(text)) <= wanted]
        wanted |= self._closure(name for text, _ in required for name in _names(text))
        lines = [_HEAD, *([_EDITED] if self.edited else [])]
        for group in Group:
            constants = [one for name, one in self.found.items() if name in wanted and one.group is group]
            if constants:
                lines += ["", f"# {_TITLES[group]}"]
                lines += [line for one in self._in_order(constants) for line in _definition(one)]
        if required:
            lines += ["", f"# {_RELIES}", *(f'assert {text}, "{why}"' for text, why in required)]
        return lines

    def _closure(self, names: Iterable[str]) -> set[str]:
        wanted: set[str] = set()
        waiting = [name for name in names if name in self.found]
        while waiting:
            name = waiting.pop()
            if name not in wanted:
                wanted.add(name)
                waiting += self.found[name].needs & self.found.keys()
        return wanted

    def _leaves(self, names: Iterable[str]) -> set[str]:
        """Constants from which `names` follow, and which follow from no others."""
        return {name for name in self._closure(names) if not self.found[name].needs}

    def _in_order(self, constants: list[Constant]) -> list[Constant]:
        """Each behind those that it follows from."""
        names, out = {one.name for one in constants}, list[Constant]()
        waiting = list(constants)
        while waiting:
            ready = [one for one in waiting if not one.needs & names - {done.name for done in out}]
            out += ready[:1]
            waiting.remove(ready[0])
        return out


def _tried(base: str, role: str, several: bool) -> Iterator[str]:
    """Names, best first. `several`: so many that one is free."""
    yield base
    if role:
        yield f"{base}_2" if base.startswith(f"{role}_") else f"{role}_{base}"
    if several:
        yield from (f"{base}_{number}" for number in count(2))


def _same(one: Constant, other: Constant) -> bool:
    return (one.value, one.text) == (other.value, other.text)


def _names(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _definition(one: Constant) -> list[str]:
    line = f"{one.name} = {f'tl.constexpr({one.text})' if one.text.isdigit() else one.text}"
    if not one.title:
        return [line]
    return [f"{line}  # {one.title}"] if len(line) + len(one.title) < _WIDTH else [f"# {one.title}", line]
