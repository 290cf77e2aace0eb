"""When a mutated schedule does the same work in another order, by other programs or in other pieces."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.calls import LibraryGemm
from tilelink.ir.nodes import Axis, CommRole, ComputeRole, CopyProgram, Exchange, Finish, Kernel, Memory, Transfer
from tilelink.ir.order import ChunkOrder, Die, RankOrder, TileOrder
from tilelink.ir.steps import SMALLEST_DOT, Access, IfOwn, Notify, Operand, SlotNotify, SlotWait, UserBody, Wait
from tilelink.mutation.commuting import commute, idempotent
from tilelink.mutation.differences import repeated, swapped
from tilelink.mutation.progress import (
    all_resident,
    goes_on,
    maker,
    notifies_of,
    sends_unhindered,
    visits_all,
    visits_every_tile,
    visits_peers,
    waits_of,
)
from tilelink.mutation.schedule_pair import Pair
from tilelink.mutation.sites import sites
from tilelink.mutation.spelling_rules import LARGEST_TILE
from tilelink.proof.orders import own_tiles_last
from tilelink.proof.progress import no_circle, residency
from tilelink.proof.turns import turns


def twice_in_a_row(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.before, tuple) or not isinstance(found.after, tuple):
        return False
    return _turns_go_on(pair) and idempotent(pair.before, repeated(found.before, found.after))


def _turns_go_on(pair: Pair) -> bool:
    """Whether warpgroups that take turns still can, if there are any."""
    return not any(turns(pair.after))


def neighbours_commute(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.before, tuple) or not isinstance(found.after, tuple):
        return False
    nodes = swapped(found.before, found.after)
    return nodes is not None and commute(pair.before, *nodes)


def order_of_chunks(pair: Pair) -> bool:
    found = pair.only
    exchange = found.within(Exchange) if found else None
    if found is None or exchange is None or not isinstance(found.after, ChunkOrder):
        return False
    peers = visits_peers(found.after.ranks, pair.after.num_ranks)
    free = sends_unhindered(pair.before, exchange.name) and all_resident(pair.after)
    return peers and (free or not (any(residency(pair.after)) or any(no_circle(pair.after))))


def order_of_tiles(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.after, TileOrder | Die):
        return False
    if isinstance(found.after, Die):
        kernel = found.within(Kernel)
        role = kernel.compute if kernel is not None else None
        if role is None or {found.after.at(p, role.programs) for p in range(role.programs)} != set(
            range(role.programs)
        ):
            return False
    else:
        owner = found.within(ComputeRole)
        role = replace(owner, order=found.after) if owner is not None else None
        if role is None or not visits_every_tile(pair.after, role):
            return False
        last = role.body[-1]
        if role.prefetch and isinstance(last, IfOwn) and not own_tiles_last(role, last):
            return False
    return goes_on(pair.before, pair.after, role)


def order_of_library_calls(pair: Pair) -> bool:
    found = pair.only
    gemm = found.within(LibraryGemm) if found else None
    if found is None or gemm is None or not isinstance(found.after, RankOrder):
        return False
    unhindered = gemm.wait is None or sends_unhindered(pair.before, gemm.wait.exchange)
    whole = visits_all(found.after, pair.after.num_ranks)
    return whole and (unhindered or not any(no_circle(pair.after)))


def programs_of_a_loop(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "programs" or not isinstance(found.owner, ComputeRole):
        return False
    return all_resident(pair.after) and goes_on(pair.before, pair.after, found.owner)


def halves_of_tiles(pair: Pair) -> bool:
    """Halves make what whole tiles make, if nothing counts them; they wait for the same rows."""
    found = pair.only
    if found is None or found.field != "halved" or not isinstance(found.owner, ComputeRole):
        return False
    role = replace(found.owner, halved=found.after) if isinstance(found.after, int) else found.owner
    if not 0 <= role.halved <= role.num_tiles:
        return False
    wide = any(axis.name == role.order.minor and axis.tile >= 2 * SMALLEST_DOT for axis in role.axes)
    alike = not any(isinstance(step, Notify | IfOwn | SlotWait | SlotNotify) for step in role.body)
    uneven = any(wait.rows == role.order.minor for wait in waits_of(role.body))
    return wide and alike and not uneven and goes_on(pair.before, pair.after, found.owner)


def tiles_counted_late(pair: Pair) -> bool:
    """A tile that nothing counts cannot be counted late; else the words are raised in another order, and each is raised."""
    found = pair.only
    if found is None or found.field != "counts_late" or not isinstance(found.owner, ComputeRole):
        return False
    return found.owner.prefetch and goes_on(pair.before, pair.after, found.owner)


def warpgroups_in_turns(pair: Pair) -> bool:
    """Tiles of a program in turns are in an order that those one after the other have, too."""
    found = pair.only
    if found is None or found.field != "warpgroups" or not isinstance(found.owner, ComputeRole):
        return False
    return found.after == 1 or _turns_go_on(pair)


def programs_that_push(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "programs" or not isinstance(found.owner, CommRole):
        return False
    push = pair.before.exchange(found.owner.exchange).transfer is Transfer.PUSH
    return push and all_resident(pair.after)


def every_chunk_instead_of_some(pair: Pair) -> bool:
    found = pair.only
    role = found.within(ComputeRole) if found else None
    if found is None or role is None or not isinstance(found.owner, Wait):
        return False
    return found.field == "rows" and found.after == "" and goes_on(pair.before, pair.after, role)


def fewer_chunks(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "chunks" or not isinstance(found.owner, Exchange):
        return False
    fewer = isinstance(found.after, int) and 0 < found.after < found.owner.chunks
    roles = [kernel.compute for kernel in pair.before.kernels() if kernel.compute is not None]
    touching = [role for role in roles if any(wait.exchange == found.owner.name for wait in waits_of(role.body))]
    return fewer and all(goes_on(pair.before, pair.after, role) for role in touching)


def other_tiles(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "tile" or not isinstance(found.owner, Axis):
        return False
    size, axis, role = found.after, found.owner, found.within(ComputeRole)
    if not isinstance(size, int) or role is None or size & (size - 1) or not SMALLEST_DOT <= size <= LARGEST_TILE:
        return False
    if any(isinstance(step, UserBody) for step in role.body):
        return False  # a user's body may ask for more of its tiles
    new = replace(role, axes=tuple(replace(axis, tile=size) if other == axis else other for other in role.axes))
    if not visits_every_tile(pair.after, new) or not goes_on(pair.before, pair.after, role):
        return False
    by_descriptor = any(
        site.role == role and axis.name in site.node.index and site.node.access is Access.DESCRIPTOR
        for site in sites(pair.before, Operand)
    )
    return not by_descriptor or axis.segments == 1 or axis.extent % size == 0


def steps_of_a_reduction(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "extent" or not isinstance(found.owner, Axis):
        return False
    axis, role = found.owner, found.within(ComputeRole)
    if role is None or not isinstance(found.after, int) or axis.segments != 1 or not axis.tile:
        return False
    same = replace(axis, extent=found.after).tiles == axis.tiles
    operands = [s for s in sites(pair.before, Operand) if s.role == role and axis.name in s.node.index]
    named = {name for wait in waits_of(role.body) for name in (wait.slot, wait.rows)}
    named |= {name for notify in notifies_of(role.body) for name in (notify.slot, notify.rows)}
    return same and axis.name not in named and all(site.node.access is Access.DESCRIPTOR for site in operands)


def communication_first(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.before, tuple) or not isinstance(found.after, tuple):
        return False
    for position, kernel in enumerate(found.before):
        if isinstance(kernel, Kernel) and kernel.comm and len(found.after) > position + 1:
            alone, rest = found.after[position : position + 2]
            whole = (*found.before[:position], alone, rest, *found.before[position + 1 :])
            if isinstance(alone, Kernel) and alone.compute is None and found.after == whole:
                same = rest == replace(kernel, comm=tuple(role for role in kernel.comm if role not in alone.comm))
                feeds = any(maker(pair.before, role.exchange) is not None for role in alone.comm)
                waits = any(pair.before.exchange(role.exchange).slots for role in alone.comm)  # for items to be taken
                return same and set(alone.comm) <= set(kernel.comm) and not feeds and not waits
    return False


def forked_at_begin(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "after_source" or found.after is not False:
        return False
    assert isinstance(found.owner, CopyProgram)
    exchange = pair.before.exchange(found.owner.exchange)
    return exchange.transfer is Transfer.PULL or pair.before.buffer(exchange.source).memory is Memory.INPUT


def done_by_copy(pair: Pair) -> bool:
    found = pair.only
    return found is not None and isinstance(found.owner, Finish) and found.field == "by_copy" and found.after is True


def by_a_launch_of_its_own(pair: Pair) -> bool:
    found = pair.only
    return found is not None and found.field in ("within", "joined") and found.after is False
