"""What must stand between two events of a compiled thread, whatever the order of its source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilelink.compiled.events import STORAGE_BITS, Event, Kind
from tilelink.compiled.order import Misplaced


@dataclass(frozen=True, slots=True)
class Regions:
    """Allocations by number. `written`: by peers, streams or programs while the launch runs, so that only a wait tells what is
    there. `published`: read by these while it runs."""

    written: frozenset[int]
    published: frozenset[int]


def number_of(event: Event) -> int:
    """The allocation that is touched."""
    return event.point >> STORAGE_BITS


def unguarded(trace: Sequence[Event], regions: Regions, *, assembly: bool) -> Iterable[Misplaced]:
    """Pairs of events of one thread that lack the barrier, fence or wait that belongs between them. Outside of `assembly` a
    scalar access that acquires stands for the barrier behind it as well, which the compiler makes.

    A thread that waits or notifies does so for all threads of its program: between its access of the word and theirs of the
    data is a barrier. A bulk store is complete behind the wait for it. Packets, which are words, are loaded by
    puts alone. The asynchronous proxy sees what was waited for only
    behind a proxy fence.
    """
    awaited: Event | None = None  # the last wait that no barrier is behind
    unfenced: Event | None = None  # the first wait since the last proxy fence
    stored: Event | None = None  # the last store that no barrier is behind
    packed: Event | None = None  # the last packet that no barrier is behind
    bulk: Event | None = None  # the last published store through a descriptor that was not waited for
    for event in trace:
        if event.kind is Kind.BARRIER:
            awaited, stored, packed = None, None, None
        elif event.kind is Kind.FENCE:
            unfenced = None
        elif event.kind is Kind.DRAIN:
            stored, bulk = bulk, None
        elif event.kind is Kind.WORD:
            packed = event
        elif event.kind is Kind.LOAD and packed is not None and number_of(event) == number_of(packed):
            yield Misplaced(event, packed, "no barrier stands between packets and the put that reads them")
        elif event.kind is Kind.LOAD and number_of(event) in regions.written:
            if awaited is not None:
                yield Misplaced(event, awaited, "no barrier stands between a wait, which one thread does, and a load")
            if unfenced is not None and event.descriptor:
                yield Misplaced(event, unfenced, "no proxy fence stands between a wait and a load through a descriptor")
        elif event.kind is Kind.STORE:
            if not event.descriptor:
                stored = event
            elif number_of(event) in regions.published:
                bulk = event
        if event.kind.releases:
            if stored is not None:
                yield Misplaced(event, stored, "no barrier stands between a store and the notify that publishes it")
            if bulk is not None:
                yield Misplaced(event, bulk, "a store through a descriptor is not waited for before the notify")
        if event.kind.acquires:
            awaited, unfenced = event, unfenced or event
            if not assembly and isinstance(event.where, np.ndarray) and not event.where.ndim:
                awaited, stored = None, None
