"""The docstring of the host class: what the operator takes and returns, and how long results live."""

from __future__ import annotations

from collections.abc import Sequence

from lowering.entry import matrices_of
from lowering.source import Source
from tilelink.ir.matrices import names_of_matrices
from tilelink.ir.nodes import Memory
from tilelink.ir.schedule import Schedule

POOL_PLACES = 4  # of an output in a pool, as `Pool` of lowering/host/pool.py has them


def print_doc(out: Source, schedule: Schedule, pooled: Sequence[str]) -> None:
    """`pooled`: outputs of which each call takes a place that is free."""
    spec = schedule.spec
    inputs = [buffer for buffer in schedule.buffers if buffer.memory is Memory.INPUT]
    outputs = [spec.value(name) for name in spec.outputs]
    names = ", ".join(value.name for value in spec.inputs)
    out.line(f'"""`{", ".join(spec.outputs)} = op({names})` on every rank of the fabric.')
    out.line()
    shapes = {b.name: b.shape for b in inputs}
    shapes |= {name: spec.value(name).local for name in names_of_matrices(spec.inputs)}  # as the caller has them
    out.line(f"Takes {', '.join(f'{b.name} {list(shapes[b.name])} {b.dtype}' for b in inputs)}.")
    matrices = matrices_of(spec)
    for many in dict.fromkeys(matrices.values()):
        named = ", ".join(name for name in matrices if matrices[name] == many)
        out.line(f"Of {named} all ranks have {many} matrices: the last ranks take fewer, or none.")
    out.line(f"Returns {', '.join(f'{value.name} {list(value.local)} {value.dtype}' for value in outputs)}.")
    fresh = {*pooled, *(b.name for b in schedule.buffers if b.memory is Memory.OUTPUT)}
    placed = [value.name for value in outputs if value.name not in fresh]
    if placed:
        out.line(f"Each call overwrites {', '.join(placed)}: read it before the next call, in stream order.")
    if pooled:
        out.line(f"The memory of {', '.join(pooled)} is symmetric, and is reused when no tensor refers to it any more.")
        out.line("If another stream reads a result, keep it until this stream has waited for that one.")
        out.line(f"A caller that holds {POOL_PLACES - 1} results gets copies of further ones.")
    out.line(
        "All tensors are contiguous. Calls may come from one or several streams, eager or captured in a CUDA graph."
    )
    out.line('"""')
