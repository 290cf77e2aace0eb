"""What a run does, as one text: equal for runs whose tasks make the same accesses in the same order.

A mutated expression that depends on ranks, programs and constants only takes all of its values in every run. So if a
mutant's run makes the same accesses of the same words with the same meaning as the original's run under the same policy,
the expression has the same values everywhere, and the mutant does what the original does at this size.

What a task does again at once, and what then changes nothing, counts once: a word is polled or raised to the same value.
Accesses that follow each other have no order where they are of different places and order nothing: no machine promises one.
A barrier orders nothing where one thread is alone on both sides of it, up to the barriers around.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.emulator.events import Access, Acquired, Barrier, Event, Fence, Kind, Released, Semantic, Via

_TRIALS = (  # policies that do not choose otherwise because a task takes a step more
    Trial(Scenario.CALLS, "oldest", calls=2, detect_races=False),
    Trial(Scenario.REPLAYS, "newest", calls=1, detect_races=False),
)
_BARRIER, _ENDED = b"barrier", b"ended"
_LONGEST = 4  # events that are done again: a barrier and a notify, for example


Place = tuple[str, int, int, int]  # buffer, rank, first byte and the end


class _Done(NamedTuple):
    what: bytes
    changed: bool = False  # something in memory
    place: Place | None = None  # of an access that orders nothing
    alone: bool = False  # by one thread


class Fingerprint:
    """Observes a whole run."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[int, str], list[_Done]] = {}
        self._ended: dict[Hashable, bytes] = {}  # what a stream did last before it had done an operation

    def observe(self, event: Event) -> None:
        done = self._tasks.setdefault((event.task.rank, event.task.name), [])
        done.append(self._done(event, done))
        for at in range(len(done) - 1, 0, -1):
            one, other = done[at - 1 : at + 1]
            if one.what < other.what or not _apart(one.place, other.place):
                break
            done[at - 1 : at + 1] = other, one
        for length in range(1, _LONGEST + 1):
            again, before = done[-length:], done[-2 * length : -length]
            if [one.what for one in again] == [one.what for one in before] and not any(one.changed for one in again):
                del done[-length:]
                return

    def _done(self, event: Event, before: list[_Done]) -> _Done:
        """Lines are left out: they are what a mutant may change. Operations of a stream are known by what they do, not by
        their number."""
        match event:
            case Access():
                return _access(event)
            case Barrier():
                return _Done(_BARRIER)
            case Fence(text=text):
                return _Done(text.encode())
            case Released(token=("done", *_) as token):
                last = next((one.what for one in reversed(before) if one.what != _ENDED), b"")
                self._ended[token] = last
                return _Done(_ENDED)
            case Acquired(token=("done", *_) as token):
                return _Done(b"behind " + self._ended.get(token, b""))
            case _:
                return _Done(repr((type(event).__name__, event.token)).encode())

    @property
    def digest(self) -> str:
        found = hashlib.sha256()
        for task, done in sorted(self._tasks.items()):
            found.update(repr(task).encode() + b"".join(_ordered(done)))
        return found.hexdigest()


def _ordered(done: list[_Done]) -> Iterator[bytes]:
    """All that a task did, without barriers between which and the next ones one thread is alone."""
    ends = [-1, *(at for at, one in enumerate(done) if one.what == _BARRIER), len(done)]
    idle = {
        here
        for before, here, behind in zip(ends, ends[1:], ends[2:], strict=False)
        if all(one.alone or one.what == _BARRIER for one in done[before + 1 : behind])
    }
    return (one.what for at, one in enumerate(done) if at not in idle)


def _access(event: Access) -> _Done:
    found = event.buffer
    base = found.start if found is not None else event.start
    owner = (found.name, found.rank) if found is not None else ("", -1)
    place = (*owner, event.start - base, event.end - base)
    touched = (event.addresses - base).tobytes() if event.addresses.size < 1 << 16 else b""
    how = (event.kind, event.via, event.semantic, event.scope, event.item_bytes, event.scalar, event.value)
    what = hashlib.sha256(repr((place, how)).encode() + touched).digest()
    polls = event.kind is Kind.LOAD and event.semantic is not Semantic.NONE
    free = event.semantic in (Semantic.NONE, Semantic.RELAXED) and not polls
    return _Done(what, event.changed, place if free else None, event.scalar and event.via is not Via.PLAIN)


def _apart(one: Place | None, other: Place | None) -> bool:
    if one is None or other is None:
        return False
    return one[:2] != other[:2] or one[3] <= other[2] or other[3] <= one[2]


def fingerprint(subject: Subject) -> str:
    """Of a few runs under fixed policies; empty if one of them fails."""
    digests = []
    for trial in _TRIALS:
        one = Fingerprint()
        if run_trial(subject, trial, observers=[one]).error is not None:
            return ""
        digests.append(one.digest)
    return " ".join(digests)
