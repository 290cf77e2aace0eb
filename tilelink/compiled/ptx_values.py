"""Integers in registers of PTX: what its arithmetic gives, and how many bits a result keeps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Number = int | None  # None: depends on data

_TYPE = re.compile(r"\.(?:s|u|b|f|bf|tf)(\d+)(?:x2)?(?=\.|$)")


class Register:
    """Types in opcodes."""

    @staticmethod
    def bits(opcode: str) -> int:
        """Bits of the last type that the opcode names; 32 if there is none."""
        found = _TYPE.findall(opcode)
        return int(found[-1]) if found else 1 if opcode.endswith(".pred") else 32


def _signed(value: int, bits: int) -> int:
    half = 1 << bits - 1
    return (value + half) % (1 << bits) - half


def _as_type(opcode: str, value: int) -> int:
    bits = Register.bits(opcode)
    return _signed(value, bits) if re.search(r"\.s\d+(?=\.|$)", opcode) else value % (1 << bits)


def width(opcode: str, value: int) -> int:
    """`value` as a register of the opcode's result holds it."""
    base = opcode.partition(".")[0]
    if opcode.endswith(".pred"):
        return value & 1
    bits = Register.bits(opcode)
    if ".wide" in opcode:
        bits *= 2
    if base == "cvt":
        bits = int(_TYPE.findall(opcode)[0])
    return value % (1 << bits)


def _divided(opcode: str, a: int, b: int) -> int:
    x, y = _as_type(opcode, a), _as_type(opcode, b)
    if y == 0:
        return 0
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def _multiplied(opcode: str, a: int, b: int) -> int:
    product = _as_type(opcode, a) * _as_type(opcode, b)
    return product >> Register.bits(opcode) if ".hi" in opcode else product


def _converted(opcode: str, value: int, *_: int) -> int | None:
    """None of floating-point numbers, of which one instruction may convert two."""
    types = re.findall(r"\.(s|u|b|f|bf)(\d+)", opcode)
    if any(kind in ("f", "bf") for kind, _ in types):
        return None
    kind, bits = types[-1][0], int(types[-1][1])
    return _signed(value, bits) if kind == "s" else value % (1 << bits)


def _shifted_right(opcode: str, a: int, b: int) -> int:
    return _as_type(opcode, a) >> min(b, 63)


def _field(opcode: str, value: int, start: int, length: int) -> int:
    found = value >> start & ((1 << length) - 1)
    return _signed(found, length) if ".s" in opcode and length else found


def _inserted(_: str, a: int, b: int, start: int, length: int) -> int:
    mask = (1 << length) - 1
    return b & ~(mask << start) | (a & mask) << start


def _looked_up(_: str, a: int, b: int, c: int, table: int) -> int:
    """`lop3`: bit by bit, what `table` says of the three."""
    found = 0
    for index in range(8):
        if table >> index & 1:
            found |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
    return found & 0xFFFFFFFF


def _rotated(opcode: str, a: int, b: int, c: int) -> int:
    """`shf`: a window of 32 bits of b:a."""
    both, shift = (b & 0xFFFFFFFF) << 32 | a & 0xFFFFFFFF, c & 31
    return both << shift >> 32 if ".l" in opcode else both >> shift


def _picked(_: str, a: int, b: int, selector: int) -> int:
    """`prmt`: bytes of b:a by number."""
    both = (b & 0xFFFFFFFF) << 32 | a & 0xFFFFFFFF
    return sum((both >> 8 * (selector >> 4 * at & 7) & 255) << 8 * at for at in range(4))


def _least(opcode: str, *values: int) -> int:
    return min(_as_type(opcode, value) for value in values)


def _greatest(opcode: str, *values: int) -> int:
    return max(_as_type(opcode, value) for value in values)


EXPRESSIONS: dict[str, Callable[..., int | None]] = {
    "add": lambda _, a, b: a + b,
    "sub": lambda _, a, b: a - b,
    "mul": _multiplied,
    "mul24": _multiplied,
    "mad": lambda opcode, a, b, c: _multiplied(opcode, a, b) + c,
    "div": _divided,
    "rem": lambda opcode, a, b: _as_type(opcode, a) - _divided(opcode, a, b) * _as_type(opcode, b),
    "neg": lambda _, a: -a,
    "abs": lambda opcode, a: abs(_as_type(opcode, a)),
    "min": _least,
    "max": _greatest,
    "and": lambda _, a, b: a & b,
    "or": lambda _, a, b: a | b,
    "xor": lambda _, a, b: a ^ b,
    "not": lambda _, a: ~a,
    "cnot": lambda _, a: int(a == 0),
    "shl": lambda _, a, b: a << min(b, 64),
    "shr": _shifted_right,
    "shf": _rotated,
    "bfe": _field,
    "bfi": _inserted,
    "prmt": _picked,
    "lop3": _looked_up,
    "cvt": _converted,
    "cvta": lambda _, a: a,
    "szext": _converted,
}

_COMPARED: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}


def compare(opcode: str, values: Sequence[Number]) -> Number:
    """`setp`, whose result may be joined with a third value."""
    parts = opcode.split(".")
    a, b = values[:2]
    if a is None or b is None or parts[1] not in _COMPARED or re.search(r"\.b?f\d+", opcode):
        return None
    found = _COMPARED[parts[1]](_as_type(opcode, a), _as_type(opcode, b))
    if len(values) == 3 and parts[2] in ("and", "or", "xor"):
        if values[2] is None:
            return None
        other = bool(values[2])
        found = {"and": found and other, "or": found or other, "xor": found != other}[parts[2]]
    return int(found)
