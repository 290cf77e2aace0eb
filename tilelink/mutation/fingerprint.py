"""What a run does, and whether another one does the same: all writes and all synchronisation of every task, in order.

A mutated expression that depends on ranks, programs and constants only takes all of its values in every run. So if the tasks
of a mutant's run write and raise the same as those of the original's run under the same policy, and wait for as much, then the
mutant orders at this size what the original orders: results and races of its own runs show the rest. Three things matter not:
- what ordinary loads read, as results and races depend on it;
- what a task does again or besides, if it changes nothing: polls, a wait or a barrier more, a word raised to what it is;
- the order of neighbouring writes to different buffers that release nothing: no machine promises one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import NamedTuple

from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.emulator.events import Access, Acquired, Barrier, Event, Fence, Kind, Released, Semantic

_TRIALS = (  # policies that do not choose otherwise because a task takes a step more
    Trial(Scenario.CALLS, "oldest", calls=2, detect_races=False),
    Trial(Scenario.REPLAYS, "newest", calls=1, detect_races=False),
)
_ENDED = b"ended"


class Done(NamedTuple):
    what: bytes
    idle: bool = False  # nothing in memory changed
    free: str = ""  # the buffer, of a write that releases nothing


Run = dict[tuple[int, str], list[Done]]  # what each task did, by its rank and name


class Fingerprint:
    """Observes a whole run."""

    def __init__(self) -> None:
        self.run: Run = {}
        self._ended: dict[Hashable, bytes] = {}  # what a stream did last before it had done an operation

    def observe(self, event: Event) -> None:
        if isinstance(event, Access) and event.kind is Kind.LOAD and event.semantic is Semantic.NONE:
            return
        done = self.run.setdefault((event.task.rank, event.task.name), [])
        new = self._done(event, done)
        if new.idle and done and done[-1].what == new.what:
            return
        at = len(done)
        while new.free and at and done[at - 1].free not in ("", new.free) and done[at - 1].what > new.what:
            at -= 1
        done.insert(at, new)

    def _done(self, event: Event, before: list[Done]) -> Done:
        """Lines are left out: they are what a mutant may change. Operations of a stream are known by what they do, not by
        their number."""
        match event:
            case Access():
                return _access(event)
            case Barrier():
                return Done(b"barrier", idle=True)
            case Fence(text=text):
                return Done(text.encode(), idle=True)
            case Released(token=("done", *_) as token):
                self._ended[token] = next((one.what for one in reversed(before) if one.what != _ENDED), b"")
                return Done(_ENDED, idle=True)
            case Acquired(token=("done", *_) as token):
                return Done(b"behind " + self._ended.get(token, b""), idle=True)
            case _:
                return Done(repr((type(event).__name__, event.token)).encode())


def _access(event: Access) -> Done:
    found = event.buffer
    base = found.start if found is not None else event.start
    owner = (found.name, found.rank) if found is not None else ("", -1)
    place = (*owner, event.start - base, event.end - base)
    touched = (event.addresses - base).tobytes() if event.addresses.size < 1 << 16 else b""
    how = (event.kind, event.via, event.semantic, event.scope, event.item_bytes, event.scalar, event.value)
    what = hashlib.sha256(repr((place, how)).encode() + touched).digest()
    free = event.kind is not Kind.LOAD and event.semantic in (Semantic.NONE, Semantic.RELAXED)
    return Done(what, not event.changed, repr(owner) if free else "")


def runs(subject: Subject) -> tuple[Run, ...]:
    """A few under fixed policies; none if one of them fails."""
    found = []
    for trial in _TRIALS:
        one = Fingerprint()
        if run_trial(subject, trial, observers=[one]).error is not None:
            return ()
        found.append(one.run)
    return tuple(found)


def does_the_same(original: tuple[Run, ...], mutant: tuple[Run, ...]) -> bool:
    """Every task does all that it did, in order, and nothing more that changes memory."""
    return len(original) == len(mutant) and all(
        _covers(one.get(task, []), other.get(task, []))
        for one, other in zip(original, mutant, strict=True)
        for task in one | other
    )


def _covers(before: list[Done], after: list[Done]) -> bool:
    wanted = iter(before)
    next_one = next(wanted, None)
    for one in after:
        if next_one is not None and one.what == next_one.what:
            next_one = next(wanted, None)
        elif not one.idle:
            return False
    return next_one is None
