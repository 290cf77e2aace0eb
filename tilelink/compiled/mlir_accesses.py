"""Accesses of memory, barriers and fences of Triton's IR -> events."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np

from tilelink.compiled.assembly import CALLED, assembly_guard, assembly_kind
from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.events import Descriptor, Kind
from tilelink.compiled.mlir import Op
from tilelink.compiled.mlir_state import State, Value, Word
from tilelink.compiled.mlir_values import SIZES

_ELEMENT = re.compile(r"tensor<(?:\d+x)+(\w+)")


def _masked(where: Value, mask: Value, op: Op) -> np.ndarray | None:
    """The addresses that are touched; None if there are none."""
    if where is None or mask is None or not isinstance(where, int | np.ndarray):
        raise CannotFollow(what="an address that depends on data", text=op.text)
    found = np.asarray(where, np.int64)
    if isinstance(mask, np.ndarray):
        both = np.broadcast_arrays(found, mask)
        found = both[0][both[1].astype(bool)]
        return found if found.size else None
    return found if mask else None


def _load(tracer: State, op: Op, values: dict[str, Value]) -> None:
    where = _masked(values[op.operands[0]], values[op.operands[1]] if len(op.operands) > 1 else 1, op)
    if where is not None:
        tracer.event(Kind.LOAD, op, where)
    data = re.search(r"!tt\.ptr<(\w+)", op.types)
    given: Value = None
    pointer = values[op.operands[0]]
    if data is not None and data[1] in ("i32", "i64") and isinstance(pointer, int | np.ndarray):
        found = tracer.memory.load(np.asarray(pointer, np.int64))
        given = int(found) if found.ndim == 0 else found
    values[op.results[0]] = given


def _store(tracer: State, op: Op, values: dict[str, Value]) -> None:
    where = _masked(values[op.operands[0]], values[op.operands[2]] if len(op.operands) > 2 else 1, op)
    if where is not None:
        tracer.event(Kind.STORE, op, where)


def _atomic(tracer: State, op: Op, values: dict[str, Value]) -> None:
    swaps = op.name == "tt.atomic_cas"
    mask = values[op.operands[2]] if not swaps and len(op.operands) > 2 else 1
    where = _masked(values[op.operands[0]], mask, op)
    words = op.text.replace(",", " ").split()
    order = next(word for word in words if word in ("relaxed", "acquire", "release", "acq_rel"))
    kinds = {"relaxed": Kind.WORD, "acquire": Kind.WAIT, "release": Kind.RAISE, "acq_rel": Kind.BOTH}
    if where is None:
        values[op.results[0]] = 0
        return
    tracer.event(kinds[order], op, where)
    if swaps:
        values[op.results[0]] = values[op.operands[1]]  # it finds what it looks for
        return
    pointer = values[op.operands[0]]
    if isinstance(pointer, np.ndarray):
        lanes = np.broadcast_to(np.asarray(1 if mask is None else mask), pointer.shape)
        given = [
            tracer.memory.next_word(int(one))[0] if on else 0 for one, on in zip(pointer.flat, lanes.flat, strict=True)
        ]
        values[op.results[0]] = np.asarray(given, np.int64).reshape(pointer.shape)
        return
    address = int(where)
    number = tracer.memory.taken[address]
    value, fixed = tracer.memory.next_word(address)
    values[op.results[0]] = value if fixed else Word(address, number, 0)


def _assembly(tracer: State, op: Op, values: dict[str, Value]) -> None:
    text = op.text.split('"')[1] if '"' in op.text else op.text
    kind, touches = assembly_kind(text)
    values.update(dict.fromkeys(op.results))
    if kind is None:
        return
    if not touches:
        tracer.event(kind, op)
        return
    constraints = re.search(r'constraints = "([^"]*)"', op.text)
    guard = assembly_guard(text, constraints[1].count("=") if constraints else 1)
    mask = 1 if guard is None else values[op.operands[guard]]
    found = _masked(values[op.operands[0]], mask, op)
    if found is not None:
        tracer.event(kind, op, found)


def _called(tracer: State, op: Op, values: dict[str, Value]) -> None:
    """A call of a library."""
    named = re.search(r'symbol = "(\w+)"', op.text)
    called = CALLED.get(named[1]) if named is not None else None
    values.update(dict.fromkeys(op.results))
    if called is not None:
        for kind, operand in ((Kind.LOAD, called.source), (Kind.RAISE, called.word)):
            where = _masked(values[op.operands[operand]], 1, op) if operand is not None else None
            if where is not None:
                tracer.event(kind, op, where)


def _barrier(tracer: State, op: Op, _: dict[str, Value]) -> None:
    tracer.event(Kind.BARRIER, op)


def _tile(tracer: State, op: Op, values: dict[str, Value], kind: Kind, predicate: Value = 1) -> None:
    """An access through a descriptor, which is the first operand, at the place of the two behind it."""
    if isinstance(predicate, int) and not predicate:
        return
    descriptor, row, col = (values[name] for name in op.operands[:3])
    at = tracer.number(row), tracer.number(col)
    if not isinstance(descriptor, Descriptor) or at[0] is None or at[1] is None or predicate is None:
        raise CannotFollow(what="a descriptor, or a place, that depends on data", text=op.text)
    tracer.event(kind, op, descriptor.box(at[0], at[1], _block_of(op)), descriptor=True)


@cache
def _shape(types: str) -> tuple[int, int] | None:
    found = re.search(r"tensordesc<tensor<(\d+)x(\d+)x", types)
    return (int(found[1]), int(found[2])) if found is not None else None


def _block_of(op: Op) -> tuple[int, int] | None:
    return _shape(op.types)


def _descriptor_load(tracer: State, op: Op, values: dict[str, Value]) -> None:
    _tile(tracer, op, values, Kind.LOAD)
    values[op.results[0]] = None


def _descriptor_store(tracer: State, op: Op, values: dict[str, Value]) -> None:
    _tile(tracer, op, values, Kind.STORE)


def _bulk_load(tracer: State, op: Op, values: dict[str, Value]) -> None:
    _tile(tracer, op, values, Kind.LOAD, values[op.operands[-1]] if len(op.operands) > 5 else 1)
    values.update(dict.fromkeys(op.results))


def _copy_to_shared(tracer: State, op: Op, values: dict[str, Value]) -> None:
    named = re.search(r" mask (%[\w$.\-]+(?:#\d+)?)", op.text)
    where = _masked(values[op.operands[0]], values[named[1]] if named is not None else 1, op)
    if where is not None:
        tracer.event(Kind.LOAD, op, where)
    values.update(dict.fromkeys(op.results))


def _buffer(tracer: State, op: Op, values: dict[str, Value]) -> None:
    """AMD: `buffer_load %base[%offsets]`, `buffer_store %value, %base[%offsets]`."""
    found = re.search(r"(%[\w$.\-]+(?:#\d+)?)\[(%[\w$.\-]+(?:#\d+)?)\]", op.text)
    assert found is not None, op.text
    base, offset = tracer.known(values[found[1]]), tracer.known(values[found[2]])
    behind = re.findall(r"%[\w$.\-]+(?:#\d+)?", op.text[found.end() :])
    named = re.search(r"mask\s*=?\s*(%[\w$.\-]+(?:#\d+)?)", op.text)
    mask = values[named[1]] if named is not None else values[behind[0]] if behind else 1
    if base is None or offset is None:
        raise CannotFollow(what="an address that depends on data", text=op.text)
    kind = _ELEMENT.search(op.types)
    assert kind is not None, op.text
    pointer = base + offset * SIZES.get(kind[1], 1)
    where = _masked(pointer, mask, op)
    if where is not None:
        tracer.event(Kind.STORE if "store" in op.name else Kind.LOAD, op, where)
    values.update(dict.fromkeys(op.results))
    if op.results and kind[1] in ("i32", "i64"):
        values[op.results[0]] = tracer.memory.load(np.asarray(pointer, np.int64))


ACCESSES: dict[str, Callable[[State, Op, dict[str, Value]], None]] = {
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "tt.atomic_cas": _atomic,
    "tt.elementwise_inline_asm": _assembly,
    "tt.extern_elementwise": _called,
    "gpu.barrier": _barrier,
    "ttg.barrier": _barrier,
    "tt.descriptor_load": _descriptor_load,
    "tt.descriptor_store": _descriptor_store,
    "ttng.async_tma_copy_global_to_local": _bulk_load,
    "ttng.async_tma_copy_local_to_global": _descriptor_store,
    "ttg.async_copy_global_to_local": _copy_to_shared,
    **dict.fromkeys(("amdg.buffer_load", "amdg.buffer_store", "amdgpu.buffer_load", "amdgpu.buffer_store"), _buffer),
}
