"""What a call takes at least on this machine, whatever the schedule: flops, bytes over the link and through memory, launches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelink.ir.graph import TileGraph
from tilelink.ir.nodes import Exchange, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import (
    DTYPE_BYTES,
    AllGather,
    AllReduce,
    Attend,
    Attention,
    BoundSpec,
    DecodeAttention,
    GroupedMatmul,
    Matmul,
    ReduceScatter,
)
from tilelink.measuring.spec_problem import flops_of
from tilelink.planner.levels import Busy, busy_levels
from tilelink.planner.library_cost import library_attention, library_matmul
from tilelink.planner.links import num_links
from topologies.topology import Topology

_TIMES = {AllGather: 1, ReduceScatter: 1, AllReduce: 2}  # a collective's tensor crosses the links of a rank


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one rank and one call, in us, bytes and flops. `work`: what multiplies, in a word or two. `alone_us`: that by the
    library, one call behind the other, as the cost model has them; where there is no such call (routed rows), flops at the rate
    that a good matmul reaches, or inputs and outputs once through memory, whichever takes longer. `links_us`: what collectives of
    whole tensors must bring in, over the slowest link. `sent`: bytes that an exchange sends, by name."""

    work: str
    flops: float
    peak_us: float
    alone_us: float
    by_library: bool  # `alone_us` is of library calls
    bytes_in: float
    links_us: float
    gb_per_s: float
    memory_bytes: int
    memory_us: float
    launches: int
    launch_us: float
    sent: tuple[tuple[str, int], ...]
    levels: tuple[Busy, ...]

    @property
    def alone_by(self) -> str:
        """What `alone_us` is, in words."""
        if self.by_library:
            return f"the library's {self.work} alone"
        by_memory = self.alone_us == self.memory_us
        return "inputs and outputs once through memory" if by_memory else "flops at the rate of a good matmul"

    @property
    def least_us(self) -> float:
        """The larger of the two that overlap can hide behind each other."""
        return max(self.alone_us, self.links_us)


def limits_of(schedule: Schedule, graph: TileGraph, topology: Topology) -> Limits:
    """Raises nothing: a machine without a peak for the dtype has no schedule."""
    spec, gpu = schedule.spec, topology.gpu
    flops, dtype = flops_of(spec), _computed_in(spec, topology)
    peak_us = flops / gpu.tflops(dtype) / 1e6
    alone = _by_library(spec, graph, topology, dtype)
    bytes_in = _bytes_in(spec)
    rate = topology.slowest_link_gb_per_s * num_links(topology)
    held = sum(value.num_bytes for value in (*spec.inputs, *map(spec.value, spec.outputs)))
    memory_us = held / gpu.memory_gb_per_s / 1e3
    launches = sum(isinstance(one, Kernel) and not one.joined for one in schedule.launches)
    return Limits(
        _work(spec),
        flops,
        peak_us,
        max(peak_us / gpu.gemm_efficiency, memory_us) if alone is None else alone,
        alone is not None,
        bytes_in,
        bytes_in / rate / 1e3,
        rate,
        held,
        memory_us,
        launches,
        launches * gpu.kernel_launch_us,
        tuple((one.name, _sent(schedule, one)) for one in schedule.exchanges),
        busy_levels(schedule, topology),
    )


def _work(spec: BoundSpec) -> str:
    attends = any(isinstance(node.operation, Attention | DecodeAttention) for node in spec.nodes)
    multiplies = any(isinstance(node.operation, Matmul | GroupedMatmul) for node in spec.nodes)
    return "matmuls and attention" if attends and multiplies else "attention" if attends else "matmuls"


def _by_library(spec: BoundSpec, graph: TileGraph, topology: Topology, dtype: str) -> float | None:
    """All matmuls and attention by library calls, one behind the other; None where there is something else that multiplies."""
    total, attends = 0.0, 0
    for op in graph.ops():
        rows = graph.values[op.reads[0].value].shape[0]
        match op.operation:
            case Matmul():
                if any(axis.routed for axis in op.axes):
                    return None
                *high, wide = (axis.extent for axis in op.axes if not axis.reduction)
                k = math.prod(axis.extent for axis in op.axes if axis.reduction)
                total += library_matmul(topology, math.prod(high), wide, k, dtype).total_us
            case Attend():
                attends += 1
                total += library_attention(topology, op.operation, rows, op.axis("k").extent, dtype).total_us
    others = any(isinstance(node.operation, GroupedMatmul | DecodeAttention) for node in spec.nodes)
    return None if others or attends != sum(isinstance(node.operation, Attention) for node in spec.nodes) else total


def _computed_in(spec: BoundSpec, topology: Topology) -> str:
    """The dtype of the first input of which tensor cores have a rate."""
    known = dict(topology.gpu.dense_tflops)
    return next((one.dtype for one in spec.inputs if one.dtype in known), next(iter(known)))


def _bytes_in(spec: BoundSpec) -> float:
    """Bytes that collectives of whole tensors must bring into each rank in one call; without rows of experts."""
    whole = sum(
        _TIMES.get(type(node.operation), 0) * math.prod(node.output.shape) * DTYPE_BYTES[node.output.dtype]
        for node in spec.nodes
    )
    return whole * (spec.num_ranks - 1) / spec.num_ranks


def _sent(schedule: Schedule, exchange: Exchange) -> int:
    """Bytes that a rank sends to all its peers."""
    size = DTYPE_BYTES[schedule.buffer(exchange.source or exchange.target).dtype]
    peers = schedule.num_ranks - 1 if exchange.reach is None else exchange.reach
    return exchange.rows * exchange.cols * size * peers
