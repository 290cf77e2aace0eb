"""A bounded record of what synchronised and what was accessed last: the table of a counterexample.

Events are kept as they are and put into words only when they are shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilelink.emulator.errors import Race
from tilelink.emulator.events import Access, Acquired, Barrier, Fence, Kind, Released, Semantic, Via
from tilelink.emulator.place import NOWHERE, Place
from tilelink.emulator.races.fences import NoOrder, meaning
from tilelink.emulator.touch import Touch, describe_access

if TYPE_CHECKING:
    from tilelink.emulator.events import Event

_SYNCHRONISATIONS = 1 << 14
_DATA = 1 << 9  # each holds the addresses of a tile
_OF_STREAMS = (Via.COPY, Via.STREAM)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `number` counts all events of the world from 1, as `Touch.number` does."""

    number: int
    rank: int
    task: str
    place: Place  # NOWHERE for launches, ends and events between streams
    text: str

    def __str__(self) -> str:
        where = f" at {_short(self.place)}" if self.place is not NOWHERE else ""
        return f"{self.number:>7}  rank {self.rank}  {self.task}: {self.text}{where}"


class Trace:
    """Observes a world from its first event on; keeps the last `synchronisations` and the last `data` accesses.

    CTA barriers are left out. Of the polls of one word that follow each other, only the last is kept: the one that ended
    the wait, or after which the task is still waiting.
    """

    def __init__(self, synchronisations: int = _SYNCHRONISATIONS, data: int = _DATA) -> None:
        self.events = 0  # told so far
        self._order: deque[list[tuple[int, Event]]] = deque(maxlen=synchronisations)  # an emptied one is superseded
        self._data: deque[tuple[int, Access]] = deque(maxlen=data)
        self._polls: dict[int, list[tuple[int, Event]]] = {}  # by task: its last event, if that was a poll

    def observe(self, event: Event) -> None:
        """Take note of an event."""
        self.events += 1
        match event:
            case Barrier():
                return
            case Access() if not _synchronises(event):
                self._data.append((self.events, event))
                self._polls.pop(event.task.number, None)
            case Fence(_, text) if isinstance(meaning(text), NoOrder):
                return
            case _:
                self._keep(event)

    def around(self, about: Race | Iterable[int], rows: int = 16) -> tuple[Row, ...]:
        """The last `rows` rows that concern a race, or the tasks with these numbers, in the order in which they happened.

        Those are what the tasks did to synchronise, who raised the words that they waited for, and the accesses of the
        race, or the last data accesses of the tasks.
        """
        touches = (about.facts["first"], about.facts["second"]) if isinstance(about, Race) else ()
        touched = tuple(touch for touch in touches if isinstance(touch, Touch))
        tasks = {touch.task_number for touch in touched}
        if not isinstance(about, Race):
            tasks = set(about)
        events = [kept[0] for kept in self._order if kept]
        awaited = {word for _, event in events if _task(event) in tasks for word in _awaited(event)}
        chosen = {
            number: _row(number, event)
            for number, event in events
            if _task(event) in tasks or (isinstance(event, Access) and event.changed and event.start in awaited)
        }
        if touched:
            ends = {touch.number: _row_of_touch(touch) for touch in touched}
        else:
            own = [(number, access) for number, access in self._data if access.task.number in tasks]
            ends = {number: _row(number, access) for number, access in own[-max(1, rows // 4) :]}
        room = max(0, rows - len(ends))
        latest = sorted(number for number in chosen if number not in ends)
        shown = {number: chosen[number] for number in latest[len(latest) - room :]} if room else {}
        return tuple(row for _, row in sorted((shown | ends).items(), key=lambda pair: pair[0]))

    def _keep(self, event: Event) -> None:
        number = _task(event)
        kept: list[tuple[int, Event]] = [(self.events, event)]
        before = self._polls.pop(number, None)
        if isinstance(event, Access) and not event.changed:
            if before is not None and _same_word(before[0][1], event):
                before.clear()
            self._polls[number] = kept
        self._order.append(kept)


def _short(place: Place) -> str:
    """`ag_gemm.py:70 in notify < 145 in send`: the file once, then callers by line."""
    text, caller = str(replace(place, caller=None)), place.caller
    while caller is not None:
        same_file = caller.file == place.file and caller.line
        text += f" < {caller.line} in {caller.function}" if same_file else f" < {replace(caller, caller=None)}"
        caller = caller.caller
    return text


def _task(event: Event) -> int:
    return event.task.number


def _synchronises(access: Access) -> bool:
    """Whether it may be part of a synchronisation: it has the value of a word, or moves data by a copy engine."""
    if access.via in (Via.COPY, Via.PUT):
        return access.kind is Kind.STORE
    return access.value is not None or access.semantic not in (Semantic.NONE, Semantic.RELAXED)


def _same_word(before: Event, event: Access) -> bool:
    return isinstance(before, Access) and (before.start, before.place) == (event.start, event.place)


def _awaited(event: Event) -> tuple[int, ...]:
    """The word that an event reads to wait for."""
    if isinstance(event, Access) and event.kind is not Kind.STORE and not event.changed:
        return (event.start,)
    return ()


def _row(number: int, event: Event) -> Row:
    place = event.place if isinstance(event, (Access, Barrier, Fence)) else NOWHERE
    return Row(number, event.task.rank, event.task.name, place, _text(event))


def _row_of_touch(touch: Touch) -> Row:
    atomic = "changes" if touch.changed else "polls"
    text = f"{touch.kind.value}s {touch.what} ({touch.via.value})".replace("atomics", atomic)
    return Row(touch.number, touch.rank, touch.task, touch.place, text)


def _text(event: Event) -> str:
    match event:
        case Access():
            return _access_text(event)
        case Barrier():
            return "CTA barrier"
        case Fence(_, text):
            return text
        case Released(_, token):
            return _released_text(token)
        case Acquired(_, token):
            return _acquired_text(token)


def _access_text(access: Access) -> str:
    """`raises signals[3] of rank 2 to 5 (release, sys)`."""
    what, num_bytes = describe_access(access), access.end - access.start
    if access.value is None:
        if access.via in (Via.COPY, Via.PUT) and access.kind is Kind.STORE:
            return f"copies {num_bytes} B to {what}"
        return f"{access.kind.value}s {what} and more ({access.via.value})"
    if access.via in _OF_STREAMS:
        match access.kind:
            case Kind.LOAD:
                return f"waits until {what} is reached (value {access.value})"
            case Kind.STORE | Kind.ATOMIC:
                return f"{'copies' if access.via is Via.COPY else 'writes'} {access.value} to {what}"
    order = "volatile" if access.via is Via.VOLATILE else f"{access.semantic.value}, {access.scope.value}"
    if access.changed:
        return f"raises {what} to {access.value} ({order})"
    return f"waits for {what} (value {access.value}; {order})"


def _released_text(token: object) -> str:
    match token:
        case ("launch", _):
            return "launches"
        case ("launch", _, _):
            return "ends"
        case ("done", _, _, position):
            return f"has done operation {position}"
        case ("collective", _, number):
            return f"comes to collective {number}"
        case ("message", _, _, to, number):
            return f"sends message {number} to rank {to}"
        case ("run", _):
            return "ends with the run"
        case (what, number):
            return f"publishes {what} {number}"
        case _:
            return "publishes"


def _acquired_text(token: object) -> str:
    match token:
        case ("launch", _):
            return "starts"
        case ("launch", _, program):
            return f"sees the end of program {program}"
        case ("done", _, stream, position):
            return f"goes on after operation {position} of stream {stream}"
        case ("collective", _, number):
            return f"has met all ranks in collective {number}"
        case ("message", _, source, _, number):
            return f"receives message {number} of rank {source}"
        case ("run", _):
            return "starts with the run"
        case (what, number):
            return f"goes on after {what} {number}"
        case _:
            return "goes on"
