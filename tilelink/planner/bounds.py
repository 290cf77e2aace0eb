"""What choices take at least: cheap bounds of the cost model, of one decision each, by which a search passes most over."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tilelink.ir.nodes import CopyEngine, Kind
from tilelink.ir.spec import DTYPE_BYTES, Matmul
from tilelink.planner.choices import ComputeChoice, ExchangeChoice, TritonLoop
from tilelink.planner.cost import DRAG_US, most_boost_us
from tilelink.planner.decisions import Chosen
from tilelink.planner.layout import exchange_of
from tilelink.planner.links import COPY_START_US, chunk_times
from tilelink.planner.structure import Structure
from tilelink.planner.tile_cost import Programs, Work, flops_us, least_tile_us, matmul_memory_us


class Least(NamedTuple):
    """Microseconds at least: on the compute stream, of transfers through the one queue of a rank's mover, beside all that,
    and of busy tensor cores."""

    compute: float = 0.0
    transfers: float = 0.0
    drag: float = 0.0
    tensor: float = 0.0


def least_us(structure: Structure, chosen: Chosen) -> float:
    """What a call with these choices takes at least, whether or not they go together."""
    compute = drag = tensor = longest = 0.0
    for (_, name), option in chosen.items():
        if isinstance(option, ExchangeChoice):
            one = _of_exchange(structure, name, option)
            longest = max(longest, one.transfers)
        else:
            one = _of_group(structure, name, option)
            compute += one.compute
        drag += one.drag
        tensor += one.tensor
    total = max(compute, longest) + drag
    return total - most_boost_us(total, tensor)


@lru_cache(maxsize=1 << 14)
def _of_exchange(structure: Structure, name: str, choice: ExchangeChoice) -> Least:
    exchange, topology = exchange_of(structure, name, choice), structure.topology
    if isinstance(exchange, str) or exchange.slots:
        return Least()
    relation = structure.graph.relation(name)
    assert relation is not None
    size = DTYPE_BYTES[structure.graph.values[name].dtype]
    made = structure.by_tiles(relation.source) or structure.split_source(relation, choice)
    times = chunk_times(topology, exchange, size, made=made)
    if not exchange.target:  # tiles load it: no mover
        times = []
    copied = isinstance(exchange.mover, CopyEngine)
    hidden = COPY_START_US if choice.per_peer else 0.0
    drag = DRAG_US * (topology.num_ranks - 1) * exchange.chunks if copied else 0.0
    return Least(transfers=sum(max(0.0, us - hidden) for us in times), drag=drag)


@lru_cache(maxsize=1 << 14)
def _of_group(structure: Structure, name: str, choice: ComputeChoice) -> Least:
    group = next(group for group in structure.groups if group.name == name)
    loop, gpu, graph = choice.loop, structure.topology.gpu, structure.graph
    if not isinstance(loop, TritonLoop) or not isinstance(group.anchor.operation, Matmul):
        return Least()
    relation = graph.relation(group.anchor.reads[0].value)
    if relation is not None and relation.kind is Kind.SHIFT:
        return Least()
    rows, cols = (axis.extent for axis in group.anchor.axes if not axis.reduction)
    reduction = next(axis.extent for axis in group.anchor.axes if axis.reduction)
    tile = loop.tile
    tiles, programs = -(-rows // tile.m) * -(-cols // tile.n), gpu.num_sms * tile.per_sm
    rounds = tiles // programs if loop.halves else -(-tiles // programs)
    together = _together(structure, name)
    work = Work(tile.m, tile.n, 2, together[1], together[0], reduction, max(64, tile.k), tile.warpgroups > 1)
    on = Programs(tile.warps, tile.stages, tile.per_sm, beside=False)
    dtype = graph.values[graph.inputs[0]].dtype
    weights = group.anchor.reads[1]
    loaded = 0
    if weights.value in graph.inputs and not graph.window(group.anchor, weights):
        loaded = reduction * cols * DTYPE_BYTES[graph.values[weights.value].dtype]
    memory = matmul_memory_us(loaded, gpu) / max(1, rounds)
    tile_us = least_tile_us(work, on, dtype, gpu, memory, prefetch=loop.prefetch)
    return Least(compute=rounds * tile_us, tensor=flops_us(work, on, dtype, gpu) * tiles / programs)


def _together(structure: Structure, name: str) -> tuple[int, int]:
    """Loops over k of a tile, and the matmuls in each."""
    group = next(group for group in structure.groups if group.name == name)
    return 1, group.matmuls
