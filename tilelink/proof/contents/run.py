"""Going through what a schedule does until nothing more is found out about memory; then what is wrong with it.

What lies in a place does not depend on when it is looked at, as long as a call writes it once, or says of which use a read is.
So steps may be gone through in any order, as often as something new is found. That reads come behind the writes they need is
what `happens_before` proves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tilelink.ir.ops.user_op import UserOp
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contents.alike import Alike
from tilelink.proof.contents.attending import Pending
from tilelink.proof.contents.calls import called
from tilelink.proof.contents.made import Making
from tilelink.proof.contents.memory import SEVERAL, UNKNOWN, Access, Memory, View
from tilelink.proof.contents.tile import (
    Flags,
    Held,
    Nothing,
    Pieces,
    Place,
    Term,
    Tile,
    merged,
)
from tilelink.proof.contents.trace import Block, Chosen, Done, where
from tilelink.proof.contents.values import Mismatch, Part, Values
from tilelink.proof.findings import Finding
from tilelink.schedule.index import Number, value_of
from tilelink.schedule.memory import Buffer
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import SEND_RECEIVE, Call, Compute, Load, Move, Store

Registers = dict[str, Held]


@dataclass
class Run:
    """`findings`: the first one of a step. `complete`: whether all that a block has read has been found."""

    schedule: Schedule
    values: Values
    memory: Memory
    ranks: Alike
    complete: bool = True

    def __post_init__(self) -> None:
        self.buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in self.schedule.buffers}
        self.findings: dict[int, Finding] = {}
        self.places = {buffer.places for buffer in self.schedule.buffers if buffer.places is not None}
        users = {node.operation.name: node for node in self.values.spec.nodes if isinstance(node.operation, UserOp)}
        sizes = [value_of(axis.size, self.schedule.sizes) for axis in self.schedule.mesh]
        self.making = Making(self.values, users, [prod(sizes[at:]) for at in range(1, len(sizes))])

    def all(self, blocks: list[Block]) -> Iterator[Finding]:
        self._inputs()
        self.memory.gathers, self.memory.all_ranks = tuple(self.values.gathers()), self.values.ranks
        left, found, before = blocks, list[Finding](), -1
        while left and before != self.memory.progress:
            before = self.memory.progress
            open_ones = list[Block]()
            self.findings.clear()
            for block in left:
                self.complete = True
                already = len(self.findings)
                self.block(block, {})
                if not self.complete:
                    open_ones.append(block)
                elif len(self.findings) > already:
                    found += list(self.findings.values())[already:]
            left = open_ones
        yield from found or self.findings.values()

    def _inputs(self) -> None:
        """Each rank has its own."""
        for value in self.values.spec.inputs:
            if value.name in self.buffers:
                shape = self.memory.shapes[value.name]
                axes = tuple(range(len(shape)))
                view = self.memory.labels.view(View(Term(value.name), axes, len(shape)))
                number = np.arange(self.ranks.period)
                labels = self.memory.labels.of(view, number, [number * 0] * len(shape))
                cells = self.memory.cells[value.name]
                cells[:] = np.repeat(labels, len(cells) // len(labels))

    # ---- steps ----
    def block(self, block: Block, held: Registers) -> None:
        for step in block.steps:
            if isinstance(step, Chosen):
                self.branch(step, held)
                continue
            match step.step:
                case Load(result=result):
                    held[result] = self.loaded(block, step)
                case Store(value=value):
                    self._check_place(block, step, step.writes[0], held)
                    made = held.get(value, Nothing("nothing made it"))
                    self.store(block, step, self.tile(block, step, made, value))
                case Move():
                    for source, target in zip(step.reads, step.writes, strict=True):
                        self.write(block, step, target, self.read(block, step, source, _all_dims(source)))
                case Compute():
                    self.compute(block, step, step.step, held)
                case Call(function=function):
                    self.call_library(block, step, function)

    def branch(self, chosen: Chosen, held: Registers) -> None:
        sides = []
        # what is sent comes before what peers make of it, so that one round may do
        for side, block in ((~chosen.where, chosen.others), (chosen.where, chosen.body)):
            number = np.flatnonzero(side)
            inside = {name: one.at(number) for name, one in held.items()}
            before = dict(inside)
            if len(block):
                self.block(block, inside)
            sides.append({name: one for name, one in inside.items() if before.get(name) is not one})
        second, first = sides
        for name in first.keys() | second.keys():
            there, elsewhere = first.get(name), second.get(name)
            if there is None or elsewhere is None:
                lanes = np.flatnonzero(chosen.where if there is None else ~chosen.where)
                kept = held[name].at(lanes) if name in held else Nothing()
                there, elsewhere = there or kept, elsewhere or kept
            held[name] = merged(chosen.where, there, elsewhere)

    def refuse(self, block: Block, step: Done, why: str, lanes: Flags | None = None) -> None:
        if why and id(step.step) not in self.findings:
            lane = int(np.flatnonzero(lanes)[0]) if lanes is not None and lanes.any() else 0
            lane //= max(1, len(lanes) // len(block)) if lanes is not None else 1  # of a part of its box
            place, example = where(block, step.step, lane)
            self.findings[id(step.step)] = Finding(BugClass.WRONG_PLACE, place, why, tile=example)

    # ---- memory ----
    def read(self, block: Block, step: Done, access: Access, dims: tuple[int, ...]) -> Held:
        labels = self.memory.read(access)
        if (labels == SEVERAL).any():
            why = f"{access.buffer} holds different things there"
            self.refuse(block, step, why, labels == SEVERAL)
            return Nothing(why)
        if (labels == UNKNOWN).any():
            self.complete = False
            self.refuse(block, step, f"nothing that is known lies in {access.buffer} there", labels == UNKNOWN)
        found = self.memory.tile(access, labels, dims)
        if isinstance(found, str):
            self.refuse(block, step, found)
            return Nothing(found)
        return self.ranks.seen(found, access.turn)

    def loaded(self, block: Block, step: Done) -> Held:
        (access,) = step.reads
        if access.buffer in self.places:
            return self._place(block, step, access)
        if step.torn:
            why = "rounds do not go through it piece by piece"
            self.refuse(block, step, why)
            return Nothing(why)
        dims = _dims_of_tile(access)
        if len(dims) > 2 and step.parts and step.parts[0] is not None:
            return self._through_parts(block, step, step.parts[0])
        found = self.read(block, step, access, dims)
        if not isinstance(found, Tile):
            return found
        if len(dims) > 1 and found.axes[0] is None:  # the number of a part, in front of a row of it
            dims, found = dims[1:], replace(found, axes=found.axes[1:])
        pieces: tuple[Pieces | None, ...] = tuple(step.pieces[dim] for dim in dims)
        offset = None if step.offset is None else tuple(step.offset[dim] for dim in dims)
        extent = step.step.region.extent[-len(dims) :] if isinstance(step.step, Load) else ()
        return replace(found, pieces=pieces if any(pieces) else (), offset=offset, shape=_registers(extent))

    def _through_parts(self, block: Block, step: Done, parts: Access) -> Held:
        """A box through the parts of all ranks, as one of the value that they are parts of."""
        ranks = self.schedule.num_ranks
        found = self.read(block, step, parts, _all_dims(parts)[-2:])
        if not isinstance(found, Tile):
            return found
        lane = np.arange(len(block)) * ranks
        for term, part in self._as_gathered(found):
            begins, rows = (of[0].reshape(-1, ranks) for of in (part.start, part.extent))
            others = (part.owner, *part.start[1:], *part.extent[1:])
            even = all((one.reshape(-1, ranks) == one[lane][:, None]).all() for one in others)
            gaps = rows[:, :-1] != self.schedule.shapes[parts.buffer][-2]
            follow = (begins[:, 1:] == begins[:, :-1] + rows[:, :-1]).all() and not gaps.any()
            if even and follow and not any(map(np.any, part.skip)):
                start, skip, extent = (tuple(one[lane] for one in of) for of in (part.start, part.skip, part.extent))
                offset = None if step.offset is None else step.offset[1:]
                return replace(
                    found.at(lane),
                    term=term,
                    owner=part.owner[lane],
                    start=start,
                    extent=(rows.sum(axis=1), *extent[1:]),
                    skip=skip,
                    offset=offset,
                )
        return self._nothing(block, step, f"{parts.buffer} does not hold parts one behind the other")

    def _as_gathered(self, found: Tile) -> Iterator[tuple[Term, Part]]:
        """A tile as it is, and as rows of what is gathered: in memory, parts follow each other along rows alone."""
        yield found.term, Part(found.owner, found.start, found.extent, found.skip)
        for gather in self.values.gathers():
            with suppress(Mismatch):
                if gather.dim == 0:
                    yield Term(gather.value), self.values.part(found, gather.value)

    def _nothing(self, block: Block, step: Done, why: str, lanes: Flags | None = None) -> Nothing:
        self.refuse(block, step, why, lanes)
        return Nothing(why)

    def store(self, block: Block, step: Done, value: Held) -> None:
        (access,) = step.writes
        if isinstance(value, Place):
            self._store_place(access, value)
        else:
            self.write(block, step, access, value)

    def write(self, block: Block, step: Done, access: Access, value: Held) -> None:
        if not isinstance(value, Tile):
            if isinstance(value, Nothing):
                self.refuse(block, step, value.why)
            else:
                self.refuse(block, step, "what is stored is no value of the spec")
            return
        value = self.ranks.stored(value, access.turn)
        buffer = self.buffers[access.buffer]
        if buffer.dtype != self.values.dtype(value.term):
            self.refuse(block, step, f"{buffer.name} is {buffer.dtype}, {value.term} {self.values.dtype(value.term)}")
        lead = len(access.start) - len(value.axes)
        there = value.known.copy()
        for size in access.sizes:
            there &= size > 0
        axes: list[int | None] = [None] * max(lead, 0)
        offset = list(value.start)
        for at, axis in enumerate(value.axes):
            dim = at + lead
            if dim < 0:
                continue
            reach, begin = access.high[dim] - access.start[dim], access.low[dim] - access.start[dim]
            if axis is None:
                wrong = there & (access.sizes[dim] > 1)
                axes.append(None)
            else:
                wrong = there & ((reach > value.extent[axis]) | (begin < value.skip[axis]))
                offset[axis] = value.start[axis] - access.start[dim]
                axes.append(axis)
            if wrong.any():
                self.refuse(block, step, f"it stores more than the tile holds of {value.term}", wrong)
                there &= ~wrong
        if lead > 0 and any((there & (access.sizes[dim] > 1)).any() for dim in range(lead)):
            self.refuse(block, step, f"{value.term} has fewer dimensions than what it is stored to")
            return
        view = self.memory.labels.view(View(value.term, tuple(axes), len(value.start)))
        labels = self.memory.labels.of(view, value.owner, offset)
        wrong = self.memory.write(access, labels, there)
        if wrong.any():
            self.refuse(block, step, f"it stores {value.term} where something else is stored in the same call", wrong)

    # ---- places ----
    def _store_place(self, access: Access, value: Place) -> None:
        view = self.memory.labels.view(View(Term(f"place of {value.buffer}"), (None,), 0))
        owner = self.ranks.image_of(value.owner, access.turn)
        self.memory.write(access, self.memory.labels.of(view, owner, []), np.ones(len(access), bool))

    def _place(self, block: Block, step: Done, access: Access) -> Held:
        labels = self.memory.read(access)
        if (labels <= UNKNOWN).any():
            self.complete = False
            self.refuse(block, step, "nobody has told the place", labels <= UNKNOWN)
            return Nothing()
        return Place(access.buffer, self.ranks.owner(self.memory.labels.table[labels, 1], access.turn))

    def _check_place(self, block: Block, step: Done, access: Access, held: Registers) -> None:
        """Whoever stores into one of several places has looked up that of the rank to which it stores."""
        places = self.buffers[access.buffer].places
        at = self.ranks.owner(access.at, access.turn)
        if places is None or (at == block.ranks).all():
            return
        found = (one.owner for one in held.values() if isinstance(one, Place) and one.buffer == places)
        if not any((owner == at).all() for owner in found):
            self.refuse(block, step, f"the place of {access.buffer} on that rank has not been looked up")

    # ---- what is computed ----
    def tile(self, block: Block, step: Done, held: Held, name: str) -> Held:
        """`held`, called `name`, as a value of the spec."""
        try:
            return self.making.value(held, block.ranks, name, step.writes[0].buffer)
        except Mismatch as mismatch:
            return self._nothing(block, step, mismatch.why, mismatch.lanes)

    def compute(self, block: Block, done: Done, step: Compute, held: Registers) -> None:
        try:
            made = self.making.made(done, step, held, block.ranks)
        except Mismatch as mismatch:
            made = (self._nothing(block, done, mismatch.why, mismatch.lanes),) * len(step.results)
        held.update(zip(step.results, made, strict=True))

    def call_library(self, block: Block, step: Done, function: str) -> None:
        def write(access: Access, tile: Tile) -> None:
            self.write(block, step, access, tile)

        if function == SEND_RECEIVE:
            self.received(block, step)
            return
        try:
            called(self.values, self.memory, block.ranks, step, function, write)
        except Pending:
            self.complete = False
            self.refuse(block, step, "nothing that is known lies in what it takes")
        except Mismatch as mismatch:
            self.refuse(block, step, mismatch.why, mismatch.lanes)

    def received(self, block: Block, step: Done) -> None:
        """What the sender has sent in the same position, whose rank may be that of an image."""
        to, source = (one for one in step.operands if isinstance(one, np.ndarray))
        turn, period = source // self.ranks.period, self.ranks.period
        lane_of = {
            place: lane for lane, place in enumerate(zip(block.ranks.tolist(), block.tiles.tolist(), strict=True))
        }
        lane = np.array(
            [lane_of.get(one, -1) for one in zip((source % period).tolist(), block.tiles.tolist(), strict=True)]
        )
        nobody = (lane < 0) | (self.ranks.turns.numbers(to[lane], turn) != block.ranks)
        found = self.read(block, step, step.reads[0], _all_dims(step.reads[0]))
        if nobody.any():
            self.refuse(block, step, "it receives from a rank that sends to another one", nobody)
        elif isinstance(found, Tile):
            self.write(block, step, step.writes[0], self.ranks.seen(found.at(lane), turn))


def _all_dims(access: Access) -> tuple[int, ...]:
    return tuple(range(len(access.start)))


def _dims_of_tile(access: Access) -> tuple[int, ...]:
    """Dimensions of a tile that is loaded: the last two, where those in front of them select one element."""
    dims = _all_dims(access)
    return dims[-2:] if all((access.sizes[dim] <= 1).all() for dim in dims[:-2]) else dims


def _registers(extent: tuple[Number, ...]) -> tuple[int, ...] | None:
    """The shape of a tile that is loaded so: of what is not cut at the end of a tensor; None if it is not known."""
    wide = []
    for side in extent:
        terms = (side,) if isinstance(side, int) else side.args if side.op == "min" else ()
        wide.append(min((one for one in terms if isinstance(one, int)), default=0))
    return tuple(wide) if all(one and one & (one - 1) == 0 for one in wide) else None
