"""From an operation of inline assembly to lanes and back: which threads run it, on which elements, with which results.

A block of fewer elements than the program has threads is held several times: thread t has element t modulo their number, and
each runs the snippet. A scalar is held by all of them. That matters where threads do different things, or count; in all
other snippets one lane for each element does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime import interpreter as stock

from tilelink.emulator.assembly.lanes import Lanes
from tilelink.emulator.assembly.memory import Who
from tilelink.emulator.numerics import Handle
from tilelink.emulator.threads import WARP, active, differ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelink.emulator.assembly.program import Steps
    from tilelink.emulator.assembly.values import Bits
    from tilelink.emulator.machine import Machine


def run(machine: Machine, steps: Steps, values: Sequence[Handle], types: Sequence[Any]) -> list[Handle]:
    """The results, one of each of `types`. Raises `ThreadsDiffer` and what accesses of memory do."""
    shape = np.broadcast_shapes((1,), *(value.data.shape for value in values))
    given = [np.broadcast_to(_bits(value.data), shape).ravel() for value in values]
    elements = int(np.prod(shape))
    blocks = any(type.is_block() for type in types)
    who, lanes = _cast(machine, steps, shape, blocks)
    held = np.arange(lanes) % elements
    mask = active(machine) if who is Who.THREADS else None
    mask = np.ones(lanes, bool) if mask is None else mask
    operands = [np.zeros(lanes, np.uint64) for _ in types] + [bits[held] for bits in given]
    run = Lanes(machine, steps, operands, mask, who)
    run.run()
    results = []
    for number, type in enumerate(types):
        bits = run.operand(number)
        if type.is_block():
            bits = bits[:elements].reshape(type.shape)
        elif (bits[mask] == bits[mask][0]).all():
            bits = bits[mask][:1]
        results.append(Handle(_typed(bits, type.scalar), type.scalar))
    return results


def _cast(machine: Machine, steps: Steps, shape: tuple[int, ...], blocks: bool) -> tuple[Who, int]:
    """What the lanes are, and how many."""
    elements, threads = int(np.prod(shape)), WARP * machine.scheduler.task.warps
    apart = steps.by_thread or active(machine) is not None
    if elements > 1 and not blocks:
        return Who.THREADS, elements  # a scalar that differs between threads
    if not apart and not (steps.counted and elements < threads):
        return (Who.EVERY, 1) if elements == 1 else (Who.ELEMENTS, elements)
    if not threads:
        raise differ(machine, "inline assembly", "tells threads apart in a group of warps")
    if elements > threads or (elements > 1 and len(shape) > 1 and apart):
        raise differ(machine, f"inline assembly on {' x '.join(map(str, shape))} elements", "tells threads apart")
    return Who.THREADS, threads


def _bits(data: NDArray[Any]) -> Bits:
    if data.dtype.kind == "b":
        return data.astype(np.uint64)
    unsigned: NDArray[Any] = np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}")
    return unsigned.astype(np.uint64)


def _typed(bits: Bits, dtype: Any) -> NDArray[Any]:
    into = stock._get_np_dtype(dtype)
    values: NDArray[Any]
    if into.kind == "b":
        values = bits != 0
        return values
    values = bits.astype(f"u{into.itemsize}").view(into)
    return values
