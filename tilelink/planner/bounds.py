"""What choices take at least: cheap bounds of the cost model, of one decision each, by which a search passes most over."""

from __future__ import annotations

import math
from typing import NamedTuple

from tilelink.ir.graph import Copy, Sum
from tilelink.ir.nodes import PIECES_SPREAD, CommSms, CopyEngine, Fused, Kind, Transfer
from tilelink.ir.spec import DTYPE_BYTES, Elementwise, Matmul
from tilelink.planner.choices import ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.planner.collective import FUNCTIONS
from tilelink.planner.cost import DRAG_US, most_boost_us
from tilelink.planner.decisions import Chosen, Option
from tilelink.planner.group import Group
from tilelink.planner.layout import exchange_of
from tilelink.planner.library_cost import library_matmul
from tilelink.planner.links import COPY_START_US, FUSED_LOAD_SHARE, FUSED_SHARE, SUM_LOAD_SHARE, chunk_times, library_us
from tilelink.planner.memo import remembered
from tilelink.planner.structure import Structure
from tilelink.planner.tile_cost import STORES_EXPOSED
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
    arrived, for each loop without matmuls that does (`read_by`). `pulled_by`: loops whose tiles load it from peers. `sent`: to
    store at peers what tiles make. `added`: to load what is summed, in the epilogue of other tiles."""

    compute: float = 0.0
    transfers: float = 0.0
    drag: float = 0.0
    tensor: float = 0.0
    even: float = 1.0  # tiles of a program on average, over those of the program that has most
    first: float = 0.0
    read: float = 0.0
    read_by: tuple[str, ...] = ()
    pulled_by: tuple[str, ...] = ()
    sent: float = 0.0
    added: float = 0.0


def least_us(structure: Structure, chosen: Chosen) -> float:
    """What a call with these choices takes at least, whether or not they go together."""
    loops: dict[str, float] = {}
    even: dict[str, float] = {}
    drag = tensor = longest = 0.0
    calls = _library_collectives_us(structure)
    exchanges = []
    for (_, name), option in chosen.items():
        if isinstance(option, ComputeChoice):
            one = _of_group(structure, name, option)
            loops[name], even[name] = one.compute, one.even
            tensor += one.tensor
        else:
            exchanges.append((name, _of_exchange(structure, name, option)))
    for name, one in exchanges:
        drag += one.drag
        _load(structure, chosen, loops, even, name, one)
        longest = max(longest, one.transfers + one.first * _made_in(structure, name, loops))
    for name, one in exchanges:
        if one.sent:
            _send(structure, chosen, loops, name, one.sent)
    total = max(calls + sum(loops.values()), longest) + drag
    return total - most_boost_us(total, tensor)


def _load(
    structure: Structure, chosen: Chosen, loops: dict[str, float], even: dict[str, float], name: str, one: Least
) -> None:
    """Add to loops what they take to load what an exchange brings."""
    for reader in one.read_by:
        loop = chosen["compute", reader]
        assert isinstance(loop, ComputeChoice)
        if not loop.sum_in_epilogue:
            loops[reader] += one.read
        elif (maker := _maker(structure, name)) and not _folded(chosen, maker):
            turns = _turns(chosen, maker)
            loops[maker] = max(loops[maker], one.added, 0.0 if turns else loops[maker] * even[maker] + one.added)
    for reader in one.pulled_by:
        loop = chosen["compute", reader]
        if isinstance(loop, ComputeChoice) and not loop.sum_in_epilogue:
            loops[reader] = max(loops[reader], _pulled(structure, name, reader, loop))


def _send(structure: Structure, chosen: Chosen, loops: dict[str, float], name: str, sent: float) -> None:
    """Add to the loop that makes the source of an exchange what stores to peers hold up at least."""
    maker = _maker(structure, name)
    if not maker or _folded(chosen, maker):
        return  # own tiles send: they hide most of it
    if _turns(chosen, maker):
        ranks = structure.topology.num_ranks
        loops[maker] += max(0.0, (ranks - 1) / ranks * sent - PIECES_SPREAD * loops[maker])
    else:
        loops[maker] += STORES_EXPOSED * sent


def _maker(structure: Structure, name: str) -> str:
    """The group that makes the source of relation `name`, empty for an input."""
    relation = structure.graph.relation(name)
    assert relation is not None
    index = structure.maker(relation.source)
    return structure.groups[index].name if index >= 0 else ""


def _folded(chosen: Chosen, group: str) -> bool:
    """Whether the group runs in the epilogue of another one."""
    option = chosen["compute", group]
    return isinstance(option, ComputeChoice) and option.sum_in_epilogue


def _turns(chosen: Chosen, group: str) -> bool:
    option = chosen["compute", group]
    assert isinstance(option, ComputeChoice)
    return isinstance(option.loop, TritonLoop) and option.loop.tile.warpgroups > 1


@remembered
def _library_collectives_us(structure: Structure) -> float:
    """Collectives that the library carries out one after the other on the compute stream."""
    values, total = structure.graph.values, 0.0
    for relation in structure.graph.relations():
        if relation.library and relation.protocol is None:
            sizes = (math.prod(values[name].shape) for name in (relation.source, relation.name))
            num_bytes = max(sizes) * DTYPE_BYTES[values[relation.name].dtype]
            total += library_us(structure.topology, FUNCTIONS[relation.kind], num_bytes)
    return total


@remembered
def library_least_us(structure: Structure) -> tuple[float, float]:
    """What the library's collectives and matmuls take at least, and how long its tensor cores are busy."""
    groups = [group for at, group in enumerate(structure.groups) if structure.is_library(at)]
    found = [_of_library(structure, group) for group in groups]
    return _library_collectives_us(structure) + sum(x.compute for x in found), sum(x.tensor for x in found)


def alone_us(structure: Structure, name: str, option: Option) -> float:
    """What one decision takes at least by itself: of an exchange its transfers, and what loads them."""
    if isinstance(option, ComputeChoice):
        return _of_group(structure, name, option).compute
    one = _of_exchange(structure, name, option)
    return one.transfers + one.drag + one.read


def taken_sms(structure: Structure, chosen: Chosen) -> tuple[int, ...]:
    """How many SMs the tiles of a loop may lack: those of programs that communicate, and of kernels that wait on side streams."""
    topology, movers = structure.topology, {0}
    for option in chosen.values():
        if isinstance(option, ExchangeChoice):
            waits = option.transfer is Transfer.PULL or not topology.gpu.stream_wait_value
            match option.mover:
                case CommSms(num_sms):
                    numbers = [0, num_sms]
                case CopyEngine():
                    numbers = [0, topology.num_ranks - 1 if option.per_peer else 1] if waits else [0]
                case Fused():
                    numbers = [0]
            movers = {one + more for one in movers for more in numbers}
    return tuple(sorted(movers))


@remembered
def may_halve(structure: Structure, name: str, choice: ComputeChoice, taken: tuple[int, ...]) -> bool:
    """Whether the last wave of a matmul may be halves, where tiles lack one of these numbers of SMs. True if it is not known."""
    group, loop = next(group for group in structure.groups if group.name == name), choice.loop
    if not isinstance(loop, TritonLoop) or not isinstance(group.anchor.operation, Matmul):
        return True
    rows, cols = (axis.extent for axis in group.anchor.axes if not axis.reduction)
    tile, ranks = loop.tile, structure.topology.num_ranks
    if rows % (tile.m * ranks) or cols % (tile.n * ranks):
        return True  # parts are cut by themselves
    tiles, sms = rows // tile.m * cols // tile.n, structure.topology.gpu.num_sms
    return any(
        0 < 2 * (tiles % programs) <= programs for programs in ((sms - n) * tile.per_sm for n in taken if n < sms)
    )


def _made_in(structure: Structure, name: str, loops: dict[str, float]) -> float:
    """What the loop takes that makes the source of relation `name`."""
    maker = _maker(structure, name)
    return loops[maker] if maker else 0.0


@remembered
def _of_exchange(structure: Structure, name: str, choice: ExchangeChoice) -> Least:
    exchange, topology = exchange_of(structure, name, choice), structure.topology
    if isinstance(exchange, str) or exchange.slots:
        return Least()
    relation = structure.graph.relation(name)
    assert relation is not None
    size, peers = DTYPE_BYTES[structure.graph.values[name].dtype], topology.num_ranks - 1
    readers = [structure.groups[index] for index in structure.readers(name)]
    streams = tuple(one.name for one in readers if isinstance(one.anchor.operation, Sum | Copy | Elementwise))
    scatters, part = relation.kind is Kind.SCATTER, math.prod(relation.part) * size
    link = topology.link_gb_per_s(0, 1)
    if not exchange.target:  # tiles load every part once at least: no mover
        added = peers * part / (link * FUSED_LOAD_SHARE) / 1e3
        moved = (peers if scatters else 1) * part / (link * SUM_LOAD_SHARE) / 1e3
        pulled = tuple(one.name for one in readers)
        return Least(transfers=moved, pulled_by=pulled, added=added, read_by=streams)
    made = structure.by_tiles(relation.source) or structure.split_source(relation, choice)
    times = chunk_times(topology, exchange, size, made=made)
    copied = isinstance(exchange.mover, CopyEngine)
    hidden = COPY_START_US if choice.per_peer else 0.0
    drag = DRAG_US * peers * exchange.chunks if copied else 0.0
    scattered = scatters and structure.by_tiles(relation.source) and bool(exchange.source)
    first = 1.0 / topology.num_ranks / exchange.chunks if scattered else 0.0
    # gathered parts that are read in their place may be read in part, what is summed is read whole
    read = stream_memory_us(topology.num_ranks * part if scatters else 0, topology.gpu)
    stored = peers * part if not exchange.source and structure.by_tiles(relation.source) else 0
    return Least(
        transfers=sum(max(0.0, us - hidden) for us in times),
        drag=drag,
        first=first,
        read=read,
        read_by=streams,
        sent=stored / (link * FUSED_SHARE) / 1e3,
        added=peers * part / topology.gpu.memory_gb_per_s / 1e3 if scatters else 0.0,
    )


@remembered
def _pulled(structure: Structure, name: str, reader: str, choice: ComputeChoice) -> float:
    """What tiles of a matmul take at least that load the parts of relation `name` from peers: every tile all that it needs."""
    relation, loop = structure.graph.relation(name), choice.loop
    anchor = next(group for group in structure.groups if group.name == reader).anchor
    read = next((one for one in anchor.reads if one.value == name), None)
    assert relation is not None
    if read is None or not isinstance(anchor.operation, Matmul) or not isinstance(loop, TritonLoop):
        return 0.0
    topology, parts = structure.topology, structure.topology.num_ranks if relation.kind is Kind.GATHER else 1
    written = [axis for axis in anchor.axes if not axis.reduction]
    tile = dict(zip((axis.name for axis in written), (loop.tile.m, loop.tile.n), strict=True))
    elements = DTYPE_BYTES[structure.graph.values[name].dtype]
    for axis in anchor.axes:
        if axis.name in read.axes:
            elements *= min(tile[axis.name], axis.extent) if axis.name in tile else axis.extent // parts
    tiles = math.prod(-(-axis.extent // tile[axis.name]) for axis in written)
    return tiles * elements / (topology.link_gb_per_s(0, 1) * FUSED_LOAD_SHARE) / 1e3


@remembered
def _of_group(structure: Structure, name: str, choice: ComputeChoice) -> Least:
    group = next(group for group in structure.groups if group.name == name)
    loop, operation = choice.loop, group.anchor.operation
    if isinstance(loop, LibraryCompute):
        return _of_library(structure, group)
    if not isinstance(loop, TritonLoop) or structure.queue_of(group) is not None or choice.sum_in_epilogue:
        return Least()
    if isinstance(operation, Matmul):
        return _of_matmul(structure, group, loop)
    if isinstance(operation, Sum | Copy | Elementwise):
        return Least(compute=stream_memory_us(_streamed_bytes(structure, group), structure.topology.gpu))
    return Least()


def _of_library(structure: Structure, group: Group) -> Least:
    """A matmul of the library in one call; one in pieces takes more, but not more than this in each case."""
    graph, anchor = structure.graph, group.anchor
    fed = graph.relation(anchor.reads[0].value)
    pieces = any(one.source == group.name and one.kind is Kind.SCATTER for one in structure.relations)
    if pieces or (fed is not None and not structure.is_plain(fed)):
        return Least()
    rows, cols = (axis.extent for axis in anchor.axes if not axis.reduction)
    reduction = next(axis.extent for axis in anchor.axes if axis.reduction)
    dtype = graph.values[anchor.reads[1].value].dtype
    found = library_matmul(structure.topology, rows, cols, reduction, dtype)
    return Least(compute=structure.topology.gpu.kernel_launch_us + found.total_us, tensor=found.tensor_us)


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
    return Least(
        compute=gpu.kernel_launch_us + rounds * tile_us, tensor=tensor, even=tiles / programs / -(-tiles // programs)
    )


@remembered
def _streamed_bytes(structure: Structure, group: Group) -> int:
    """Bytes that lie in memory of this rank and that tiles of a loop without matmuls load or store, each once."""
    graph, found = structure.graph, 0
    read = {one.value: one for one in group.anchor.reads}
    for value, one in read.items():
        relation = graph.relation(value)
        if relation is None and not graph.window(group.anchor, one):
            found += math.prod(graph.values[value].shape) * DTYPE_BYTES[graph.values[value].dtype]
    if structure.is_kept(group.name):
        found += math.prod(graph.values[group.name].shape) * DTYPE_BYTES[graph.values[group.name].dtype]
    return found
