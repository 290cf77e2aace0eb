"""What a run does, as one number: equal for runs whose tasks make the same accesses in the same order.

A mutated expression that depends on ranks, programs and constants only takes all of its values in every run. So if a
mutant's run makes the same accesses of the same words with the same meaning as the original's run under the same policy,
the expression has the same values everywhere, and the mutant does what the original does at this size.
"""

from __future__ import annotations

import hashlib

from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.emulator.events import Access, Acquired, Barrier, Event, Fence, Released

_TRIALS = (
    Trial(Scenario.CALLS, "random:7", calls=2, detect_races=False),
    Trial(Scenario.REPLAYS, "random:8", calls=1, detect_races=False),
)


class Fingerprint:
    """Observes a whole run."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def observe(self, event: Event) -> None:
        """Lines are left out: they are what a mutant may change."""
        match event:
            case Access():
                found = event.buffer
                base = found.start if found is not None else event.start
                what = (found.name, found.rank) if found is not None else ("", -1)
                place = (event.addresses - base).tobytes() if event.addresses.size < 1 << 16 else b""
                facts = (
                    event.kind,
                    event.via,
                    event.semantic,
                    event.scope,
                    event.item_bytes,
                    event.scalar,
                    event.value,
                )
                self._add(event.task.rank, event.task.name, what, event.end - base, event.changed, facts)
                self._hash.update(place)
            case Barrier():
                self._add(event.task.rank, event.task.name, "barrier")
            case Fence(text=text):
                self._add(event.task.rank, event.task.name, text)
            case Released(token=token) | Acquired(token=token):
                self._add(event.task.rank, event.task.name, type(event).__name__, token)

    def _add(self, *facts: object) -> None:
        self._hash.update(repr(facts).encode())

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def fingerprint(subject: Subject) -> str:
    """Of a few runs under fixed policies; empty if one of them fails."""
    digests = []
    for trial in _TRIALS:
        one = Fingerprint()
        if run_trial(subject, trial, observers=[one]).error is not None:
            return ""
        digests.append(one.digest)
    return " ".join(digests)
