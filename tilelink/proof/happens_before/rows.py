"""What steps do, as rows: one `Rows` for each event that a step makes, with columns for all lanes that make it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from tilelink.proof.happens_before.lanes import Chosen
from tilelink.proof.happens_before.refuted import Place
from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Ints
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Call, Load, Notify, Step, Wait


class Kind(IntEnum):
    """What an event does. Those up to SET synchronise, those from EMPTY on write."""

    WAIT = 0
    BLOCK = 1  # waits, and learns nothing: of what it waits for, only that it comes is taken into account
    ADD = 2
    SET = 3
    READ = 4
    EMPTY = 5  # a word of LAMPORT: who has read it empties it
    WRITE = 6


ORDERS = 6  # places in the order of a program for each step: a wait for data, read, empty, write, set data, notify
WAITS, READS, EMPTIES, WRITES, SETS, NOTIFIES = range(ORDERS)
EVERYTHING = frozenset({"*"})  # covered by a wait for all of a CTA


@dataclass(frozen=True, slots=True)
class Carry(Load):
    """A network card loads what it puts, as bytes."""


@dataclass(frozen=True, slots=True)
class Come(Notify):
    """A library tells a rank that this one has come to meet it, over whatever lies between them."""


@dataclass(frozen=True, slots=True)
class Block(Wait):
    """What may hold up a program, and tells it nothing."""


@dataclass(frozen=True, slots=True)
class Rows:
    """`start` and `stop`: elements along each dimension of a buffer; of a signal, `start` is the word.

    `many`: whoever comes last of so many raises. `floats`: a load, which may come right behind the latest wait that covers it.
    `ahead`: whether a pipelined loop may do it before what comes before it.
    """

    kind: Kind
    name: str
    step: Step
    rank: Ints
    call: Ints
    program: Ints
    order: Ints
    tile: Ints
    owner: Ints
    start: tuple[Ints, ...]
    stop: tuple[Ints, ...] = ()
    value: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    many: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    floats: bool = False
    ahead: bool = False

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def bytes_alone(self) -> bool:
        """Whether who does it knows nothing of packets: a library, or a network card that reads what it puts."""
        return isinstance(self.step, Call | Carry)

    def at(self, lanes: Chosen) -> Rows:
        def column(one: Ints) -> Ints:
            return one[lanes] if len(one) == len(self) else one

        return replace(
            self,
            rank=column(self.rank),
            call=column(self.call),
            program=column(self.program),
            order=column(self.order),
            tile=column(self.tile),
            owner=column(self.owner),
            start=tuple(map(column, self.start)),
            stop=tuple(map(column, self.stop)),
            value=column(self.value),
            many=column(self.many),
        )

    @property
    def covers(self) -> frozenset[str]:
        """Buffers whose loads need these waits. Data that say that they have come cover themselves, a barrier all."""
        if isinstance(self.step, Wait):
            return frozenset(self.step.covers)
        return frozenset({self.name}) if self.kind is Kind.READ else EVERYTHING


@dataclass
class Expanded:
    """All that ranks 0..`turns.period` - 1 do in `calls` calls. `programs`: names of those of a rank, the last is the caller."""

    schedule: Schedule
    calls: int
    turns: Turns
    rows: list[Rows] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    launches: list[tuple[list[int], int]] = field(
        default_factory=list
    )  # programs, and the one that does what comes last
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of buffers and signals, those of pipelines too

    def program(self, name: str) -> int:
        self.programs.append(name)
        return len(self.programs) - 1

    def place(self, rows: Rows, lane: int, turn: int = 0) -> Place:
        """What one lane of `rows` does, in words; `turn`: what that rank does that the turn takes to it."""
        shape, back = self.shapes[rows.name], self.turns.back(np.array(turn))
        shifts = self.turns.along(rows.name, len(shape))
        parts = []
        for number, (start, extent, by) in enumerate(zip(rows.start, shape, shifts, strict=True)):
            first = int(start[lane])
            long = int(rows.stop[number][lane]) - first if rows.stop else 1
            first = int(self.turns.place(np.array(first), long, by, extent, back))
            parts.append(str(first) if long == 1 else f"{first} : +{long}")
        rank, owner = (int(self.turns.numbers(one[lane], back)) for one in (rows.rank, rows.owner))
        what = f"{rows.name}[{', '.join(parts)}]@{owner}"
        if rows.kind in (Kind.WAIT, Kind.SET) and len(rows.value):
            what += f" {'>=' if rows.kind is Kind.WAIT else '='} {int(rows.value[lane])}"
        call, tile, program = int(rows.call[lane]), int(rows.tile[lane]), self.programs[int(rows.program[lane])]
        signal = "" if rows.stop else rows.name
        return Place(in_a_line(rows.step), program, rank, call, tile, what, signal)
