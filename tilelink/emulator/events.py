"""The event stream of an emulation. Race detectors, timelines and counters are its clients, not its parts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy as np
    from numpy.typing import NDArray

    from tilelink.emulator.memory import Buffer
    from tilelink.emulator.place import Place


class Kind(Enum):
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"  # reads and perhaps writes, indivisibly


class Via(Enum):
    """How an access reaches memory; each has ordering rules of its own."""

    PLAIN = "plain"  # tl.load, tl.store
    VOLATILE = "volatile"  # tl.load(volatile=True): relaxed, never cached
    ATOMIC = "atomic"  # tl.atomic_*
    ASSEMBLY = "assembly"  # instructions of single threads, whose results stay theirs
    DESCRIPTOR = "descriptor"  # TMA: asynchronous, complete only after the bulk wait
    COPY = "copy"  # copy engine, or a copy kernel when both sides are local
    PUT = "put"  # a copy over a network, whose aligned words of 8 bytes are whole
    STREAM = "stream"  # stream-ordered write or wait of one word
    LIBRARY = "library"  # cuBLAS, NCCL


class Semantic(Enum):
    NONE = "none"  # not a synchronisation access
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQUIRE_RELEASE = "acq_rel"


class Scope(Enum):
    CTA = "cta"
    GPU = "gpu"
    SYSTEM = "sys"


@dataclass(frozen=True, slots=True)
class TaskId:
    """One sequential thread of execution: a stream, or one program of a kernel."""

    number: int  # unique in the world, in order of creation
    rank: int
    name: str  # "stream push" or "ag_gemm(3, 0, 0)"


@dataclass(slots=True, eq=False)  # not frozen, which makes an object of so many fields take three times as long
class Access:
    """A memory access that has just happened. Nobody changes it.

    `addresses` holds the byte address of each touched element of `item_bytes`, masked lanes left out; a
    copy is one element as large as the copy.
    """

    task: TaskId
    kind: Kind
    via: Via
    addresses: NDArray[np.uint64]
    item_bytes: int
    semantic: Semantic
    scope: Scope
    changed: bool  # some byte has another value than before
    place: Place
    scalar: bool  # one thread's, not a block's with a thread for each element; operations of streams are scalar
    start: int  # all touched bytes lie in [start, end)
    end: int
    buffer: Buffer | None  # where `start` lies; None: a tensor that no running kernel was given
    value: int | None  # of the word, afterwards, for an access that may be part of a synchronisation


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of the program meet (`tl.debug_barrier`, `bar.sync`)."""

    task: TaskId
    place: Place


@dataclass(frozen=True, slots=True)
class Fence:
    """A fence or a wait for asynchronous work, as inline assembly."""

    task: TaskId
    text: str
    place: Place


@dataclass(frozen=True, slots=True)
class Released:
    """All that `task` did so far happens before what a task does that acquires `token` later.

    Tokens are tuples whose first item says what happened: ("launch", n) when a stream starts the programs of its
    launch, ("launch", n, program) when a program ends, ("done", rank, stream, position) when a stream has done
    an operation, ("collective", stream, number) when a rank comes to a meeting,
    ("message", stream, from, to, number) when it comes to send, ("run", n) when run n - 1 is over.
    """

    task: TaskId
    token: Hashable


@dataclass(frozen=True, slots=True)
class Acquired:
    task: TaskId
    token: Hashable


Event = Access | Barrier | Fence | Released | Acquired


class Observer(Protocol):
    """Called for each event, in the order of the emulated execution; may raise to stop the run."""

    def observe(self, event: Event) -> None: ...
