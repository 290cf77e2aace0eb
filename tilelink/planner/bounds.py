"""What choices take at least: cheap bounds of the cost model, of one decision each, by which a search passes most over."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from tilelink.ir.graph import Copy, Sum
from tilelink.ir.nodes import CopyEngine, Kind
from tilelink.ir.spec import DTYPE_BYTES, Elementwise, Matmul
from tilelink.planner.choices import ComputeChoice, ExchangeChoice, TritonLoop
from tilelink.planner.cost import DRAG_US, most_boost_us
from tilelink.planner.decisions import Chosen
from tilelink.planner.group import Group
from tilelink.planner.layout import exchange_of
from tilelink.planner.links import COPY_START_US, SUM_LOAD_SHARE, chunk_times
from tilelink.planner.structure import Structure
from tilelink.planner.tile_work import (
    Programs,
    Work,
    flops_us,
    least_tile_us,
    matmul_memory_us,
    stream_memory_us,
)


class Least(NamedTuple):
    """Microseconds at least: on the compute stream, of transfers through the one queue of a rank's mover, beside all that, and
    of busy tensor cores. `first`: share of the loop that makes the source, before the first transfer. `read`: to load what has
    arrived, for each loop without matmuls that does (`read_by`)."""

    compute: float = 0.0
    transfers: float = 0.0
    drag: float = 0.0
    tensor: float = 0.0
    first: float = 0.0
    read: float = 0.0
    read_by: tuple[str, ...] = ()


def least_us(structure: Structure, chosen: Chosen) -> float:
    """What a call with these choices takes at least, whether or not they go together."""
    loops: dict[str, float] = {}
    drag = tensor = longest = 0.0
    for (_, name), option in chosen.items():
        if isinstance(option, ComputeChoice):
            one = _of_group(structure, name, option)
            loops[name] = one.compute
            tensor += one.tensor
    for (_, name), option in chosen.items():
        if isinstance(option, ExchangeChoice):
            one = _of_exchange(structure, name, option)
            drag += one.drag
            for reader in one.read_by:
                option = chosen["compute", reader]
                if isinstance(option, ComputeChoice) and not option.sum_in_epilogue:
                    loops[reader] += one.read
            longest = max(longest, one.transfers + one.first * _made_in(structure, name, loops))
    total = max(sum(loops.values()), longest) + drag
    return total - most_boost_us(total, tensor)


def _made_in(structure: Structure, name: str, loops: dict[str, float]) -> float:
    """What the loop takes that makes the source of relation `name`."""
    relation = structure.graph.relation(name)
    assert relation is not None
    index = structure.maker(relation.source)
    return loops[structure.groups[index].name] if index >= 0 else 0.0


@lru_cache(maxsize=1 << 14)
def _of_exchange(structure: Structure, name: str, choice: ExchangeChoice) -> Least:
    exchange, topology = exchange_of(structure, name, choice), structure.topology
    if isinstance(exchange, str) or exchange.slots:
        return Least()
    relation = structure.graph.relation(name)
    assert relation is not None
    size, peers = DTYPE_BYTES[structure.graph.values[name].dtype], topology.num_ranks - 1
    if not exchange.target:  # tiles load every part once at least: no mover
        link = topology.link_gb_per_s(0, 1) * SUM_LOAD_SHARE
        return Least(transfers=math.prod(relation.part) * size / link / 1e3)
    made = structure.by_tiles(relation.source) or structure.split_source(relation, choice)
    times = chunk_times(topology, exchange, size, made=made)
    copied = isinstance(exchange.mover, CopyEngine)
    hidden = COPY_START_US if choice.per_peer else 0.0
    drag = DRAG_US * peers * exchange.chunks if copied else 0.0
    scattered = relation.kind is Kind.SCATTER and structure.by_tiles(relation.source) and bool(exchange.source)
    first = 1.0 / topology.num_ranks / exchange.chunks if scattered else 0.0
    readers = (structure.groups[index] for index in structure.readers(name))
    streams = tuple(one.name for one in readers if isinstance(one.anchor.operation, Sum | Copy | Elementwise))
    # gathered parts that are read in their place may be read in part, what is summed is read whole
    parts = topology.num_ranks * math.prod(relation.part) * size if relation.kind is Kind.SCATTER else 0
    read = stream_memory_us(parts, topology.gpu)
    return Least(
        transfers=sum(max(0.0, us - hidden) for us in times), drag=drag, first=first, read=read, read_by=streams
    )


@lru_cache(maxsize=1 << 14)
def _of_group(structure: Structure, name: str, choice: ComputeChoice) -> Least:
    group = next(group for group in structure.groups if group.name == name)
    loop, operation = choice.loop, group.anchor.operation
    if not isinstance(loop, TritonLoop) or structure.queue_of(group) is not None or choice.sum_in_epilogue:
        return Least()
    if isinstance(operation, Matmul):
        return _of_matmul(structure, group, loop)
    if isinstance(operation, Sum | Copy | Elementwise):
        return Least(compute=stream_memory_us(_streamed_bytes(structure, group), structure.topology.gpu))
    return Least()


def _of_matmul(structure: Structure, group: Group, loop: TritonLoop) -> Least:
    gpu, graph, tile = structure.topology.gpu, structure.graph, loop.tile
    rows, cols = (axis.extent for axis in group.anchor.axes if not axis.reduction)
    reduction = next(axis.extent for axis in group.anchor.axes if axis.reduction)
    tiles, programs = -(-rows // tile.m) * -(-cols // tile.n), gpu.num_sms * tile.per_sm
    rounds = tiles // programs if loop.halves else -(-tiles // programs)
    work = Work(tile.m, tile.n, 2, group.matmuls, 1, reduction, max(64, tile.k), tile.warpgroups > 1)
    on = Programs(tile.warps, tile.stages, tile.per_sm, beside=False)
    dtype, weights = graph.values[graph.inputs[0]].dtype, group.anchor.reads[1]
    loaded = 0
    if weights.value in graph.inputs and not graph.window(group.anchor, weights):
        loaded = reduction * cols * DTYPE_BYTES[graph.values[weights.value].dtype]
    memory = matmul_memory_us(loaded, gpu) / max(1, rounds)
    tile_us = least_tile_us(work, on, dtype, gpu, memory, prefetch=loop.prefetch)
    tensor = flops_us(work, on, dtype, gpu) * tiles / programs
    return Least(compute=gpu.kernel_launch_us + rounds * tile_us, tensor=tensor)


@lru_cache(maxsize=1 << 10)
def _streamed_bytes(structure: Structure, group: Group) -> int:
    """Bytes that lie in memory of this rank and that every tile of a loop without matmuls loads, each once."""
    graph, found = structure.graph, 0
    read = {one.value: one for one in group.anchor.reads}
    for value, one in read.items():
        relation = graph.relation(value)
        if relation is None and not graph.window(group.anchor, one):
            found += math.prod(graph.values[value].shape) * DTYPE_BYTES[graph.values[value].dtype]
    return found
