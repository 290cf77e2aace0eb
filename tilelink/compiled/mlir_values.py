"""Arithmetic, comparisons and shapes of Triton's IR."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np

from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.mlir import Op
from tilelink.compiled.mlir_state import State, Value, Word

SIZES = {"i1": 1, "i8": 1, "i16": 2, "bf16": 2, "f16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}
_CASTS = (
    *("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.bitcast", "tt.bitcast", "tt.splat"),
    *("tt.int_to_ptr", "tt.ptr_to_int", "tt.broadcast", "ttg.convert_layout", "tt.unsplat"),
)


@cache
def element_size(types: str) -> int:
    """Bytes of what the first pointer in `types` points to."""
    found = re.search(r"!tt\.ptr<(\w+)", types)
    if found is None:
        raise CannotFollow(what="a pointer to no number", text=types)
    return SIZES.get(found[1], 1)


def _cast(tracer: State, op: Op, values: dict[str, Value]) -> None:
    values[op.results[0]] = _converted(tracer, op, values[op.operands[0]])


def _converted(tracer: State, op: Op, value: Value) -> Value:
    if isinstance(value, Word) and op.name in ("arith.extsi", "arith.extui", "tt.splat"):
        return value if op.name != "tt.splat" else tracer.number(value)
    if isinstance(value, int) and op.types.endswith("i1") and op.name == "arith.trunci":
        return value & 1
    return value


def _wrap(value: int | np.ndarray, types: str) -> int | np.ndarray:
    """As the type holds it: 32 bits with a sign, or 1 bit."""
    if "i32" in types:
        return (value + (1 << 31) & 0xFFFFFFFF) - (1 << 31)
    return value


def _trunc_div(a: int | np.ndarray, b: int | np.ndarray) -> int | np.ndarray:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0
    quotient = np.abs(a) // np.maximum(np.abs(b), 1)
    return np.where((np.asarray(a) < 0) == (np.asarray(b) < 0), quotient, -quotient)


_ARITHMETIC: dict[str, Callable[..., int | np.ndarray]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": _trunc_div,
    "divui": _trunc_div,
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
    "remsi": lambda a, b: a - _trunc_div(a, b) * b,
    "remui": lambda a, b: a - _trunc_div(a, b) * b,
    "minsi": lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b),
    "maxsi": lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b),
    "minui": lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b),
    "maxui": lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b),
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
    "shrui": lambda a, b: a >> b,
}
_COMPARISONS: dict[str, Callable[..., bool | np.ndarray]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
    "ult": lambda a, b: a < b,
    "ule": lambda a, b: a <= b,
    "ugt": lambda a, b: a > b,
    "uge": lambda a, b: a >= b,
}


def _arithmetic(tracer: State, op: Op, values: dict[str, Value]) -> None:
    a, b = (values[name] for name in op.operands)
    name = op.name.removeprefix("arith.")
    if isinstance(a, Word) and isinstance(b, int) and name in ("addi", "subi"):
        values[op.results[0]] = a._replace(plus=a.plus + (b if name == "addi" else -b))
        return
    x, y = tracer.known(a), tracer.known(b)
    if name in ("andi", "muli") and (x is None or y is None) and 0 in (_scalar(x), _scalar(y)):
        values[op.results[0]] = 0
        return
    values[op.results[0]] = None if x is None or y is None else _wrap(_ARITHMETIC[name](x, y), op.types)


def _scalar(value: int | np.ndarray | None) -> int | None:
    return value if isinstance(value, int) else None


def _compare(tracer: State, op: Op, values: dict[str, Value]) -> None:
    a, b = (values[name] for name in op.operands)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Word) and isinstance(other, int):
            tracer.memory.set_word(one.address, one.number, other - one.plus)  # the value that the program waits for
    x, y = tracer.known(a), tracer.known(b)
    how = op.text.split()[1].rstrip(",")
    result = None if x is None or y is None else _COMPARISONS[how](x, y)
    values[op.results[0]] = int(result) if isinstance(result, bool | np.bool_) else result


def _constant(_: State, op: Op, values: dict[str, Value]) -> None:
    text = op.text.removeprefix("arith.constant").strip()
    found = re.match(r"(?:dense<)?(-?\d+|true|false)>?(?: :|$)", text)
    if found is None or "." in text.split(" :")[0]:
        values[op.results[0]] = None
        return
    values[op.results[0]] = {"true": 1, "false": 0}[found[1]] if found[1] in ("true", "false") else int(found[1])


def _select(_: State, op: Op, values: dict[str, Value]) -> None:
    condition, a, b = (values[name] for name in op.operands)
    if isinstance(condition, np.ndarray) and isinstance(a, int | np.ndarray) and isinstance(b, int | np.ndarray):
        values[op.results[0]] = np.where(condition, a, b)
    else:
        unknown = condition is None or isinstance(condition, np.ndarray)
        values[op.results[0]] = None if unknown else a if condition else b


def _range(_: State, op: Op, values: dict[str, Value]) -> None:
    bounds = dict(re.findall(r"(end|start) = (-?\d+)", op.text))
    values[op.results[0]] = np.arange(int(bounds["start"]), int(bounds["end"]), dtype=np.int64)


def _expand(_: State, op: Op, values: dict[str, Value]) -> None:
    value = values[op.operands[0]]
    axis = int(re.search(r"axis = (\d+)", op.text)[1])  # type: ignore[index]
    values[op.results[0]] = np.expand_dims(value, axis) if isinstance(value, np.ndarray) else value


def _transpose(_: State, op: Op, values: dict[str, Value]) -> None:
    value = values[op.operands[0]]
    values[op.results[0]] = value.T if isinstance(value, np.ndarray) and value.ndim == 2 else value


def _add_pointer(tracer: State, op: Op, values: dict[str, Value]) -> None:
    base, offset = (tracer.known(values[name]) for name in op.operands)
    size = element_size(op.types)
    values[op.results[0]] = None if base is None or offset is None else base + offset * size


def _program(tracer: State, op: Op, values: dict[str, Value]) -> None:
    values[op.results[0]] = tracer.program if " x " in f"{op.text} " else 0


def _programs(tracer: State, op: Op, values: dict[str, Value]) -> None:
    values[op.results[0]] = tracer.grid if " x " in f"{op.text} " else 1


def _reduce(tracer: State, op: Op, values: dict[str, Value]) -> None:
    value = tracer.known(values[op.operands[0]])
    names = {inner.name for region in op.regions for block in region.blocks for inner in block.ops}
    text = " ".join(inner.text for region in op.regions for block in region.blocks for inner in block.ops)
    result: Value = None
    if value is not None and len(op.results) == 1:
        if "arith.maxsi" in names or "elementwise_max" in text:
            result = int(np.max(value))
        elif "arith.minsi" in names or "elementwise_min" in text:
            result = int(np.min(value))
    values.update(dict.fromkeys(op.results, result))


VALUES: dict[str, Callable[[State, Op, dict[str, Value]], None]] = {
    **dict.fromkeys(_CASTS, _cast),
    **{f"arith.{name}": _arithmetic for name in _ARITHMETIC},
    "arith.cmpi": _compare,
    "arith.constant": _constant,
    "arith.select": _select,
    "tt.make_range": _range,
    "tt.expand_dims": _expand,
    "tt.trans": _transpose,
    "tt.addptr": _add_pointer,
    "tt.reduce": _reduce,
    "tt.get_program_id": _program,
    "tt.get_num_programs": _programs,
}
