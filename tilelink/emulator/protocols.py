"""What each rank's host code enqueued, in its order, to find ranks that run different protocols.

A rank decides on its own host: by a size, a cache, a measured time. If two ranks decide differently, one waits for
what the other never sends, and a run shows a hang or a wrong result without its reason. The reason is the first
operation in which their sequences differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import triton.language as tl
from triton.runtime.jit import JITFunction

from tilelink.emulator.operations import (
    After,
    Attention,
    Copy,
    Launch,
    Matmul,
    Meet,
    Operation,
    SendReceive,
    WaitAtLeast,
    WaitEqual,
    Write,
    describe,
)
from tilelink.emulator.place import Place

Constant = tuple[str, object]


@dataclass(frozen=True, slots=True)
class Enqueuing:
    """One operation, without what legally differs between ranks: tensors, peers, runtime numbers of a launch."""

    stream: str
    kind: str  # "launch", "copy", ...
    what: str = ""  # the name of a kernel, the stream of an `after`, the dtypes and shapes that are moved
    grid: tuple[int, ...] = ()
    constants: tuple[Constant, ...] = ()  # constexpr parameters of a launch, the value of a write or wait
    place: Place | None = None  # the host line; not compared

    def __str__(self) -> str:
        shown = [f"grid {self.grid}"] if self.grid else []
        shown += [f"{name}={value}" for name, value in self.constants]
        what = f"{self.kind} {self.what}".rstrip()
        return ", ".join([f"{what} on stream {self.stream}", *shown])


@dataclass(frozen=True, slots=True)
class Difference:
    """The first operation in which two ranks differ; None where a rank has enqueued nothing more."""

    position: int  # in the order of host code, from 0
    rank: int
    own: Enqueuing | None
    other_rank: int
    other: Enqueuing | None

    def __str__(self) -> str:
        sides = [f"rank {self.rank} enqueues {_text(self.own)}", f"rank {self.other_rank} {_text(self.other)}"]
        return f"operation {self.position} of host code: {', '.join(sides)}"


def _text(enqueuing: Enqueuing | None) -> str:
    if enqueuing is None:
        return "nothing more"
    return f"{enqueuing} ({enqueuing.place})" if enqueuing.place else str(enqueuing)


def first_difference(protocols: Sequence[Sequence[Enqueuing]]) -> Difference | None:
    """Where `World.protocols()` of some rank departs from that of rank 0, or None.

    A constant that is the rank's own number on every rank is no decision.
    """
    for position in range(max(map(len, protocols), default=0)):
        column = [one[position] if position < len(one) else None for one in protocols]
        compared = _comparable(column)
        for rank, one in enumerate(compared):
            if one != compared[0]:
                return Difference(position, 0, column[0], rank, column[rank])
    return None


def _comparable(column: Sequence[Enqueuing | None]) -> list[Enqueuing | None]:
    """One operation of each rank, without lines and without constants that are the rank itself."""
    tables = [dict(one.constants) if one is not None else {} for one in column]
    names = set.intersection(*map(set, tables)) if tables else set()
    own = {name for name in names if all(_is(table[name], rank) for rank, table in enumerate(tables))}
    return [
        one and replace(one, place=None, constants=tuple(pair for pair in one.constants if pair[0] not in own))
        for one in column
    ]


def _is(value: object, rank: int) -> bool:
    return type(value) is int and value == rank


def enqueuing(stream: str, operation: Operation, place: Place) -> Enqueuing:
    """What of an operation has to be equal on all ranks."""
    match operation:
        case Launch():
            name = operation.kernel.fn.__name__
            return Enqueuing(stream, "launch", name, operation.grid, constants_of(operation), place)
        case Copy():
            return Enqueuing(stream, "copy", describe(operation.src), place=place)
        case Write():
            return Enqueuing(stream, "write", constants=(("value", operation.value),), place=place)
        case WaitAtLeast():
            return Enqueuing(stream, "wait_at_least", constants=(("value", operation.value),), place=place)
        case WaitEqual():
            return Enqueuing(stream, "wait_equal", constants=(("value", operation.value),), place=place)
        case After():
            return Enqueuing(stream, "after", operation.stream, place=place)
        case Matmul():
            return Enqueuing(stream, "matmul", f"{describe(operation.a)} @ {describe(operation.b)}", place=place)
        case Attention():
            numbers = ("sequences", operation.sequences), ("width", operation.width), ("scale", operation.scale)
            return Enqueuing(stream, "attention", str(operation), constants=numbers, place=place)
        case Meet():
            return Enqueuing(stream, "collective", str(operation.collective), place=place)
        case SendReceive():
            return Enqueuing(stream, "send_receive", describe(operation.x), place=place)


def constants_of(launch: Launch) -> tuple[Constant, ...]:
    """The constexpr parameters of a launch, as values that can be compared and hashed."""
    names = {parameter.name for parameter in launch.kernel.params if parameter.is_constexpr}
    return tuple((name, _plain(value)) for name, value in launch.arguments if name in names)


def _plain(value: Any) -> object:
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, JITFunction):
        return value.fn  # the hash of a JITFunction walks the language
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    return value
