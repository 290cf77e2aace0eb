"""What words did in a run: who raised them, who read them, in which order. Diagnosis asks it for causes."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelink.emulator.events import Access, Event, Kind
from tilelink.emulator.memory import Buffer
from tilelink.emulator.place import Place
from tilelink.emulator.report import TaskState

Word = tuple[str, int, int]  # buffer, rank that holds it, byte in it: the same in equal runs, which addresses are not
_MOST_RANKS = 64


@dataclass(frozen=True, slots=True)
class WordAccess:
    """An access of a word that some task waits on or raises: of one word, or one of an atomic of the words of all peers."""

    number: int  # of the event in the run, from 1
    task: int
    rank: int
    word: Word
    name: str  # of the buffer
    raises: bool  # changes the word
    reads: bool
    value: int  # found, or left by a raise; 0 where several words are accessed at once
    place: Place
    num_bytes: int


@dataclass(slots=True)
class Progress:
    """Observes whether a task that waits at `place` goes on after the first `events` events."""

    task: TaskState
    events: int
    made: bool = False
    _seen: int = 0

    def observe(self, event: Event) -> None:
        self._seen += 1
        if self._seen <= self.events or event.task.number != self.task.number:
            return
        again = isinstance(event, Access) and not event.changed and event.place == self.task.place
        self.made = self.made or not (again and self.task.kernel)  # a stream tells of a wait when it is over


@dataclass(slots=True)
class SyncLog:
    """Observes a whole run. Event numbers are those of `races.Touch` in the same run."""

    events: int = 0
    words: list[WordAccess] = field(default_factory=list)
    at_once: list[WordAccess] = field(default_factory=list)  # of atomics of the words of all peers
    buffers: dict[int, Buffer] = field(default_factory=dict)  # that peers reach, by address

    def observe(self, event: Event) -> None:
        self.events += 1
        if not isinstance(event, Access):
            return
        if event.buffer is not None and event.buffer.symmetric:  # others make room for new ones at their addresses
            self.buffers[event.buffer.start] = event.buffer
        if event.value is not None:
            self.words.append(self._noted(event, event.start, event.value))
        elif event.kind is Kind.ATOMIC and event.addresses.size <= _MOST_RANKS:
            self.at_once += (self._noted(event, address, 0) for address in event.addresses.tolist())

    def _noted(self, event: Access, address: int, value: int) -> WordAccess:
        known = self.buffers.values() if event.buffer is None else (event.buffer, *self.buffers.values())
        found = next((one for one in known if one.start <= address < one.end), None)
        name = found.name if found is not None else ""
        word = (name, found.rank, address - found.start) if found is not None else ("", -1, address)
        reads, task = event.kind is not Kind.STORE, event.task
        size = event.end - event.start if event.value is not None else event.item_bytes
        return WordAccess(
            self.events, task.number, task.rank, word, name, event.changed, reads, value, event.place, size
        )

    def awaited_before(self, task: int, number: int) -> list[WordAccess]:
        """Reads by `task` of words that it did not raise itself, before event `number`."""
        return [a for a in self.words if a.task == task and a.reads and not a.raises and a.number < number]

    def told_of(self, task: int, number: int) -> dict[Word, WordAccess]:
        """Words by which others learn what `task` did up to event `number`: those that it raises later, those that tasks
        which read these raise later, and so on; each with the first access that raised it with this knowledge."""
        informed, told = {task}, dict[Word, WordAccess]()
        for access in self.words:
            if access.number <= number:
                continue
            if access.reads and access.word in told:
                informed.add(access.task)
            if access.raises and access.task in informed:
                told.setdefault(access.word, access)
        return told

    def filled(self, access: WordAccess) -> bool:
        """Whether `access` found what host code had put there before anything ran."""
        return self.raiser(access) is None and access.value != 0

    def word_at(self, address: int) -> Word | None:
        """The word of symmetric memory at an address of this run."""
        found = next((one for one in self.buffers.values() if one.start <= address < one.end), None)
        return (found.name, found.rank, address - found.start) if found is not None else None

    def history(self, word: Word) -> list[WordAccess]:
        """The accesses that changed `word`, or may have, in order."""
        return sorted(
            (a for a in (*self.words, *self.at_once) if a.raises and a.word == word), key=lambda access: access.number
        )

    def seen(self, word: Word, place: Place, first: int, last: int) -> bool:
        """Whether anything at `place` read `word` in the events from `first` to `last`."""
        return any(
            a.reads and a.word == word and a.place == place and first <= a.number <= last
            for a in (*self.words, *self.at_once)
        )

    def raiser(self, access: WordAccess) -> WordAccess | None:
        """Who raised the word last before `access` read it."""
        return next(
            (a for a in reversed(self.words) if a.raises and a.word == access.word and a.number < access.number), None
        )

    def last_raise(self, access: WordAccess) -> WordAccess | None:
        """As `raiser`, also by an atomic of the words of all peers."""
        raised = [a for a in (*self.words, *self.at_once) if a.raises and a.word == access.word]
        return max((a for a in raised if a.number < access.number), key=lambda a: a.number, default=None)

    def had_read(self, access: WordAccess) -> set[Word]:
        """Words that the task of `access` had read by then, counting on them what it raised."""
        return {a.word for a in self.words if a.task == access.task and a.reads and a.number <= access.number}

    def raised_unread(self) -> list[WordAccess]:
        """Accesses that raised a word which nobody ever reads; what sets it to 0 raises nothing, and takes if it reads."""
        read = {access.word for access in self.words if access.reads and (not access.raises or not access.value)}
        return [access for access in self.words if access.raises and access.value and access.word not in read]
