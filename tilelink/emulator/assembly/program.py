"""What each instruction does: a computation of each lane, a jump, an access of memory, or something that orders accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tilelink.emulator.assembly.reader import (
    Address,
    Instruction,
    Label,
    Operand,
    Program,
    Register,
    UnknownInstruction,
    Vector,
    read,
)
from tilelink.emulator.assembly.values import ARITHMETIC, COMBINED, COMPARISONS, MOVED, TYPES, Bits, bits_of, numbers
from tilelink.emulator.events import Scope, Semantic

KNOWN = (
    "ld, st, atom, red (global, all orders and scopes), multimem.ld_reduce, .st and .red, fence, membar, bar.sync, bra, setp, "
    "selp, mov, cvt, cvta, add, sub, mul, mad, div, rem, min, max, and, or, xor, not, neg, abs, shl, shr, nanosleep, "
    "%tid, %ntid, %ctaid, %nctaid, %laneid, %warpid, %smid, %clock, %globaltimer"
)


@dataclass(frozen=True, slots=True)
class Compute:
    """`to = function(sources)`, lane by lane; a vector takes one value for each part."""

    to: Register | Vector
    sources: tuple[Operand, ...]
    function: Callable[..., Bits | tuple[Bits, ...]]


@dataclass(frozen=True, slots=True)
class Jump:
    target: int


@dataclass(frozen=True, slots=True)
class Memory:
    """An access of one element for each lane, or of as many neighbours as `values` or `to` has parts."""

    opcode: str  # "ld", "st", "atom" or "red"
    operation: str  # "add", "cas", … of an atomic
    multicast: bool  # at the place of every rank, by the switch
    semantic: Semantic  # NONE: weak
    scope: Scope
    type: str
    to: tuple[Register, ...]  # empty: nobody asks for the result
    address: Address
    values: tuple[Operand, ...]

    @property
    def atomic(self) -> bool:
        return self.opcode in ("atom", "red")


@dataclass(frozen=True, slots=True)
class Fence:
    text: str


@dataclass(frozen=True, slots=True)
class Meet:
    """All threads of the program meet."""


@dataclass(frozen=True, slots=True)
class Nap:
    """Time passes, in which others run."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """A hint."""


Action = Compute | Jump | Memory | Fence | Meet | Nap | Nothing


@dataclass(frozen=True, slots=True)
class Steps:
    """A snippet and what its instructions do, one action for each."""

    program: Program
    actions: tuple[Action, ...]

    @property
    def by_thread(self) -> bool:
        """Whether threads that hold the same operands do different things."""
        return self.program.reads("%tid", "%laneid", "%warpid")

    @property
    def counted(self) -> bool:
        """Whether it matters how many threads do the same: they change memory by atomics."""
        return any(isinstance(action, Memory) and action.atomic for action in self.actions)


@lru_cache(maxsize=256)
def program(assembly: str) -> Steps:
    """Raises `UnknownInstruction`."""
    found = read(assembly)
    return Steps(found, tuple(_action(one, found.labels) for one in found.instructions))


def _action(one: Instruction, labels: dict[str, int]) -> Action:
    try:
        match one.opcode:
            case "bra":
                (label,) = one.operands
                assert isinstance(label, Label)
                return Jump(labels[label.name])
            case "ld" | "st" | "atom" | "red":
                return _memory(one, one.opcode, one.modifiers, multicast=False)
            case "multimem":
                opcode = {"ld_reduce": "ld", "st": "st", "red": "red"}[one.modifiers[0]]
                return _memory(one, opcode, one.modifiers[1:], multicast=True)
            case "fence" | "membar":
                return Fence(one.text)
            case "cp" if one.modifiers[:3] in (("async", "bulk", "wait_group"), ("async", "bulk", "commit_group")):
                return Fence(one.text)
            case "bar" | "barrier" if one.modifiers in (("sync",), ("sync", "aligned")) and len(one.operands) == 1:
                return Meet()
            case "bar" if one.modifiers == ("warp", "sync"):
                return Nothing()
            case "nanosleep":
                return Nap()
            case "griddepcontrol" | "prefetch" | "prefetchu" | "applypriority":
                return Nothing()
            case _:
                return _compute(one)
    except (KeyError, ValueError, IndexError, AssertionError) as error:
        raise UnknownInstruction(one.text, one.line) from error


# computations


def _compute(one: Instruction) -> Compute:
    """Raises KeyError or ValueError for what is not known."""
    to, *sources = one.operands
    assert isinstance(to, Register | Vector)
    names = [name for name in one.modifiers if name not in ("rn", "ftz", "approx", "full")]
    match one.opcode:
        case "mov":
            (kind,) = names
            (source,) = sources
            parts = source.parts if isinstance(source, Vector) else (source,)
            return Compute(to, parts, _moved(MOVED[kind], to, len(parts)))
        case "cvta":
            return Compute(to, tuple(sources), lambda bits: bits)
        case "cvt":
            rounding, into, kind = (["", *names])[-3:]
            return Compute(to, tuple(sources), _converted(rounding, TYPES[into], TYPES[kind]))
        case "setp":
            comparison, *combined, kind = names
            return Compute(to, tuple(sources), _compared(comparison, combined, TYPES[kind]))
        case "selp":
            (kind,) = names
            MOVED[kind]
            return Compute(to, tuple(sources), lambda a, b, chosen: np.where(chosen != 0, a, b))
        case _:
            count, function = ARITHMETIC[one.opcode]
            assert count == len(sources)
            *half, kind = names
            return Compute(to, tuple(sources), _calculated(function, half, TYPES[kind]))


def _moved(dtype: np.dtype[Any], to: Register | Vector, count: int) -> Callable[..., Bits | tuple[Bits, ...]]:
    """One register to another, apart into several, or together from `count`."""
    if isinstance(to, Vector):
        width = 8 * dtype.itemsize // len(to.parts)
        mask = np.uint64((1 << width) - 1)
        return lambda bits: tuple((bits >> np.uint64(width * part)) & mask for part in range(len(to.parts)))
    width = 8 * dtype.itemsize // count
    mask = np.uint64((1 << width) - 1)

    def joined(*parts: Bits) -> Bits:
        total = np.zeros_like(parts[0])
        for number, part in enumerate(parts):
            total |= (part & mask) << np.uint64(width * number)
        return total

    return joined if count > 1 else lambda bits: bits_of(numbers(bits, dtype))


def _converted(rounding: str, into: np.dtype[Any], source: np.dtype[Any]) -> Callable[..., Bits]:
    rounded = {"": np.trunc, "rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}[rounding]

    def convert(bits: Bits) -> Bits:
        values = numbers(bits, source)
        if source.kind == "f" and into.kind in "iu":
            bounds = np.iinfo(into)
            values = np.clip(np.nan_to_num(rounded(values.astype(np.float64))), bounds.min, bounds.max)
        return bits_of(values.astype(into))

    return convert


def _compared(comparison: str, combined: list[str], dtype: np.dtype[Any]) -> Callable[..., Bits]:
    function = COMPARISONS[comparison]
    if not combined:
        return lambda a, b: bits_of(function(numbers(a, dtype), numbers(b, dtype)))
    (name,) = combined
    other = COMBINED[name]
    return lambda a, b, c: bits_of(other(function(numbers(a, dtype), numbers(b, dtype)), c != 0))


def _calculated(function: Callable[..., Any], half: list[str], dtype: np.dtype[Any]) -> Callable[..., Bits]:
    """`half`: which part of a product is meant."""
    if half not in ([], ["lo"], ["wide"]):
        raise ValueError(half)
    if dtype == TYPES["pred"]:
        return lambda *bits: bits_of(function(*bits)) & np.uint64(1)
    if half == ["wide"]:
        wide = np.dtype(f"{dtype.kind}{2 * dtype.itemsize}")
        return lambda a, b, *c: bits_of(
            function(*(numbers(x, dtype).astype(wide) for x in (a, b)), *(numbers(x, wide) for x in c))
        )
    return lambda *bits: bits_of(function(*(numbers(one, dtype) for one in bits)).astype(dtype))


# memory

_SCOPES = {"cta": Scope.CTA, "cluster": Scope.CTA, "gpu": Scope.GPU, "sys": Scope.SYSTEM}
_ORDERS = {"ld": ("relaxed", "acquire"), "st": ("relaxed", "release")}
_ALL_ORDERS = ("relaxed", "acquire", "release", "acq_rel")
_ATOMICS = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_HINTS = ("global", "weak", "nc", "noftz", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "acc::f32", "acc::f16")


def _memory(one: Instruction, opcode: str, modifiers: tuple[str, ...], *, multicast: bool) -> Memory:
    """Raises ValueError or KeyError for what is not known, such as shared memory."""
    atomic = opcode in ("atom", "red")
    semantic, scope, operation, parts = Semantic.NONE, Scope.SYSTEM, "", 1
    if atomic or multicast:
        semantic, scope = Semantic.RELAXED, Scope.GPU
    *names, kind = modifiers
    for name in names:
        if name in _SCOPES:
            scope = _SCOPES[name]
        elif name in (_ALL_ORDERS if atomic else _ORDERS[opcode]):
            semantic = Semantic(name)
        elif name in ("volatile", "mmio"):
            semantic, scope = Semantic.RELAXED, Scope.SYSTEM
        elif name in _ATOMICS and (atomic or multicast):
            operation = name
        elif name in ("v2", "v4", "v8"):
            parts = int(name[1])
        elif name not in _HINTS and not name.startswith(("L1::", "L2::")):
            raise ValueError(name)
    TYPES[kind] if atomic else MOVED[kind]
    assert not (atomic and parts > 1)
    to, address, values = _operands(one, opcode)
    assert bool(operation) == (atomic or (multicast and opcode == "ld"))
    assert len(values) == {"ld": 0, "st": parts, "atom": 1 + (operation == "cas"), "red": parts}[opcode]
    assert opcode != "ld" or len(to) == parts
    return Memory(opcode, operation, multicast, semantic, scope, kind, to, address, values)


def _operands(one: Instruction, opcode: str) -> tuple[tuple[Register, ...], Address, tuple[Operand, ...]]:
    to: tuple[Operand, ...] = ()
    rest = list(one.operands)
    if opcode in ("ld", "atom"):
        first = rest.pop(0)
        to = first.parts if isinstance(first, Vector) else (first,)
    address = rest.pop(0)
    assert isinstance(address, Address)
    values = tuple(part for value in rest for part in (value.parts if isinstance(value, Vector) else (value,)))
    registers = tuple(part for part in to if isinstance(part, Register))
    assert len(registers) == len(to)
    return registers, address, values
