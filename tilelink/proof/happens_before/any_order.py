"""Phases whose positions may as well come in any other order: a kernel that computes on one rank and tells nobody of it midway.

Claim. Let a phase be the only one of the only role of its launch, but for what comes last of all. Let it wait for nothing, tell
nothing, touch own memory alone, in every call the same, and let no position touch what another one writes. Then whoever is
ordered before or behind one of its positions is so with all of them, and two of its positions never meet in a cell. So if a
renaming of ranks (`ranks`) takes the positions of each rank to those of the renamed one in *some* order, it maps the rest of
happens-before to itself, and no cell is left of which it does not tell the truth. For the same reason one position may stand for
all: it touches what all of them do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.events import grouped
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.refuted import Refuted
from tilelink.proof.happens_before.rows import Expanded, Kind, Rows
from tilelink.proof.happens_before.turns import Turns
from tilelink.schedule.index import Ints, names_in, rank
from tilelink.schedule.roles import Launch, Phase, Plain, Role, Schedule, Who
from tilelink.schedule.steps import Call, Move, Notify, Wait
from tilelink.schedule.walk import indices, read, steps_in, written


@dataclass(frozen=True, slots=True)
class AnyOrder:
    """`known`: what was found before, by phase and number of ranks."""

    schedule: Schedule
    known: dict[tuple[int, int], bool] = field(default_factory=dict)

    def __call__(self, launch: Launch, role: Role, phase: Phase, ranks: int) -> bool:
        """Whether positions of a phase that tells nobody may come in any order on ranks 0..`ranks` - 1."""
        key = id(phase), ranks
        if key not in self.known:
            self.known[key] = self._apart(launch, role, phase, ranks)
        return self.known[key]

    def tells_nobody(self, launch: Launch, phase: Phase) -> bool:
        """All of it but for what positions write."""
        only = [one for role in launch.roles for one in role.phases if one.who is not Who.LAST] == [phase]
        if not only or phase.every or phase.who is not Who.EACH or len(launch.roles) > 1:
            return False
        steps = list(steps_in(phase.body))
        if any(isinstance(one, Wait | Notify | Move | Call) for one in steps):
            return False
        numbers = [phase.first, phase.count, *(index for _, index in phase.let)]
        if "call" in {
            name for one in (*numbers, *(at for one in steps for at in indices(one))) for name in names_in(one)
        }:
            return False
        protocols = {one.name: one.protocol for one in self.schedule.buffers}
        loaded, stored = ([at for one in steps for at in found(one)] for found in (read, written))
        plain = all(protocols.get(one.buffer) is Protocol.SIMPLE and one.at == rank for one in (*loaded, *stored))
        return plain and {one.buffer for one in loaded}.isdisjoint(one.buffer for one in stored)

    def launch(self, launch: Launch, ranks: int) -> bool:
        """Whether positions of the launch may come in any order, but for what comes last of all."""
        return any(
            self.tells_nobody(launch, phase) and self(launch, role, phase, ranks)
            for role in launch.roles
            for phase in role.phases
        )

    def _apart(self, launch: Launch, role: Role, phase: Phase, ranks: int) -> bool:
        """Whether no two positions write one place."""
        alone = replace(launch, roles=(replace(role, phases=(replace(phase, pipelining=Plain()),)),))
        try:
            plan = expanded(replace(self.schedule, launches=(alone,)), {}, 1, Turns(self.schedule.num_ranks, ranks))
        except Refuted:  # tables, whose entries nobody knows here, or what is wrong where the order is proved
            return False
        stores: dict[str, list[Rows]] = {}
        for one in plan.rows:
            if one.kind is Kind.WRITE:
                stores.setdefault(one.name, []).append(one)
        return all(
            _on_a_grid(
                [np.stack([one.rank, *one.start]) for one in some],
                [np.stack([one.rank + 1, *one.stop]) for one in some],
            )
            for some in stores.values()
        )


def merged(plan: Expanded, free: AnyOrder) -> Expanded:
    """The plan with one access for all that positions of a launch do to a box, where they may come in any order."""
    some = {
        program
        for launch, (programs, _) in zip(plan.schedule.launches, plan.launches, strict=True)
        if free.launch(launch, plan.turns.period)
        for program in programs
    }
    if not some:
        return plan
    buffers = {one.name for one in plan.schedule.buffers}  # a pipeline has places and words besides
    rows = [_merged(one) if one.name in buffers and len(one) and one.program[0] in some else one for one in plan.rows]
    return replace(plan, rows=rows)


def _merged(rows: Rows) -> Rows:
    """One row of those of one box, by one program, and of boxes that fill a larger one that."""
    rows = rows.at(grouped(rows.rank, rows.call, *rows.start, *rows.stop)[0])
    each, group = np.unique(rows.rank * (rows.call.max() + 1) + rows.call, return_inverse=True)
    if not _on_a_grid([np.stack([group, *rows.start])], [np.stack([group + 1, *rows.stop])]):
        return rows
    low, high = ([np.zeros(len(each), np.int64) for _ in rows.start] for _ in range(2))
    volume, filled = np.ones(len(each), np.int64), np.ones(len(rows), np.int64)
    for number, (start, stop) in enumerate(zip(rows.start, rows.stop, strict=True)):
        low[number] += start.max()
        np.minimum.at(low[number], group, start)
        np.maximum.at(high[number], group, stop)
        volume *= high[number] - low[number]
        filled *= stop - start
    if not np.array_equal(np.bincount(group, filled), volume):
        return rows
    first = np.unique(group, return_index=True)[1]
    return replace(rows.at(first), start=tuple(low), stop=tuple(high))


def _on_a_grid(starts: list[Ints], stops: list[Ints]) -> bool:
    """Whether boxes are cells of a grid, each of them another one."""
    start, stop = np.concatenate(starts, axis=1), np.concatenate(stops, axis=1)
    for first, last in zip(start, stop, strict=True):
        lines, line = np.unique(first, return_inverse=True)
        reach = np.zeros(len(lines), np.int64)
        np.maximum.at(reach, line, last)
        if (reach[:-1] > lines[1:]).any():
            return False
    return bool(len(grouped(*start)[0]) == start.shape[1])
