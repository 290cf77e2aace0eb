"""When a mutated schedule does what the original does: one predicate a reason, none broader than its reason.

All of them take it that the original is right, and ask whether the difference can matter. "Do" means: the same results, no
race, no hang, on a machine as described; not the same time, nor the same rounding of sums.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import lowering
from tilelink.ir.nodes import (
    Axis,
    CommRole,
    ComputeRole,
    CopyProgram,
    Exchange,
    Finish,
    Kernel,
    LibraryGemm,
    Machine,
    Memory,
    Publish,
    Scope,
    Signal,
    Transfer,
)
from tilelink.ir.order import ChunkOrder, Die, RankOrder, TileOrder
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import Access, IfOwn, Operand, Place, Store, UserBody, Wait
from tilelink.mutation.commuting import commute, idempotent
from tilelink.mutation.differences import Difference, differences, repeated, swapped
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
from tilelink.mutation.sites import sites
from tilelink.proof.orders import own_tiles_last
from tilelink.proof.progress import no_circle, residency

_LARGEST_TILE = 256  # elements of a descriptor's block along one axis


@dataclass(frozen=True, slots=True)
class Pair:
    """Original and mutant, and what they differ in."""

    before: Schedule
    after: Schedule
    found: tuple[Difference, ...]

    @property
    def only(self) -> Difference | None:
        return self.found[0] if len(self.found) == 1 else None


Holds = Callable[[Pair], bool]


def same_text(pair: Pair) -> bool:
    machines = replace(pair.after.machine, stream_waits=pair.before.machine.stream_waits), pair.before.machine
    if machines[0] != machines[1]:
        return False
    try:
        return _code(pair.before) == _code(pair.after)
    except Exception:
        return False  # what cannot be lowered is no equivalent


@lru_cache(maxsize=4)
def _code(schedule: Schedule) -> str:
    """What the emitted file does: its syntax tree without comments, docstrings and the hash of the schedule; and without
    fabric and self-check, which are made of the spec alone."""
    tree = ast.parse(lowering.emit(schedule).partition("# ---- fabric")[0])
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0].value.value = ""
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SCHEDULE":
            node.value = ast.Constant("")
    return ast.dump(tree)


def twice_in_a_row(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.before, tuple) or not isinstance(found.after, tuple):
        return False
    return idempotent(pair.before, repeated(found.before, found.after))


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


def programs_that_push(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "programs" or not isinstance(found.owner, CommRole):
        return False
    push = pair.before.exchange(found.owner.exchange).transfer is Transfer.PUSH
    return push and all_resident(pair.after)


def signals_renamed(pair: Pair) -> bool:
    if replace(pair.after, signals=pair.before.signals) != pair.before:
        return False
    if len(pair.after.signals) != len(pair.before.signals):
        return False
    for one, other in zip(pair.before.signals, pair.after.signals, strict=True):
        if replace(other, first=one.first) != one:
            return False
    return _disjoint(pair.after, local=True) and _disjoint(pair.after, local=False)


def _disjoint(schedule: Schedule, *, local: bool) -> bool:
    """No two local signals share a word, or no two that peers raise, and all words are among those that are allocated."""
    found = sorted((s.first, s.first + s.slots) for s in schedule.signals if (s.scope is Scope.LOCAL) is local)
    total = sum(end - first for first, end in found)
    ends = [0, *(end for _, end in found)]
    return all(first >= end for (first, _), end in zip(found, ends, strict=False)) and ends[-1] <= total


def words_to_spare(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "slots" or not isinstance(found.owner, Signal):
        return False
    signal = found.owner
    local = signal.scope is Scope.LOCAL
    last = all(other.first <= signal.first for other in pair.before.signals if (other.scope is Scope.LOCAL) is local)
    return isinstance(found.after, int) and found.after > signal.slots and last


def fence_to_spare(pair: Pair) -> bool:
    found = pair.only
    return found is not None and isinstance(found.owner, Wait) and found.field == "fence" and found.after is True


def pointer_for_descriptor(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.owner, Operand) or found.after is not Access.POINTER:
        return False
    role = found.within(ComputeRole)
    return role is not None and all(
        axis.segments == 1 or axis.extent % axis.tile == 0
        for axis in role.axes
        if axis.name in found.owner.index and axis.tile
    )


def descriptor_for_an_output(pair: Pair) -> bool:
    found = pair.only
    if found is None or not isinstance(found.owner, Operand) or found.after is not Access.DESCRIPTOR:
        return False
    role, store = found.within(ComputeRole), found.within(Store)
    if role is None or store is None or store.place is not Place.HERE:
        return False
    buffer, axes = pair.before.buffer(found.owner.buffer), [role.axis(name) for name in found.owner.index if name]
    whole = all(axis.extent % axis.tile == 0 and axis.tile <= _LARGEST_TILE for axis in axes if axis.tile)
    even = len(axes) == 2 and buffer.shape[-1] * DTYPE_BYTES[buffer.dtype] % 16 == 0
    fresh = buffer.memory is Memory.OUTPUT and not found.owner.slot
    return fresh and whole and even and pair.before.machine.tensor_descriptors


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
    if not isinstance(size, int) or role is None or size & (size - 1) or not 16 <= size <= _LARGEST_TILE:
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


def own_part_of_the_input(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "own" or not isinstance(found.owner, Operand):
        return False
    return any(
        isinstance(launch, Publish)
        and launch.copy_from == found.after
        and pair.before.exchange(launch.exchange).source == found.before
        for launch in pair.before.launches
    )


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
    return found is not None and found.field == "within" and found.after is False


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
                return same and set(alone.comm) <= set(kernel.comm) and not feeds
    return False


def fewer_sms_are_enough(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "num_sms" or not isinstance(found.owner, Machine):
        return False
    return all_resident(pair.after)


def waits_by_a_program(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "stream_waits" or not isinstance(found.owner, Machine):
        return False
    return found.after is False and all_resident(pair.after)


def descriptors_not_used(pair: Pair) -> bool:
    found = pair.only
    if found is None or found.field != "tensor_descriptors" or not isinstance(found.owner, Machine):
        return False
    return all(site.node.access is Access.POINTER for site in sites(pair.before, Operand))


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


RULES: tuple[tuple[Holds, str], ...] = (
    (twice_in_a_row, "a step that only waits, or that writes what is there already, may be done twice."),
    (neighbours_commute, "neither neighbour reads or orders what the other one writes."),
    (
        order_of_chunks,
        "all peers are served once, by copies of data that comes in any order, or else no circle of waits arises.",
    ),
    (
        order_of_tiles,
        "every tile is visited once, and the loop goes on: nothing holds it up, or else no circle of waits arises.",
    ),
    (
        order_of_library_calls,
        "every part is computed once, and what is waited for comes in any order, or else no circle of waits arises.",
    ),
    (
        programs_of_a_loop,
        "any number of programs shares out the same tiles, those that wait are resident, and no circle arises.",
    ),
    (
        programs_that_push,
        "shares of a chunk and the count that completes it are both spelled from the number of programs.",
    ),
    (signals_renamed, "words are known by first and slot only: ranges that are apart and allocated are other names."),
    (words_to_spare, "words behind the last signal are cleared and read by nobody."),
    (fence_to_spare, "a fence only adds an order."),
    (pointer_for_descriptor, "masked pointers reach the elements that a descriptor reaches, and need less ordering."),
    (descriptor_for_an_output, "no signal covers an output, and the end of the kernel waits for stores in flight."),
    (every_chunk_instead_of_some, "the wait covers more, and all of that comes whatever the loop does."),
    (
        fewer_chunks,
        "waits, counts and copies are all spelled from the number of chunks, for which there are words enough.",
    ),
    (
        other_tiles,
        "waits, counts, masks and loops are all spelled from the tile's extent, which is free within limits.",
    ),
    (own_part_of_the_input, "the shared copy of the own part holds what the input holds."),
    (forked_at_begin, "an input is there before begin, and what is pulled is waited for chunk by chunk."),
    (done_by_copy, "a copy behind the last launch on the stream writes the epoch that the kernel writes."),
    (by_a_launch_of_its_own, "a launch right before or behind the kernel does what programs of it would do."),
    (communication_first, "its data needs no tile of this launch, so it may be done before the launch starts."),
    (fewer_sms_are_enough, "the machine still holds every program that waits together with what it waits for."),
    (
        waits_by_a_program,
        "a program that waits holds up its stream as the stream's own wait does, and there is an SM for it.",
    ),
    (descriptors_not_used, "no operand is addressed by a descriptor."),
    (steps_of_a_reduction, "only descriptors run along the axis, in as many steps, and clip at the end of the buffer."),
    (same_text, "both are lowered to the same code, so no machine can tell them apart."),  # last: it is slow
)


def compared(before: Schedule, after: Schedule) -> Pair:
    return Pair(before, after, differences(before, after))
