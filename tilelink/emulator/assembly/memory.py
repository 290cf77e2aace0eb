"""Loads, stores and atomics of lanes: done, and told to the machine as what the threads that run them did."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray

from tilelink.emulator import blocks
from tilelink.emulator.assembly.values import ARITHMETIC, MOVED, TYPES, Bits, bits_of, numbers
from tilelink.emulator.events import Kind, Semantic, Via
from tilelink.emulator.multicast import shifts
from tilelink.emulator.numerics import Handle, typed
from tilelink.emulator.numerics import numbers as as_numbers
from tilelink.ir.enums import LINE_BYTES

if TYPE_CHECKING:
    from tilelink.emulator.assembly.program import Memory
    from tilelink.emulator.machine import Machine

    Places = NDArray[np.uint64]  # [lanes, elements of each]
    Taken = NDArray[np.bool_]


class Who(Enum):
    """What the lanes of a snippet stand for."""

    ELEMENTS = "elements"  # each an element, of some thread
    THREADS = "threads"  # all threads of the program, lane i is thread i
    EVERY = "every"  # one lane: all threads, which do the same


class Toucher:
    """Accesses of the lanes of one snippet."""

    def __init__(self, machine: Machine, who: Who) -> None:
        self._machine = machine
        self._who = who

    def touch(self, what: Memory, addresses: Bits, values: list[Bits], taken: Taken) -> list[Bits]:
        """Carry out `what` for the lanes `taken`; the bits of each of its results, for each of these lanes.

        Raises `OutOfBounds`, `NoPeerAtomics` and `NoMulticast`.
        """
        size = MOVED[what.type].itemsize
        parts = {"ld": len(what.to), "st": len(values)}.get(what.opcode, 1)
        places = addresses[:, None] + np.arange(0, size * parts, size, dtype=np.uint64)[None, :]
        if what.semantic is not Semantic.NONE:
            self._machine.scheduler.switch()
        if not what.multicast:
            if what.opcode == "st" and parts > 1 and what.semantic is not Semantic.NONE:
                self._by_lines(what, places, values, taken)
                return []
            return self._once(what, places, values, taken)
        distances = shifts(self._machine, "multimem", places, size)
        moved = [places + np.uint64(distance % 2**64) for distance in distances]
        if what.opcode == "st":
            self._at_each(what, moved, values, taken)
            return []
        found = [self._once(what, copy, values, taken) for copy in moved]
        return [_reduced(what, copies) for copies in zip(*found, strict=True)] if what.opcode == "ld" else []

    def _by_lines(self, what: Memory, places: Places, values: list[Bits], taken: Taken) -> None:
        """What warps store at once comes in lines, each whole: here every other one first, the odd or the even ones.
        That the elements of a vector are threads of one warp is for the compiled kernel to say (`tilelink/compiled/lines.py`)."""
        odd = (places[:, 0] // np.uint64(LINE_BYTES)) % np.uint64(2) == 1
        odd_first = self._machine.scheduler.steps % 2 == 1
        for number, some in enumerate((odd, ~odd) if odd_first else (~odd, odd)):
            if number:
                self._machine.scheduler.switch()
            if some.any():
                self._once(what, places[some], [one[some] for one in values], taken)

    def _at_each(self, what: Memory, copies: list[Places], values: list[Bits], taken: Taken) -> None:
        """A store comes to one rank after the other, and the elements of a vector one by one."""
        pieces = [(copy[:, [part]], [value]) for copy in copies for part, value in enumerate(values)]
        for number, (piece, value) in enumerate(pieces):
            if number and what.semantic is not Semantic.NONE:
                self._machine.scheduler.switch()
            self._once(what, piece, value, taken)

    def _once(self, what: Memory, places: Places, values: list[Bits], taken: Taken) -> list[Bits]:
        self._machine.before(_NAMES[what.opcode], places.ravel(), MOVED[what.type].itemsize)
        match what.opcode:
            case "ld":
                return self._load(what, places, taken)
            case "st":
                self._store(what, places, values, taken)
                return []
            case _:
                return [self._atomic(what, places.ravel(), values, taken)]

    def _load(self, what: Memory, places: Places, taken: Taken) -> list[Bits]:
        dtype, alone = MOVED[what.type], self._alone(taken)
        found = blocks.load(places, blocks.everything(places.shape), np.zeros(places.shape, dtype), dtype)
        every = self._who is Who.EVERY or (
            self._who is Who.THREADS and bool(taken.all()) and bool((places == places[0]).all())
        )
        # for the detector a scalar load is that of each thread, an atomic that of one
        kind = Kind.ATOMIC if alone and what.semantic is not Semantic.NONE else Kind.LOAD
        self._tell(what, kind, places[0] if every else places.ravel(), changed=False, scalar=every or alone)
        return [bits_of(found[:, part]) for part in range(places.shape[1])]

    def _store(self, what: Memory, places: Places, values: list[Bits], taken: Taken) -> None:
        dtype = MOVED[what.type]
        content = np.stack([numbers(bits, dtype) for bits in values], axis=1)
        blocks.store(places, np.ascontiguousarray(content), blocks.everything(places.shape))
        one = self._who is Who.EVERY or self._alone(taken)
        self._tell(what, Kind.STORE, places.ravel(), changed=True, scalar=one)

    def _atomic(self, what: Memory, places: NDArray[np.uint64], values: list[Bits], taken: Taken) -> Bits:
        """Lane by lane, since lanes may meet at one address."""
        dtype, function = TYPES[what.type], _ATOMICS[what.operation]
        operands = [numbers(bits, dtype) for bits in values]
        old, alone = np.zeros(places.size, dtype), self._alone(taken)
        for lane, address in enumerate(places.tolist()):
            before = np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)
            after = np.asarray(function(before[0], *(one[lane] for one in operands))).astype(dtype).tobytes()
            ctypes.memmove(address, after, len(after))
            old[lane] = before[0]
            # each by itself: what changes nothing releases nothing
            changed = after != before.tobytes()
            self._tell(what, Kind.ATOMIC, places[lane : lane + 1], changed=changed, scalar=alone)
        return bits_of(old)

    def _alone(self, taken: Taken) -> bool:
        """Whether the first thread does it and no other one."""
        return self._who is Who.THREADS and bool(taken[0]) and np.count_nonzero(taken) == 1

    def _tell(self, what: Memory, kind: Kind, places: NDArray[np.uint64], *, changed: bool, scalar: bool) -> None:
        size, order = MOVED[what.type].itemsize, what.semantic
        words = order is not Semantic.NONE and places.size <= _MOST_WORDS  # of which some may be signals
        for part in np.split(places, places.size) if words else (places,):
            self._machine.after(
                kind, Via.ASSEMBLY, part, size, changed=changed, semantic=order, scope=what.scope, scalar=scalar
            )


def _reduced(what: Memory, copies: tuple[Bits, ...]) -> Bits:
    """What `multimem.ld_reduce` makes of one place of all ranks: 16-bit floats are combined in fp32 and rounded once."""
    function, dtype = ARITHMETIC[what.operation][1], MOVED[what.type]
    if what.type not in _PAIRS:
        values = reduce(function, (numbers(bits, dtype) for bits in copies))
        return bits_of(np.asarray(values, dtype))
    half, dense = _PAIRS[what.type]
    halves = (Handle(numbers(bits, dtype).view(dense), half) for bits in copies)
    total = typed(reduce(function, map(as_numbers, halves)).astype(np.float32), half)
    return bits_of(np.ascontiguousarray(total.data).view(dtype))


_MOST_WORDS = 32
_MOST_WORDS = 32
_PAIRS: dict[str, tuple[Any, np.dtype[Any]]] = {
    "bf16x2": (tl.bfloat16, np.dtype(np.uint16)),
    "f16x2": (tl.float16, np.dtype(np.float16)),
}
_NAMES = {
    "ld": "load in assembly",
    "st": "store in assembly",
    "atom": "atomic in assembly",
    "red": "atomic in assembly",
}
_ATOMICS: dict[str, Callable[..., Any]] = {
    "add": lambda old, value: old + value,
    "min": min,
    "max": max,
    "and": lambda old, value: old & value,
    "or": lambda old, value: old | value,
    "xor": lambda old, value: old ^ value,
    "exch": lambda old, value: value,
    "cas": lambda old, expected, value: value if old == expected else old,
    "inc": lambda old, bound: 0 if old >= bound else old + 1,
    "dec": lambda old, bound: bound if old == 0 or old > bound else old - 1,
}
