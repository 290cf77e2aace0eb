"""Programs of a launch with other numbers, so that ranks are alike that go through the same tiles in the same order.

Let a role have one phase, no program more than one position of it, and nothing ask for the number of a program. Then its programs
may as well have other numbers: it is the same schedule. So positions are counted along the axes of their tiles, and each rank
begins with those of its own part: for tiles of 16 rows, of 16 rows of each of 8 ranks,

    m = tile % 4 * 16; n = tile // 4 * 64       as it is
    m = (tile // 32 + rank) % 8 * 16; n = tile % 32 * 64

Now the tile of a number turns with the rank, and `ranks` sees it. More positions than programs are given programs of their own if
nothing in the phase waits: what comes in one program is ordered less then than it is, and a phase that never waits closes no
circle of waits. A refutation may be of orders that never occur, so that only proofs of these schedules count.

A loop over all ranks that only takes packets may begin with any of them. A packet needs nothing that came in another round, as it
tells of itself, and nobody learns of a round before all are over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd, prod

import numpy as np

from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.any_order import AnyOrder
from tilelink.schedule.index import Index, Ints, Number, evaluate, names_in, rank
from tilelink.schedule.roles import Launch, Phase, Plain, Role, Schedule, Sms, Who
from tilelink.schedule.steps import Call, Compute, For, If, Let, Load, Move, Step, Sync, Wait
from tilelink.schedule.walk import indices, mapped, read, steps_in

_TILE = Index("tile")


def renumbered(schedule: Schedule) -> Iterator[Schedule]:
    """With the numbers of all phases that can be counted so, from the axis on that comes first, second ..."""
    before: list[Launch] = []
    for axis in range(2):
        launches = [_renumbered(schedule, launch, axis) for launch in schedule.launches]
        if launches != list(schedule.launches) and launches != before:
            before = launches
            yield replace(schedule, launches=tuple(launches))


def _renumbered(schedule: Schedule, launch: Launch, axis: int) -> Launch:
    free = AnyOrder(schedule)
    if any(free.tells_nobody(launch, phase) for role in launch.roles for phase in role.phases):
        return launch  # `ranks` turns its positions as they are
    roles = (_of_role(schedule, role, axis) for role in launch.roles)
    return replace(launch, roles=tuple(_loops_turned(schedule, role) for role in roles))


def _loops_turned(schedule: Schedule, role: Role) -> Role:
    """Loops over all ranks that only take packets begin with the own rank."""
    packets = _packets(schedule)

    def turned(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, For) or step.count != schedule.num_ranks:
            return (step,)
        inside = list(steps_in(step.body))
        taken = [one.region.buffer for one in inside if isinstance(one, Load)]
        if (
            not taken
            or not packets.issuperset(taken)
            or not all(isinstance(one, Load | Compute | If) for one in inside)
        ):
            return (step,)
        own = (Index(f"turn of {step.variable}") + rank) % schedule.num_ranks
        return (replace(step, variable=f"turn of {step.variable}", let=((step.variable, own), *step.let)),)

    return replace(role, phases=tuple(replace(one, body=mapped(one.body, turned)) for one in role.phases))


def _packets(schedule: Schedule) -> set[str]:
    return {one.name for one in schedule.buffers if one.protocol is not Protocol.SIMPLE}


def _of_role(schedule: Schedule, role: Role, axis: int) -> Role:
    only = [one for one in role.phases if one.who is not Who.LAST]
    if len(only) != 1 or not isinstance(role.engine, Sms):
        return role
    (phase,) = only
    count = phase.count
    if not isinstance(count, int) or (count > role.programs and _waits(schedule, phase)):
        return role
    let = _along_axes(schedule, phase, count, axis)
    if let is None:
        return role
    phases = tuple(replace(one, let=let) if one is phase else one for one in role.phases)
    return replace(role, engine=replace(role.engine, programs=max(count, role.programs)), phases=phases)


def _waits(schedule: Schedule, phase: Phase) -> bool:
    """Whether any step of it may have to wait, for a word, for packets, or for what it has put."""
    steps = list(steps_in(phase.body))
    loaded = {region.buffer for step in steps for region in read(step)}
    return any(isinstance(step, Wait | Call | Move | Sync) for step in steps) or not loaded.isdisjoint(
        _packets(schedule)
    )


def _along_axes(schedule: Schedule, phase: Phase, count: int, axis: int) -> Let | None:
    """The names that the body asks for, of positions that are counted along them; None if they are no grid."""
    plain = not phase.every and phase.who is Who.EACH and isinstance(phase.pipelining, Plain)
    if phase.first != 0 or count < 1 or not plain:
        return None
    asked = {name for step in steps_in(phase.body) for one in indices(step) for name in names_in(one)}
    if asked & {"tile", "program"}:
        return None
    env: dict[str, int | Ints] = {**schedule.sizes, "tile": np.arange(count)}
    values: dict[str, Ints] = {}
    for name, index in phase.let:
        if names_in(index) - env.keys():  # another order on each rank, or in each call, or as a table says
            return None
        try:
            with np.errstate(divide="raise", invalid="raise"):
                env[name] = evaluate(index, env)
        except (ZeroDivisionError, FloatingPointError):  # which is found where the order is proved
            return None
        if name in asked:
            values[name] = np.broadcast_to(np.asarray(env[name], np.int64), count)
    axes = [np.unique(one) for one in values.values()]
    places = np.unique(np.stack(list(values.values())), axis=1) if values else np.zeros((0, 0))
    if prod(map(len, axes)) != count or places.shape[1] != count or not all(map(_even, axes)):
        return None
    turning = [number for number, one in enumerate(axes) if gcd(len(one), schedule.num_ranks) > 1]
    if axis >= len(turning):
        return None
    return tuple(_counted(list(values), axes, turning[axis], schedule.num_ranks))


def _even(axis: Ints) -> bool:
    return len(set(np.diff(axis).tolist())) <= 1


def _counted(names: list[str], axes: list[Ints], turning: int, ranks: int) -> Iterator[tuple[str, Number]]:
    below = 1
    found = []
    for number in [*(one for one in range(len(axes)) if one != turning), turning]:
        axis = axes[number]
        digit = _TILE // below % len(axis)
        if number == turning:
            alike = gcd(len(axis), ranks)
            digit = (_TILE // below + rank // (ranks // alike) * (len(axis) // alike)) % len(axis)
        step = int(axis[1] - axis[0]) if len(axis) > 1 else 0
        found.append((names[number], digit * step + int(axis[0])))
        below *= len(axis)
    yield from found
