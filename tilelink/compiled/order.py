"""Is the order of a compiled trace one that the trace of the source allows?

Each compiled event is matched with the source's: the nth access of an address with the nth access there. Loads of memory that
is written during a call, stores and signals may then not change places as the rules below say; other events may.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tilelink.compiled.events import Event, Kind


@dataclass(frozen=True, slots=True)
class Misplaced:
    """`early` comes before `late` in the compiled kernel, and behind it in the source."""

    early: Event
    late: Event
    rule: str


def _waits(event: Event) -> bool:
    return event.kind.acquires


def _raises(event: Event) -> bool:
    return event.kind.releases


def _loads(event: Event) -> bool:
    return event.kind is Kind.LOAD


def _stores(event: Event) -> bool:
    return event.kind is Kind.STORE


def _by_descriptor(event: Event) -> bool:
    return event.descriptor and event.kind in (Kind.LOAD, Kind.STORE)


def _touches(event: Event) -> bool:
    return event.kind in (Kind.LOAD, Kind.STORE)


def _kind(kind: Kind) -> Callable[[Event], bool]:
    return lambda event: event.kind is kind


Rule = tuple[Callable[[Event], bool], Callable[[Event], bool], str]

# what comes first in the source, what comes second there, and what is wrong if they change places
RULES: tuple[Rule, ...] = (
    (_waits, _loads, "what is loaded may not be there yet: the load has overtaken the wait for it"),
    (_waits, _stores, "what is overwritten may still be read: the store has overtaken the wait for its reader"),
    (_waits, _kind(Kind.FENCE), "the fence has overtaken the wait behind which it stands"),
    (_kind(Kind.FENCE), _by_descriptor, "the access through a descriptor has overtaken its proxy fence"),
    (_stores, _raises, "the notify has overtaken a store that it publishes"),
    (_loads, _raises, "the notify has overtaken a load, whose source a peer may overwrite now"),
    (_stores, _kind(Kind.DRAIN), "the wait for bulk stores has overtaken one of them"),
    (_kind(Kind.DRAIN), _raises, "the notify has overtaken the wait for bulk stores"),
    (_kind(Kind.BARRIER), _raises, "the notify has overtaken the barrier behind the stores of other threads"),
    (_stores, _kind(Kind.BARRIER), "the barrier has overtaken a store that is published behind it"),
    (_waits, _waits, "two waits have changed places"),
    (_raises, _raises, "two notifies have changed places"),
    (_waits, _raises, "the notify has overtaken a wait"),
)
# a tile that is begun before the one before it is stored waits before that one is counted
AHEAD: Rule = (_raises, _waits, "the wait has overtaken a notify, by which ranks may wait in a circle")


def misplaced(
    source: Sequence[Event], compiled: Sequence[Event], *, waits_ahead: bool, complete: bool, whole: bool
) -> Iterable[Misplaced]:
    """Pairs that have changed places against a rule. `waits_ahead`: a wait may come before a notify of the tile before.
    `complete`: both traces go to the end of the program. `whole`: they are of all its threads, so that an event of the source
    that the compiled program lacks is one too."""
    rules = RULES if waits_ahead else (*RULES, AHEAD)
    numbers = matched(source, compiled, complete=complete)
    latest: list[tuple[int, Event] | None] = [None] * len(rules)  # of each rule's second kind, the one furthest ahead
    for event, number in zip(compiled, numbers, strict=True):
        if number is None:
            continue
        for at, (first, second, text) in enumerate(rules):
            ahead = latest[at]
            if ahead is not None and ahead[0] > number and first(event):
                yield Misplaced(ahead[1], event, text)
            if second(event) and (ahead is None or number > ahead[0]):
                latest[at] = number, event
    if complete and whole:
        yield from _missing(source, compiled, numbers)


def _missing(source: Sequence[Event], compiled: Sequence[Event], numbers: Sequence[int | None]) -> Iterable[Misplaced]:
    found = set(numbers)
    for number, event in enumerate(source):
        if event.kind not in (Kind.LOAD, Kind.STORE) and number not in found:
            yield Misplaced(event, event, f"the {event.kind.value} is not in the compiled kernel")


def matched(source: Sequence[Event], compiled: Sequence[Event], *, complete: bool) -> list[int | None]:
    """For each compiled event the number of the source's that it is, None if there is none. Events without an address are
    matched in their order, the others by address. The compiler drops loads that nothing depends on: which are left of several
    loads of one address is not known where traces are `complete` and one has fewer."""
    points = np.unique([event.point for event in compiled if event.where is not None])
    places: dict[tuple[Kind, int], list[int]] = defaultdict(list)
    for number, event in enumerate(source):
        for point in event.covered(points) if event.where is not None else (0,):
            places[event.kind, int(point)].append(number)
    taken: dict[tuple[Kind, int], int] = defaultdict(int)
    found: list[int | None] = []
    left = Counter((event.kind, event.point) for event in compiled)
    for event in compiled:
        key = event.kind, event.point
        known = places.get(key, [])
        if event.kind is Kind.LOAD and complete and left[key] < len(known):
            known = []
        # where all entries of a table are taken to be one, lanes of a move have one address
        lanes = left[key] // len(known) if complete and known and left[key] % len(known) == 0 else 1
        number = taken[key] // lanes
        found.append(known[number] if number < len(known) else None)
        taken[key] += 1
    return found
