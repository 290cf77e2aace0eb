"""Which operation went wrong first, as far as memory of emulated ranks shows it.

A run that gave a wrong output is made again, up to the call at fault, and then each buffer is compared with the value that
lies there. Names and shapes of buffers say which one that is (tilelink/planner/layout.py makes them): a value as it is;
`X_staged`, `X_shared` and `X_parts` hold X in parts, one for each rank, before and behind an exchange. What lies in words
of a protocol, in slots of a queue or in registers cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from lowering.libraries import library_values
from lowering.selfcheck.compare import Comparison
from lowering.selfcheck.near import Near
from tilelink.emulator.errors import EmulationError
from tilelink.ir.nodes import Buffer, Exchange, Kind, Memory
from tilelink.ir.placement import Partial, Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec, ReduceScatter
from tilelink.runtime.bounds import near_values
from tilelink.runtime.compare import Difference
from tilelink.runtime.emulated import EmulatedRun
from tilelink.threads import one_thread

_PLAIN = ("", "_staged", "_shared", "_parts")  # ends of the names of buffers, behind that of the value


@dataclass(frozen=True, slots=True)
class _Held:
    """A buffer of `rank` that holds `value`, and what should be in it; of `own` parts nothing is known."""

    value: str
    buffer: str
    rank: int
    found: torch.Tensor
    near: Near


def first_off(schedule: Schedule, source: str, seed: int, difference: Difference) -> str:
    """One line: the first operation in program order whose value is off, and where; or what can be said instead."""
    for at_once in (False, True):  # each call behind a pause of the host shows all buffers as they were left
        run = EmulatedRun(schedule, source, seed)
        try:
            for _ in range(difference.call + 1):
                run.call()
                if not at_once:
                    run.finish()
            run.finish()
        except EmulationError:
            continue
        found = _look(schedule, run)
        if found:
            return found
    return (
        "first operation whose value is off: unknown, the fault does not show again in a run that ends with this call"
    )


def _look(schedule: Schedule, run: EmulatedRun) -> str:
    """Empty if the last call is right this time."""
    inputs, results = run.calls[-1]
    spec = schedule.spec
    with one_thread():
        values = near_values(spec, inputs, library_values(schedule))
    right: list[str] = []
    for held in _held(schedule, run, results, values):
        one = Comparison.of(held.found, held.near)
        if not one.equal:
            line = next((node.line for node in spec.nodes if node.output.name == held.value), "")
            where = f", in {held.buffer} of rank {held.rank}" if held.buffer != held.value else f", on rank {held.rank}"
            before = f" ({', '.join(dict.fromkeys(right))} before it: right)" if right else ""
            return f"first operation whose value is off: {held.value} [{line}]{where}{before}: {one.text()}"
        right.append(held.buffer)
    return ""


def _held(
    schedule: Schedule, run: EmulatedRun, results: list[tuple[torch.Tensor, ...]], values: dict[str, list[Near]]
) -> Iterator[_Held]:
    """In program order of the values: what is staged, what has arrived, the value itself, of every rank; outputs last."""
    spec = schedule.spec
    for name in (value for value in values if value not in spec.outputs):
        for end in _PLAIN:
            for buffer in schedule.buffers:
                if buffer.name == f"{name}{end}" and buffer.memory in (Memory.LOCAL, Memory.SYMMETRIC):
                    yield from _in_buffer(schedule, run, buffer, name, values[name])
    for number, name in enumerate(spec.outputs):
        for rank, outputs in enumerate(results):
            yield _Held(name, name, rank, outputs[number], _local(spec, name, values[name], rank))


def _local(spec: BoundSpec, name: str, near: list[Near], rank: int) -> Near:
    """What `rank` holds of a value."""
    placement = spec.value(name).placement
    if isinstance(placement, Shard):
        return near[0].parts(spec.num_ranks, placement.dim)[rank]
    return near[rank % len(near)]


def _in_buffer(schedule: Schedule, run: EmulatedRun, buffer: Buffer, name: str, near: list[Near]) -> Iterator[_Held]:
    """Part by part where it holds parts; parts that nobody stores there are left out."""
    spec, ranks = schedule.spec, range(schedule.num_ranks)
    exchange = next((one for one in schedule.exchanges if buffer.name in (one.source, one.target)), None)
    if exchange is not None and exchange.slots:
        return
    for rank in ranks:
        memory = getattr(run.operators[rank], buffer.name)
        found = getattr(memory, "local", memory)
        local = _local(spec, name, near, rank)
        if exchange is None or tuple(found.shape) == tuple(local.value.shape):
            if found.numel() == local.value.numel():
                yield _Held(name, buffer.name, rank, found.reshape(local.value.shape), local)
            continue
        for part in ranks:
            wanted = _part(spec, name, near, exchange, buffer, rank, part)
            if wanted is None or wanted.value.numel() != found[part].numel():
                continue
            if part != rank or not found[part].isnan().any():  # the own part is mostly used where it is made
                yield _Held(name, buffer.name, rank, found[part].reshape(wanted.value.shape), wanted)


def _part(
    spec: BoundSpec, name: str, near: list[Near], exchange: Exchange, buffer: Buffer, rank: int, part: int
) -> Near | None:
    """Of a target the part from rank `part`, of a source the part for it."""
    placement = spec.value(name).placement
    if exchange.kind is Kind.SCATTER and placement == Partial():
        owner, place = (part, rank) if buffer.name == exchange.target else (rank, part)
        return near[owner].parts(spec.num_ranks, _scattered(spec, name))[place]
    if exchange.kind is Kind.GATHER and placement == Partial():
        return near[part]  # all_reduce in one shot
    if exchange.kind is Kind.GATHER and buffer.name == exchange.target:
        source = next((node.inputs[0] for node in spec.nodes if node.output.name == name), "")
        dim = spec.value(source).placement if source else None
        return near[0].parts(spec.num_ranks, dim.dim if isinstance(dim, Shard) else 0)[part]
    return None


def _scattered(spec: BoundSpec, name: str) -> int:
    """The dimension along which a sum of `name` is cut."""
    for node in spec.nodes:
        if name in node.inputs and isinstance(node.operation, ReduceScatter):
            return node.operation.dim
    return 0
