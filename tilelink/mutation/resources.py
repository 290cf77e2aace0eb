"""Mutators of signals, buffers, exchanges and the machine: what exists, how large, who may touch it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.nodes import (
    Buffer,
    CommSms,
    CopyEngine,
    Exchange,
    Fused,
    Kind,
    Machine,
    Memory,
    Mover,
    Scope,
    Signal,
    Transfer,
)
from tilelink.ir.order import ChunkOrder, Nest
from tilelink.ir.schedule import Schedule
from tilelink.mutation.sites import Edits, Operator, Site, sites, variants


def signal_scope(schedule: Schedule) -> Edits:
    """A word of device memory instead of symmetric memory, and the other way round."""
    return variants(schedule, Signal, lambda site: (replace(site.node, scope=scope) for scope in Scope))


def signal_slots(schedule: Schedule) -> Edits:
    def change(site: Site[Signal]) -> Iterator[Signal]:
        slots = site.node.slots
        for other in (slots - 1, slots + 1, slots // 2):
            if other > 0:
                yield replace(site.node, slots=other)

    return variants(schedule, Signal, change)


def signal_aliases(schedule: Schedule) -> Edits:
    """Words that belong to another signal, wholly or by one."""

    def change(site: Site[Signal]) -> Iterator[Signal]:
        firsts = [signal.first for signal in schedule.signals if signal.scope is site.node.scope]
        for first in dict.fromkeys((*firsts, site.node.first - 1, site.node.first + 1)):
            if first >= 0:
                yield replace(site.node, first=first)

    return variants(schedule, Signal, change)


def swap_signals(schedule: Schedule) -> Edits:
    """The words of two signals of one scope exchanged."""
    found = list(sites(schedule, Signal))
    for one in found:
        for other in found[one.position + 1 :]:
            if one.node.scope is other.node.scope:
                signals = list(schedule.signals)
                signals[one.position] = replace(one.node, first=other.node.first)
                signals[other.position] = replace(other.node, first=one.node.first)
                yield f"{one.label} <-> {other.label}", replace(schedule, signals=tuple(signals))


def drop_signal(schedule: Schedule) -> Edits:
    for site in sites(schedule, Signal):
        yield site.label, site.drop()


def buffer_memory(schedule: Schedule) -> Edits:
    """A buffer that peers access in memory that they cannot reach."""
    return variants(
        schedule,
        Buffer,
        lambda site: [replace(site.node, memory=Memory.LOCAL)] if site.node.memory is Memory.SYMMETRIC else [],
    )


def smaller_buffer(schedule: Schedule) -> Edits:
    def change(site: Site[Buffer]) -> Iterator[Buffer]:
        shape = site.node.shape
        for dim, extent in enumerate(shape):
            for less in (extent - 1, extent // 2):
                if less > 0:
                    yield replace(site.node, shape=(*shape[:dim], less, *shape[dim + 1 :]))

    return variants(schedule, Buffer, change)


def narrower_buffer(schedule: Schedule) -> Edits:
    """Elements of another type of the same or half the size."""
    other = {
        dtype: next(name for name, size in DTYPE_BYTES.items() if name != dtype and size <= most)
        for dtype, most in DTYPE_BYTES.items()
    }
    return variants(schedule, Buffer, lambda site: [replace(site.node, dtype=other[site.node.dtype])])


def drop_buffer(schedule: Schedule) -> Edits:
    for site in sites(schedule, Buffer):
        yield site.label, site.drop()


def exchange_kind(schedule: Schedule) -> Edits:
    return variants(schedule, Exchange, lambda site: (replace(site.node, kind=kind) for kind in Kind))


def exchange_source(schedule: Schedule) -> Edits:
    return variants(
        schedule, Exchange, lambda site: (replace(site.node, source=buffer.name) for buffer in schedule.buffers)
    )


def exchange_target(schedule: Schedule) -> Edits:
    return variants(
        schedule, Exchange, lambda site: (replace(site.node, target=buffer.name) for buffer in schedule.buffers)
    )


def exchange_size(schedule: Schedule) -> Edits:
    """A row or a column of each part is left behind, or one too many is sent."""

    def change(site: Site[Exchange]) -> Iterator[Exchange]:
        for delta in (-1, 1):
            yield replace(site.node, rows=site.node.rows + delta)
            yield replace(site.node, cols=site.node.cols + delta)

    return variants(schedule, Exchange, change)


def chunks_without_their_signals(schedule: Schedule) -> Edits:
    def change(site: Site[Exchange]) -> Iterator[Exchange]:
        for chunks in (site.node.chunks - 1, site.node.chunks + 1, 2 * site.node.chunks):
            if 0 < chunks <= site.node.rows:
                yield replace(site.node, chunks=chunks)

    return variants(schedule, Exchange, change)


def another_mover(schedule: Schedule) -> Edits:
    """With launches and signals as they were."""

    def change(site: Site[Exchange]) -> Iterator[Exchange]:
        movers: list[Mover] = [CopyEngine(), Fused(), CommSms(1), CommSms(2), CommSms(3)]
        for mover in movers:
            yield replace(site.node, mover=mover)

    return variants(schedule, Exchange, change)


def another_transfer(schedule: Schedule) -> Edits:
    return variants(schedule, Exchange, lambda site: (replace(site.node, transfer=transfer) for transfer in Transfer))


def nest_of_chunks(schedule: Schedule) -> Edits:
    return variants(schedule, ChunkOrder, lambda site: (replace(site.node, nest=nest) for nest in Nest))


def arrival_at_the_end(schedule: Schedule) -> Edits:
    """No signal for a target that is read in the call, or one for what is complete at its end."""
    return variants(schedule, Exchange, lambda site: [replace(site.node, met=not site.node.met)])


def own_copied(schedule: Schedule) -> Edits:
    return variants(schedule, Exchange, lambda site: [replace(site.node, own_copied=not site.node.own_copied)])


def drop_exchange(schedule: Schedule) -> Edits:
    for site in sites(schedule, Exchange):
        yield site.label, site.drop()


def machine_ranks(schedule: Schedule) -> Edits:
    def change(site: Site[Machine]) -> Iterator[Machine]:
        for num_ranks in (site.node.num_ranks - 1, site.node.num_ranks + 1):
            yield replace(site.node, num_ranks=num_ranks)

    return variants(schedule, Machine, change)


def machine_sms(schedule: Schedule) -> Edits:
    """A machine with fewer SMs than the schedule counts on."""

    def change(site: Site[Machine]) -> Iterator[Machine]:
        resident = max([kernel.programs for kernel in schedule.kernels()], default=1)
        for num_sms in (site.node.num_sms // 2, resident - 1, 1):
            if num_sms > 0:
                yield replace(site.node, num_sms=num_sms)

    return variants(schedule, Machine, change)


def machine_stream_waits(schedule: Schedule) -> Edits:
    return variants(schedule, Machine, lambda site: [replace(site.node, stream_waits=not site.node.stream_waits)])


def machine_without_descriptors(schedule: Schedule) -> Edits:
    return variants(schedule, Machine, lambda site: [replace(site.node, tensor_descriptors=False)])


OPERATORS: tuple[Operator, ...] = (
    signal_scope,
    signal_slots,
    signal_aliases,
    swap_signals,
    drop_signal,
    buffer_memory,
    smaller_buffer,
    narrower_buffer,
    drop_buffer,
    exchange_kind,
    exchange_source,
    exchange_target,
    exchange_size,
    chunks_without_their_signals,
    another_mover,
    another_transfer,
    nest_of_chunks,
    own_copied,
    arrival_at_the_end,
    drop_exchange,
    machine_ranks,
    machine_sms,
    machine_stream_waits,
    machine_without_descriptors,
)
