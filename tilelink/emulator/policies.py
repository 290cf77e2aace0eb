"""Who runs next: random choices, and directed ones that drive a run into the interleavings where bugs hide.

A directed policy orders the ready tasks, runs one of the first class, and draws among equals by its seed. All are
deterministic: the same arguments and the same program give the same run, so that `text` is enough to replay it.

A strict order is unfair, and a loop that changes something in each round (it counts its polls, say) is never blocked
by the spin detector. `_Patience` therefore turns to the others after so many choices in which no task ended or
blocked, so that no policy makes a livelock of a program that a fair GPU would end.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from tilelink.emulator.errors import UnknownPolicy
from tilelink.emulator.operations import Copy, Meet, SendReceive, Transfer, Write
from tilelink.emulator.scheduler import Policy
from tilelink.emulator.task import Task

PATIENCE = 2000  # choices without a task that ends or blocks, before the order is set aside for as many
_PCT_STEPS = 1000  # over so many choices `Pct` spreads its change points
_WORD_BYTES = 4
_MOST_AWAITED_BYTES = 4096  # longer reads in a loop are data, not signals
_MOST_SIGNAL_BYTES = 8  # longer writes are data


class NamedPolicy(Policy, Protocol):
    @property
    def text(self) -> str:
        """What `policy_by_name` makes the same policy of."""


class RandomPolicy:
    """Uniform among the ready tasks; equal seeds give equal runs."""

    def __init__(self, seed: int) -> None:
        self.text = f"random:{seed}"
        self._random = random.Random(seed).random

    def choose(self, ready: Sequence[Task]) -> int:
        return int(self._random() * len(ready))


class _Patience:
    """Notices that only running tasks run on, and then gives the one that ran longest ago a turn."""

    def __init__(self) -> None:
        self._last: Task | None = None
        self._unchanged = 0  # choices since a task ended or blocked
        self._favoured: Task | None = None

    def favoured(self, ready: Sequence[Task]) -> Task | None:
        """The task to run against the order, or None while all is well."""
        if self._last is None or self._last not in ready:
            self._unchanged = 0
            self._favoured = None
            return None
        self._unchanged += 1
        if self._unchanged == PATIENCE:
            self._unchanged = 0
            self._favoured = min(ready, key=lambda task: task.turn) if self._favoured is None else None
        return self._favoured if self._favoured in ready else None

    def ran(self, task: Task) -> None:
        self._last = task


class Directed(ABC):
    """Runs a task of the least `order`; `seed` draws among equals."""

    def __init__(self, text: str, seed: int = 0) -> None:
        self.text = f"{text}:{seed}" if seed else text
        self._random = random.Random(seed).random
        self._patience = _Patience()

    def choose(self, ready: Sequence[Task]) -> int:
        favoured = self._patience.favoured(ready)
        index = self._first(ready) if favoured is None else ready.index(favoured)
        self._patience.ran(ready[index])
        return index

    def _first(self, ready: Sequence[Task]) -> int:
        orders = [self.order(task) for task in ready]
        least = min(orders)
        equals = [index for index, order in enumerate(orders) if order == least]
        return equals[int(self._random() * len(equals))] if len(equals) > 1 else equals[0]

    @abstractmethod
    def order(self, task: Task) -> float:
        """Tasks of lower order run first. Called once for each ready task and choice."""


class StarveRank(Directed):
    """One rank runs only when nobody else can: it is late with everything that the others wait for."""

    def __init__(self, rank: int, seed: int = 0) -> None:
        super().__init__(f"starve-rank:{rank}", seed)
        self._rank = rank

    def order(self, task: Task) -> int:
        return int(task.identity.rank == self._rank)


class Newest(Directed):
    """The task created last runs: later launches and later programs overtake earlier ones."""

    def __init__(self) -> None:
        super().__init__("newest")

    def order(self, task: Task) -> int:
        return -task.identity.number


class Oldest(Directed):
    """The task created first runs: as far as it gets, one program after the other."""

    def __init__(self) -> None:
        super().__init__("oldest")

    def order(self, task: Task) -> int:
        return task.identity.number


class CopiesLate(Directed):
    """Streams that are at a copy, a stream write or a library collective go last: copy engines are slow."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__("copies-late", seed)

    def order(self, task: Task) -> int:
        return int(_moves(task))


class CopiesEarly(Directed):
    """The same streams go first: data and signals arrive before anyone looks, buffers are overwritten early."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__("copies-early", seed)

    def order(self, task: Task) -> int:
        return int(not _moves(task))


def _moves(task: Task) -> bool:
    return isinstance(task.operation, (Copy, Write, Meet, SendReceive, Transfer))


class _Learning(Directed):
    """Learns while it runs which tasks wait for words and which write words that someone waits for.

    What is learnt holds for all tasks of the same name, on every rank and in later calls: a program of a kernel (and so
    a role, which is a range of programs) or a stream. Words are up to 4096 bytes read by the test of a `while` loop or
    waited for by a stream; writing one is a store, atomic, stream write or copy of at most 8 bytes.
    """

    def __init__(self, text: str, seed: int) -> None:
        super().__init__(text, seed)
        self.consumers: set[str] = set()
        self.producers: set[str] = set()
        self._awaited: set[int] = set()
        self._writers: dict[int, set[str]] = {}

    def awaits(self, task: Task, ranges: tuple[tuple[int, int], ...]) -> None:
        for start, end in ranges:
            if end - start <= _MOST_AWAITED_BYTES:
                self.consumers.add(task.identity.name)
                for word in _words(start, end):
                    self._awaited.add(word)
                    self.producers |= self._writers.get(word, set())

    def wrote(self, task: Task, start: int, end: int) -> None:
        if end - start > _MOST_SIGNAL_BYTES:
            return
        for word in _words(start, end):
            self._writers.setdefault(word, set()).add(task.identity.name)
            if word in self._awaited:
                self.producers.add(task.identity.name)


def _words(start: int, end: int) -> range:
    return range(start // _WORD_BYTES, (end - 1) // _WORD_BYTES + 1)


class ProducersLast(_Learning):
    """Whoever raises words that others wait for runs last: those that wait for nothing themselves at the very end.

    What is produced comes as late as it can. Finds reads that no wait, or the wrong wait, protects, and waiting programs
    that leave no SM to those they wait for.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__("producers-last", seed)

    def order(self, task: Task) -> int:
        name = task.identity.name
        waits = name in self.consumers
        if name in self.producers:
            return 2 if waits else 3
        return 0 if waits else 1


class ConsumersFirst(_Learning):
    """Whoever is known to wait for words runs first, also if it raises others: reads come as early as they can."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__("consumers-first", seed)

    def order(self, task: Task) -> int:
        return int(task.identity.name not in self.consumers)


class Pct(Directed):
    """Probabilistic concurrency testing: random priorities, lowered at `depth` - 1 random choices.

    Each task gets a random priority when it is first seen, and the one of the highest priority runs. At `depth` - 1
    choices, drawn among the first `steps`, the task that would run gets a priority below all first ones; which of these
    lies below which is random, too. With n tasks and at most `steps` choices in a run, a bug of depth d - one that needs
    d orderings between events to hold - is found by one run with a probability of at least
    1 / (n * steps ** (d - 1)). Source: Burckhardt, Kothari, Musuvathi, Nagarakatte, "A Randomized Scheduler with
    Probabilistic Guarantees of Finding Bugs", ASPLOS 2010.
    """

    def __init__(self, seed: int, depth: int, steps: int = _PCT_STEPS) -> None:
        super().__init__("")
        self.text = f"pct:{seed}:{depth}" + (f":{steps}" if steps != _PCT_STEPS else "")
        self._draw = random.Random(seed)
        self._priorities: dict[int, float] = {}
        changes = self._draw.sample(range(steps), min(depth - 1, steps))
        self._lowered = {step: -1.0 - place for place, step in enumerate(changes)}
        self._choices = 0

    def choose(self, ready: Sequence[Task]) -> int:
        lowered = self._lowered.get(self._choices)
        self._choices += 1
        for task in ready:
            if task.identity.number not in self._priorities:
                self._priorities[task.identity.number] = self._draw.random()
        if lowered is not None:
            self._priorities[ready[self._first(ready)].identity.number] = lowered
        return super().choose(ready)

    def order(self, task: Task) -> float:
        return -self._priorities[task.identity.number]


def standard_policies(num_ranks: int, seed: int) -> tuple[tuple[str, Policy], ...]:
    """One fresh policy of each kind, by its replay text, in the order in which a verifier runs them."""
    policies: list[NamedPolicy] = [RandomPolicy(seed), ProducersLast(seed), ConsumersFirst(seed)]
    policies += [StarveRank(rank, seed) for rank in range(num_ranks)]
    policies += [CopiesLate(seed), CopiesEarly(seed), Newest(), Oldest()]
    policies += [Pct(seed, depth) for depth in (1, 2, 3)]
    return tuple((policy.text, policy) for policy in policies)


def policy_by_name(text: str) -> NamedPolicy:
    """The policy of a replay text, such as "starve-rank:2" or "pct:17:3". Raises `UnknownPolicy`."""
    name, *fields = text.split(":")
    if not all(field.isascii() and field.isdigit() for field in fields):
        raise UnknownPolicy(text=text)
    match name, [int(field) for field in fields]:
        case "random", [seed]:
            return RandomPolicy(seed)
        case "starve-rank", [rank, *seeds] if len(seeds) < 2:
            return StarveRank(rank, *seeds)
        case "producers-last", [*seeds] if len(seeds) < 2:
            return ProducersLast(*seeds)
        case "consumers-first", [*seeds] if len(seeds) < 2:
            return ConsumersFirst(*seeds)
        case "copies-late", [*seeds] if len(seeds) < 2:
            return CopiesLate(*seeds)
        case "copies-early", [*seeds] if len(seeds) < 2:
            return CopiesEarly(*seeds)
        case "newest", []:
            return Newest()
        case "oldest", []:
            return Oldest()
        case "pct", [seed, depth, *steps] if depth and len(steps) < 2 and 0 not in steps:
            return Pct(seed, depth, *steps)
    raise UnknownPolicy(text=text)
