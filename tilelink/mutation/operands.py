"""Mutators of operands: which buffer a tile reads or writes, which part of it, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, Notify, Operand, Store
from tilelink.mutation.sites import Edits, Operator, Site, sites, variants


def another_buffer(schedule: Schedule) -> Edits:
    """A buffer whose innermost dimensions are as many and as large, or that has the same name but for its end."""

    def change(site: Site[Operand]) -> Iterator[Operand]:
        for name in _like(schedule, site.node):
            yield replace(site.node, buffer=name)

    return variants(schedule, Operand, change)


def another_part(schedule: Schedule) -> Edits:
    """The part of another axis' segment, or none: the first part for every tile."""

    def change(site: Site[Operand]) -> Iterator[Operand]:
        for axis in ("", *_axes(site)):
            yield replace(site.node, slot=axis)

    return variants(schedule, Operand, change)


def another_own_buffer(schedule: Schedule) -> Edits:
    """The own part elsewhere, or in the target like every other part, or in a buffer of its own where it is not."""

    def change(site: Site[Operand]) -> Iterator[Operand]:
        if _loaded_part(site):
            for name in ("", *_like(schedule, site.node)):
                yield replace(site.node, own=name)

    return variants(schedule, Operand, change)


def own_slots(schedule: Schedule) -> Edits:
    """The own part taken for all parts, or the other way round."""
    other = {1: schedule.num_ranks}
    return variants(
        schedule,
        Operand,
        lambda site: [replace(site.node, own_slots=other.get(site.node.own_slots, 1))] if site.node.own else [],
    )


def local_positions(schedule: Schedule) -> Edits:
    """Positions along an axis from the start of the segment instead of the tensor, or the other way round."""

    def change(site: Site[Operand]) -> Iterator[Operand]:
        local = site.node.local
        cut = {axis.name for axis in site.role.axes if axis.segments > 1} if site.role else set()
        for axis in site.node.index:
            if axis in cut or axis in local:
                others = tuple(name for name in local if name != axis)
                yield replace(site.node, local=others if axis in local else (*local, axis))

    return variants(schedule, Operand, change)


def another_window(schedule: Schedule) -> Edits:
    """A window that begins elsewhere along one dimension, or the whole buffer."""

    def change(site: Site[Operand]) -> Iterator[Operand]:
        window = site.node.window
        if window:
            yield replace(site.node, window=())
        for dim, (first, end) in enumerate(window):
            for start in {0, first + 1, end} - {first}:
                moved = (start, start + end - first)
                yield replace(site.node, window=(*window[:dim], moved, *window[dim + 1 :]))

    return variants(schedule, Operand, change)


def remote_or_here(schedule: Schedule) -> Edits:
    return variants(
        schedule,
        Operand,
        lambda site: [replace(site.node, remote=not site.node.remote)] if _loaded_part(site) else [],
    )


def transposed(schedule: Schedule) -> Edits:
    return variants(schedule, Operand, lambda site: [replace(site.node, index=site.node.index[::-1])])


def access_of_loads(schedule: Schedule) -> Edits:
    """Descriptors instead of pointers, and the other way round, where a tile is read or stored without a signal."""
    for site in sites(schedule, Operand):
        if site.role is not None and not _signalled(site):
            other = Access.POINTER if site.node.access is Access.DESCRIPTOR else Access.DESCRIPTOR
            yield f"{site.label}: by {other.value}", site.put(replace(site.node, access=other))


def descriptor_for_a_signalled_store(schedule: Schedule) -> Edits:
    """The store is asynchronous then, and the notify does not wait for it."""
    for site in sites(schedule, Operand):
        if _signalled(site) and len(site.node.index) == 2:
            yield site.label, site.put(replace(site.node, access=Access.DESCRIPTOR))


def _loaded_part(site: Site[Operand]) -> bool:
    return bool(site.node.slot) and not isinstance(site.ancestors[-1], Store)


def _signalled(site: Site[Operand]) -> bool:
    """Whether it is stored to by a step that a notify follows."""
    store = site.ancestors[-1]
    if not isinstance(store, Store):
        return False
    steps = next(s for s in sites(site.schedule, Store) if s.path == site.path[:-1])
    return isinstance(steps.follower, Notify)


def _axes(site: Site[Operand]) -> tuple[str, ...]:
    return tuple(axis.name for axis in site.role.axes) if site.role else ()


def _like(schedule: Schedule, operand: Operand) -> Iterator[str]:
    dims = len(operand.index)
    wanted = schedule.buffer(operand.buffer).shape[-dims:]
    for buffer in schedule.buffers:
        stem = operand.buffer.rsplit("_", 1)[0]
        if buffer.shape[-dims:] == wanted or buffer.name.rsplit("_", 1)[0] == stem:
            yield buffer.name


OPERATORS: tuple[Operator, ...] = (
    another_buffer,
    another_part,
    another_own_buffer,
    own_slots,
    local_positions,
    another_window,
    remote_or_here,
    transposed,
    access_of_loads,
    descriptor_for_a_signalled_store,
)
