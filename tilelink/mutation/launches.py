"""Mutators of launches: what the host enqueues, in which order, on which stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.calls import Collective, LibraryGemm, WordCollective
from tilelink.ir.nodes import AwaitPeers, Begin, CopyOwn, CopyProgram, Finish, Kernel, Publish, TellPlace
from tilelink.ir.schedule import Schedule
from tilelink.ir.word import Protocol
from tilelink.mutation.sites import Edits, Operator, Site, sites, variants

_BEGINNINGS = (Begin, AwaitPeers)
_COPIES = (CopyProgram, Publish, TellPlace, CopyOwn)
_COMPUTE = (Kernel, LibraryGemm, Collective)


def drop_begin(schedule: Schedule) -> Edits:
    for kind in _BEGINNINGS:
        for site in sites(schedule, kind):
            yield site.label, site.drop()


def drop_finish(schedule: Schedule) -> Edits:
    """Without the trailing synchronisation."""
    for site in sites(schedule, Finish):
        yield site.label, site.drop()


def drop_copy(schedule: Schedule) -> Edits:
    for kind in _COPIES:
        for site in sites(schedule, kind):
            yield site.label, site.drop()


def drop_compute(schedule: Schedule) -> Edits:
    for kind in _COMPUTE:
        for site in sites(schedule, kind):
            yield site.label, site.drop()


def duplicate_begin(schedule: Schedule) -> Edits:
    for kind in _BEGINNINGS:
        for site in sites(schedule, kind):
            yield site.label, site.put_all(site.node, site.node)


def duplicate_finish(schedule: Schedule) -> Edits:
    for site in sites(schedule, Finish):
        yield site.label, site.put_all(site.node, site.node)


def duplicate_copy(schedule: Schedule) -> Edits:
    for kind in _COPIES:
        for site in sites(schedule, kind):
            yield site.label, site.put_all(site.node, site.node)


def duplicate_compute(schedule: Schedule) -> Edits:
    for kind in _COMPUTE:
        for site in sites(schedule, kind):
            yield site.label, site.put_all(site.node, site.node)


def swap_launches(schedule: Schedule) -> Edits:
    """Two neighbours: a producer behind the kernel that spins for it, a reader before its copy."""
    for kind in (*_BEGINNINGS, *_COPIES, *_COMPUTE):
        for site in sites(schedule, kind):
            if site.follower is not None:
                yield f"{site.label} <-> {type(site.follower).__name__}", site.swap_with_next()


def early_finish(schedule: Schedule) -> Edits:
    """`done` before the last computation has been launched."""
    last = len(schedule.launches) - 1
    for site in sites(schedule, Finish):
        for position in range(1, last):
            others = [launch for launch in schedule.launches if launch is not site.node]
            others.insert(position, site.node)
            yield f"{site.label}: at {position}", replace(schedule, launches=tuple(others))


def copy_another_exchange(schedule: Schedule) -> Edits:
    names = [exchange.name for exchange in schedule.exchanges]
    yield from variants(schedule, CopyProgram, lambda site: (replace(site.node, exchange=name) for name in names))
    yield from variants(schedule, Publish, lambda site: (replace(site.node, exchange=name) for name in names))
    yield from variants(schedule, TellPlace, lambda site: (replace(site.node, exchange=name) for name in names))
    yield from variants(schedule, CopyOwn, lambda site: (replace(site.node, exchange=name) for name in names))


def copies_on_one_stream(schedule: Schedule) -> Edits:
    """Two exchanges share a stream, so that one holds up the other."""
    names = [launch.stream for launch in schedule.launches if isinstance(launch, CopyProgram)]
    return variants(schedule, CopyProgram, lambda site: (replace(site.node, stream=name) for name in names))


def copy_after_source(schedule: Schedule) -> Edits:
    return variants(schedule, CopyProgram, lambda site: [replace(site.node, after_source=not site.node.after_source)])


def publish_without_or_with_a_copy(schedule: Schedule) -> Edits:
    def change(site: Site[Publish]) -> Iterator[Publish]:
        source = schedule.exchange(site.node.exchange).source
        shape = schedule.buffer(source).shape
        like = [buffer.name for buffer in schedule.buffers if buffer.shape == shape and buffer.name != source]
        for name in ("", *like):
            yield replace(site.node, copy_from=name)

    return variants(schedule, Publish, change)


def split_of_library_matmul(schedule: Schedule) -> Edits:
    names = ["", *(exchange.name for exchange in schedule.exchanges)]
    return variants(schedule, LibraryGemm, lambda site: (replace(site.node, split=name) for name in names))


def count_of_library_matmul(schedule: Schedule) -> Edits:
    names = ["", *(signal.name for signal in schedule.signals)]
    return variants(schedule, LibraryGemm, lambda site: (replace(site.node, count=name) for name in names))


def collective_function(schedule: Schedule) -> Edits:
    names = ("all_gather", "reduce_scatter", "all_reduce")
    return variants(schedule, Collective, lambda site: (replace(site.node, function=name) for name in names))


def collective_buffers(schedule: Schedule) -> Edits:
    """Another operand or another destination of a collective."""

    def change(site: Site[Collective]) -> Iterator[Collective]:
        for buffer in schedule.buffers:
            yield replace(site.node, out=buffer.name)
            yield replace(site.node, operand=buffer.name)

    return variants(schedule, Collective, change)


def programs_of_a_collective(schedule: Schedule) -> Edits:
    """More than there are SMs, or none."""
    sms = schedule.machine.num_sms
    return variants(
        schedule, WordCollective, lambda site: (replace(site.node, programs=n) for n in (0, sms * site.node.per_sm + 1))
    )


def words_of_another_protocol(schedule: Schedule) -> Edits:
    """Numbered where they are to be emptied, or the other way; in one shot more."""

    def change(site: Site[WordCollective]) -> Iterator[WordCollective]:
        for protocol in set(Protocol) - {site.node.protocol}:
            yield replace(site.node, protocol=protocol)
        yield replace(site.node, shots=3 - site.node.shots)

    return variants(schedule, WordCollective, change)


def finish_by_copy(schedule: Schedule) -> Edits:
    """Atomics over a link that has none, or copies where they are not needed."""
    return variants(schedule, Finish, lambda site: [replace(site.node, by_copy=not site.node.by_copy)])


def finish_that_turns(schedule: Schedule) -> Edits:
    """Goes to the next epoch beside `begin`, or leaves it to a `begin` that is not there."""
    return variants(schedule, Finish, lambda site: [replace(site.node, turns=not site.node.turns)])


def finish_that_meets(schedule: Schedule) -> Edits:
    """Waits for peers that others have waited for as well, or lets a call end before they have."""
    return variants(schedule, Finish, lambda site: [replace(site.node, meets=not site.node.meets)])


def within_a_kernel(schedule: Schedule) -> Edits:
    """Carried out by programs of a kernel, or by a launch of its own."""
    yield from variants(schedule, AwaitPeers, lambda site: [replace(site.node, within=not site.node.within)])
    yield from variants(schedule, Publish, lambda site: [replace(site.node, within=not site.node.within)])
    yield from variants(schedule, WordCollective, lambda site: [replace(site.node, within=not site.node.within)])
    yield from variants(schedule, Finish, lambda site: [replace(site.node, within=not site.node.within)])


def joined_kernel(schedule: Schedule) -> Edits:
    """Programs go on with a kernel that needs a launch of its own, or stop before one for which nobody starts others."""
    return variants(schedule, Kernel, lambda site: [replace(site.node, joined=not site.node.joined)])


def copies_that_await_done(schedule: Schedule) -> Edits:
    return variants(schedule, CopyProgram, lambda site: [replace(site.node, awaits_done=not site.node.awaits_done)])


def copies_that_tell_their_end(schedule: Schedule) -> Edits:
    """A program ends the call without knowing of copies that are still made, or a stream tells what nobody has asked for."""
    return variants(schedule, CopyProgram, lambda site: [replace(site.node, tells_end=not site.node.tells_end)])


OPERATORS: tuple[Operator, ...] = (
    drop_begin,
    drop_finish,
    drop_copy,
    drop_compute,
    duplicate_begin,
    duplicate_finish,
    duplicate_copy,
    duplicate_compute,
    swap_launches,
    early_finish,
    copy_another_exchange,
    copies_on_one_stream,
    copy_after_source,
    publish_without_or_with_a_copy,
    split_of_library_matmul,
    count_of_library_matmul,
    collective_function,
    collective_buffers,
    programs_of_a_collective,
    words_of_another_protocol,
    finish_by_copy,
    finish_that_turns,
    finish_that_meets,
    within_a_kernel,
    joined_kernel,
    copies_that_await_done,
    copies_that_tell_their_end,
)
