"""What steps act on: buffers, signals, tables, and regions of buffers."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.ir.enums import Choice, Protocol
from tilelink.schedule.index import Number, rank
from tilelink.schedule.names import BufferName


@dataclass(frozen=True, slots=True)
class Dim:
    """A size with a name, as printed code spells it: `size` elements, tiles, ranks, ... `title` says of what, in a few words.

    A `size` that is an index follows from dims before it. `chosen`: another value, that of an edited file, is as right, as far
    as it is a multiple of each of `multiples` and others are multiples of it; code relies on these, and has no masks there.
    `on_call`: it is known when the operator is called, and at most `size`.
    """

    name: str
    size: Number
    title: str = ""
    chosen: bool = False
    multiples: tuple[Number, ...] = ()
    on_call: bool = False


class Law(Choice):
    """What holds for every table of a name. The proof takes it for granted; emulated runs hold tables that a call makes against
    their definition (`tilelink.runtime.tables`)."""

    GROWS = "grows along the last dimension"  # offsets
    DIFFERS = "no value twice along the last dimension"  # rows of a permutation
    APART = "no value on two ranks"  # rows of the experts of a rank; of several dimensions, at the same places of the others
    COUNTS = "the number of entries of another table"


class Memory(Choice):
    INPUT = "input"
    OUTPUT = "output"  # the caller reads it behind the call, in stream order
    LOCAL = "local"
    SYMMETRIC = "symmetric"  # peers reach it


@dataclass(frozen=True, slots=True)
class Table:
    """An integer tensor that indices look up. Entries lie in 0..`below` - 1; -1 is where there is none. It is an input, or in
    local memory: then a call in front of the launches that look it up makes it anew in each call of the operator."""

    name: str
    shape: tuple[Number, ...]
    below: Number
    laws: tuple[Law, ...] = ()
    memory: Memory = Memory.INPUT


@dataclass(frozen=True, slots=True)
class Buffer:
    """A row-major tensor of each rank. `for_caller`: an output that lies in symmetric memory.

    `places`: it lies in one of several places, each call in one that is free. Element r of the buffer of that name holds the
    number of the place on rank r; the op "own_place" of this buffer is that of the own rank, which tells the others.
    """

    name: str
    memory: Memory
    shape: tuple[Number, ...]
    dtype: str
    protocol: Protocol = Protocol.SIMPLE
    for_caller: bool = False
    places: BufferName | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """Words that only grow, from call to call as well: who waits compares with a value that grows with `call`.

    A word is either set to such values or added to, never both.
    """

    name: str
    shape: tuple[Number, ...]


class Access(Choice):
    """How a tile of a region is addressed."""

    POINTER = "pointer"
    DESCRIPTOR = "descriptor"
    PARTS = (
        "descriptor of parts"  # loads that have zeros behind the last row of a part, which leading dimensions select
    )
    PACED = "descriptor, a few rows at a time"  # stores that are spread over the time of a product

    @property
    def by_descriptor(self) -> bool:
        return self is not Access.POINTER

    @property
    def whole(self) -> bool:
        """By a descriptor, and a whole tile at once."""
        return self in (Access.DESCRIPTOR, Access.PARTS)


@dataclass(frozen=True, slots=True)
class Region:
    """A box of `buffer` on rank `at`: `start` and `extent` in elements, along each dimension.

    What sticks out of the buffer, on either side, is masked. A region whose extent is 0 or less has no elements. A `start`
    that depends on the name `lane` is a start of its own for each of the `extent` elements along that dimension: rows that a
    table finds.
    """

    buffer: BufferName
    start: tuple[Number, ...]
    extent: tuple[Number, ...]
    at: Number = rank
    access: Access = Access.POINTER
