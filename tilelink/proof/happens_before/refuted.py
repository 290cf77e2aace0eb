"""What a refutation says: the kind of mistake, the steps that meet, and on which ranks, in which calls."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding


class Wrong(Enum):
    """What can be wrong with a schedule, the class of bug that it is, and the fact in words."""

    NOT_AWAITED = (BugClass.ORDERING, "a region is read, and no wait comes before that could order it behind its write")
    EARLY_READ = (BugClass.WAIT_TOO_LITTLE, "a region is read, and its write need not be over")
    TOLD_EARLY = (BugClass.SIGNAL_TOO_EARLY, "a region is read whose write comes behind the signal that tells of it")
    WRITTEN_LATER = (BugClass.ORDERING, "a region is read before this call writes it")
    OVERWRITTEN = (BugClass.REUSE, "a region is overwritten while it may still be in use")
    WRITTEN_BY_TWO = (BugClass.WRONG_PLACE, "a region is written twice in one call, in no order")
    NEVER_WRITTEN = (BugClass.WRONG_PLACE, "a region is read that nothing has written in this call")
    INPUT_WRITTEN = (BugClass.WRONG_PLACE, "an input of the caller is written")
    CIRCLE = (BugClass.CIRCLE, "programs wait for each other")
    NEVER_RAISED = (BugClass.CIRCLE, "a wait is for more than is ever raised")
    ANY_COUNT = (BugClass.STALE_SIGNAL, "a count may be reached without those that the wait is meant for")
    SET_BACK = (BugClass.STALE_SIGNAL, "a word is set to a value that is not larger than the one before")
    SET_IN_NO_ORDER = (BugClass.STALE_SIGNAL, "a word is set by two in no order, so that it may be set back")
    SET_AND_ADDED = (BugClass.STALE_SIGNAL, "a word is both set and added to")
    UNEVEN = (BugClass.STALE_SIGNAL, "a word does not grow from call to call as it is awaited")
    UNLIKE = (BugClass.STALE_SIGNAL, "calls are not alike, so that some calls say nothing about all")
    TOO_MANY = (BugClass.SIGNAL_TOO_EARLY, "more come than the last of them is awaited for")
    NO_WORD = (BugClass.SLOTS, "a word lies outside of its signal")
    OUTSIDE = (BugClass.SLOTS, "a part or a slot lies outside of its buffer")
    NO_PROGRAM = (BugClass.CIRCLE, "a role has no program, so that nobody does what it is for")
    NO_RANK = (BugClass.WRONG_PLACE, "a rank does not exist")
    NOT_SYMMETRIC = (BugClass.WRONG_PLACE, "memory of a peer is accessed that is not symmetric")
    ACROSS = (BugClass.WRONG_PLACE, "memory of another node is accessed by loads and stores, which do not reach it")
    COUNTED_ACROSS = (BugClass.LINK_ATOMICS, "a word of another node is added to, and the transport cannot count")
    TORN = (BugClass.SIGNAL_TOO_EARLY, "a packet is cut by a put, so that its words land apart")
    NO_ENTRY = (BugClass.WRONG_PLACE, "a table has no such entry")
    MALFORMED = (BugClass.WRONG_PLACE, "a step has no meaning")

    def __init__(self, bug: BugClass, fact: str) -> None:
        self.bug = bug
        self.fact = fact


@dataclass(frozen=True, slots=True)
class Place:
    """A step of one program. `tile`: the position of its phase; `what`: the region in elements, or the word, with its rank, and
    `signal` the name of that word."""

    step: str
    program: str
    rank: int
    call: int
    tile: int
    what: str = ""
    signal: str = ""

    def __str__(self) -> str:
        on = f" on {self.what}" if self.what else ""
        return f"`{self.step}` of {self.program} of rank {self.rank} in call {self.call}, tile {self.tile}{on}"


@dataclass(frozen=True, slots=True)
class Refutation:
    """Why a schedule is wrong. `places`: where it shows, in one interleaving that is possible."""

    wrong: Wrong
    places: tuple[Place, ...]
    detail: str = ""

    @property
    def bug(self) -> BugClass:
        return self.wrong.bug

    @property
    def finding(self) -> Finding:
        """The same for a report: where the first step stands, and what the second one does there."""
        if not self.places:
            return Finding(self.bug, "the schedule", f"{self.wrong.fact} ({self.detail})")
        here, *others = self.places
        against = "".join(f"; {other}" for other in others)
        example = f"rank {here.rank}, call {here.call}, tile {here.tile}" + (f", {here.what}" if here.what else "")
        signal = next((place.signal for place in self.places if place.signal), "")
        return Finding(self.bug, f"`{here.step}` of {here.program}", f"{self.wrong.fact}{against}", signal, example)

    def __str__(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.wrong.fact}{detail}" + "".join(f"\n  {place}" for place in self.places)


class Refuted(Exception):
    """Raised inside of the proof; `check` returns the refutation."""

    def __init__(self, wrong: Wrong, *places: Place, detail: str = "") -> None:
        self.refutation = Refutation(wrong, places, detail)
        super().__init__(str(self.refutation))
