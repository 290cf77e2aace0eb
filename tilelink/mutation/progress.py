"""What can hold up what in a schedule: facts that rules of equivalence rest on. Each errs on the side of "it can"."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import LibraryGemm
from tilelink.ir.nodes import ComputeRole, CopyEngine, Exchange, Transfer
from tilelink.ir.order import Nest, RankOrder
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Apply, IfOwn, Load, MatmulBody, Notify, Step, Store, SumParts, SumWords, UserBody, Wait
from tilelink.proof.progress import no_circle, residency


def waits_of(steps: tuple[Step, ...]) -> Iterator[Wait]:
    """Every wait of a tile's body, those inside a matmul or a sum included."""
    for step in steps:
        match step:
            case Wait():
                yield step
            case MatmulBody(waits=waits):
                yield from waits
            case SumParts(wait=wait):
                if wait is not None:
                    yield wait
            case IfOwn(own=own, others=others):
                yield from waits_of((*own, *others))
            case UserBody() | SumWords() | Load() | Apply() | Store() | Notify():
                pass


def notifies_of(steps: tuple[Step, ...]) -> Iterator[Notify]:
    for step in steps:
        match step:
            case Notify():
                yield step
            case IfOwn(own=own, others=others):
                yield from notifies_of((*own, *others))
            case Wait() | MatmulBody() | UserBody() | SumParts() | SumWords() | Load() | Apply() | Store():
                pass


def maker(schedule: Schedule, exchange: str) -> ComputeRole | None:
    """The tile loop that counts tiles of what `exchange` sends."""
    for kernel in schedule.kernels():
        role = kernel.compute
        if role is not None and any(notify.exchange == exchange for notify in notifies_of(role.body)):
            return role
    return None


def sends_unhindered(schedule: Schedule, exchange: str) -> bool:
    """Every tile that `exchange` sends is made without waiting for anything, in whatever order movers take chunks.

    It holds where no tile loop makes the source; where that loop has no wait; and where it waits only in tiles of the own
    segment, which are not sent and which it starts with after all others.
    """
    role = maker(schedule, exchange)
    if role is None:
        return not any(
            isinstance(launch, LibraryGemm) and launch.split == exchange and launch.wait is not None
            for launch in schedule.launches
        )
    if not any(waits_of(role.body)):
        return True
    outside = tuple(step for step in role.body if not isinstance(step, IfOwn))
    branches = [step for step in role.body if isinstance(step, IfOwn)]
    unsent = all(notify.exchange != exchange for branch in branches for notify in notifies_of(branch.own))
    if any(waits_of(outside)) or any(any(waits_of(branch.others)) for branch in branches) or not unsent:
        return False
    order = role.order
    last = [order.ranks.at(rank, schedule.num_ranks - 1) for rank in range(schedule.num_ranks)]
    along = all(branch.axis == order.major for branch in branches)
    return along and order.nest is Nest.RANK_MAJOR and last == list(range(schedule.num_ranks))


def never_held_up(schedule: Schedule, role: ComputeRole) -> bool:
    """All that `role` waits for comes whatever `role` does, on any rank: another loop makes it, or none."""
    waited = {wait.exchange for wait in waits_of(role.body)}
    own = {notify.exchange for notify in notifies_of(role.body)}
    return not waited & own and all(sends_unhindered(schedule, name) for name in waited)


def goes_on(before: Schedule, after: Schedule, role: ComputeRole) -> bool:
    """Nothing hangs in `after`, which differs from `before` in the order, the tiles or the programs of `role`: because
    nothing holds up the role in either, or because the proof finds all programs resident and no circle of waits."""
    return never_held_up(before, role) or not (any(residency(after)) or any(no_circle(after)))


def sms_of_streams(schedule: Schedule) -> int:
    """SMs that one-program kernels on side streams may hold while they wait."""
    total = 0
    for exchange in schedule.exchanges:
        if isinstance(exchange.mover, CopyEngine) and _waits_by_kernel(schedule, exchange):
            total += 1 if exchange.order.nest is Nest.RANK_MAJOR else schedule.num_ranks - 1
    return total


def _waits_by_kernel(schedule: Schedule, exchange: Exchange) -> bool:
    if exchange.transfer is Transfer.PULL:
        return True
    return schedule.has_signal(f"{exchange.name}_count") and not schedule.machine.stream_waits


def all_resident(schedule: Schedule) -> bool:
    """Every program of a launch that waits fits the machine, beside what may wait on side streams; other launches need an
    SM, and may take their programs in turns."""
    waiting = [
        kernel.programs
        for kernel in schedule.kernels()
        if kernel.comm or (kernel.compute is not None and any(waits_of(kernel.compute.body)))
    ]
    return max([*waiting, 1]) + sms_of_streams(schedule) <= schedule.machine.num_sms


def visits_all(order: RankOrder, num_ranks: int) -> bool:
    """As lowered, positions 0 to num_ranks - 1 are every rank once, on every rank."""
    if order.num_ranks != num_ranks or num_ranks % order.ranks_per_node:
        return False
    # a remainder of a negative number is not the same on every target: `rank + num_ranks - first - position` must not be
    if order.direction < 0 and order.ranks_per_node == num_ranks and order.first > 1:
        return False
    everyone = set(range(num_ranks))
    return all(set(order.sequence(rank)) == everyone for rank in range(num_ranks))


def visits_peers(order: RankOrder, num_ranks: int) -> bool:
    """As lowered, positions 0 to num_ranks - 2 are every peer once, on every rank."""
    return visits_all(order, num_ranks) and all(order.at(rank, num_ranks - 1) == rank for rank in range(num_ranks))


def visits_every_tile(schedule: Schedule, role: ComputeRole) -> bool:
    """The role's order reaches each tile of each segment once."""
    order = role.order
    major = next((axis for axis in role.axes if axis.name == order.major and not axis.reduction), None)
    minor = next((axis for axis in role.axes if axis.name == order.minor and not axis.reduction), None)
    if major is None or (order.minor and minor is None) or order.group < 1:
        return False
    for axis, ranks in ((major, order.ranks), (minor, order.minor_ranks)):
        cut = axis is not None and axis.segments > 1
        if cut and not visits_all(ranks, schedule.num_ranks):
            return False
        if axis is not None and axis.segments not in (1, schedule.num_ranks):
            return False
    minor_tiles = minor.segments * minor.tiles if minor is not None else 1
    places = set(order.sequence(major.tiles, minor_tiles, major.segments))
    inside = all(s < major.segments and 0 <= m < major.tiles and 0 <= n < minor_tiles for s, m, n in places)
    return inside and len(places) == role.num_tiles
