"""The options of exchanges and of tile loops: every value of their fields that is worth trying, and all that are pinned."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

from tilelink.ir.choices import ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.enums import Tail
from tilelink.ir.graph import Relation
from tilelink.ir.movers import MOVERS, ChunkMover, CommSms, CopyWarps, Fused, Issuer, Transfer
from tilelink.ir.nodes import Kind, TileShape
from tilelink.ir.order import Cut, Nest
from tilelink.ir.routed import Routed
from tilelink.ir.spec import DTYPE_BYTES, Attend, Combine
from tilelink.ir.steps import SMALLEST_DOT
from tilelink.planner import fields
from tilelink.planner.choices import (
    ITEM_TILE,
    Pins,
    asked_of_all,
    compute_fields,
    exchange_fields,
    group_fields,
    pinned,
)
from tilelink.planner.fields import AnyField
from tilelink.planner.group import Group
from tilelink.planner.rules import item_counts, peer_atomics
from tilelink.planner.structure import Structure
from tilelink.planner.tile_work import read_again
from tilelink.planner.tiles import (
    COMBINE_TILES,
    STREAM_TILES,
    attention_tiles,
    matmul_tiles,
    not_low,
    suits,
    worth_trying,
)
from topologies.topology import Fabric, Topology

_GROUP = 8  # row tiles that share columns in the L2; the cost model does not tell other numbers apart
# row tiles of 128 columns where rows follow a routing: as many as an expert has, so that its weights are loaded once for all of
# them; few where most of them stays in the L2 anyway (12 rows, 2 x H200, evenly spread and hot seven times)
_GROUPS_OF_EXPERTS, _GROUP_COLS = (2, 8), 128
_CHUNKS = (1, 2, 4, 8, 16)
_ROWS_TOGETHER = 64  # tiles of rows of a head: about all
_ITEM_ROWS = 128  # at most, of the items that are tried
_SLOTS = (1, 8, 32, 128)


def pinned_of(
    pins: Pins, name: str, some: Iterable[AnyField], general: Collection[AnyField] | None = None
) -> dict[AnyField, object]:
    """What is pinned of some fields; pins without a name are about those that are `general`, or all."""
    found = ((field, pinned(pins, name, field, of_all=general is None or field in general)) for field in some)
    return {field: value for field, value in found if value is not None}


def exchange_options(
    structure: Structure, relation: Relation, pins: Pins, *, every: bool = False
) -> list[ExchangeChoice]:
    """Options for one relation, copy engines first; with `every`, those as well that are planned only if pinned."""
    topology = structure.topology
    if relation.kind is Kind.SHIFT:
        return _bounded_options(relation, topology, pins)
    if relation.kind is Kind.RETURN:
        return _kept([ExchangeChoice(Fused(), one, 1, Nest.RANK_MAJOR) for one in Transfer], relation.name, pins)
    listed = structure.sent(relation) is not None
    kinds = [kind for kind in MOVERS if (listed or not kind.listed) and kind.issuer is not Issuer.WARPS]
    kinds = [kind for kind in kinds if kind.crosses_nodes == (topology.num_nodes > 1)]
    if topology.ranks_per_half == topology.ranks_per_node:
        kinds = [kind for kind in kinds if kind.crosses_nodes or not kind.along_rails]
    movers = [mover for kind in kinds for mover in kind.tried(topology.gpu)]
    chunks = _cuts(structure, relation, pins)
    wanted = pinned(pins, relation.name, fields.MOVER)
    movers = [mover for mover in movers if every or not mover.only_pinned]
    if isinstance(wanted, ChunkMover) and wanted.sms < topology.gpu.num_sms:
        movers = [wanted]
    if relation.kind is Kind.GATHER and wanted is None:  # several programs would put no faster
        movers = [mover for mover in movers if not mover.along_rails or mover.library_sms or mover == mover.small]
    streams, asked = pinned(pins, relation.name, fields.STREAMS), pinned(pins, relation.name, fields.CUT)
    atomics, by_tiles = peer_atomics(topology), structure.by_tiles(relation.source)
    options = []
    for mover, transfer, (cut, count), nest in product(movers, Transfer, chunks, Nest):
        if nest is Nest.CHUNK_MAJOR and mover.issuer is Issuer.TILES and count == 1:
            continue
        if not atomics and mover.why_not_without_atomics(transfer, by_tiles=by_tiles):
            continue
        if mover.along_rails and nest is Nest.CHUNK_MAJOR and pinned(pins, relation.name, fields.NEST) is None:
            continue
        copied = mover.issuer is Issuer.STREAMS and transfer is Transfer.PUSH
        if (
            cut is Cut.COLUMNS and not copied and asked is None
        ):  # where they are asked for, a rule says why they are illegal
            continue
        per_peer = streams_per_peer(topology, nest) if streams is None else streams
        if mover.issuer is Issuer.STREAMS:
            options.append(ExchangeChoice(mover, transfer, count, nest, per_peer=per_peer, cut=cut))
        elif streams is None:  # it is pinned of copies
            options.append(ExchangeChoice(mover, transfer, count, nest, cut=cut))
    if streams is None and wanted in (None, CopyWarps()):
        options += _by_warps(structure, relation)
    return _kept(options, relation.name, pins)


def _by_warps(structure: Structure, relation: Relation) -> list[ExchangeChoice]:
    """By warps beside tiles of attention, head by head, on GPUs whose programs have warpgroups that share tiles."""
    width, gpu = structure.head_of(relation), structure.topology.gpu
    if not width or not gpu.arch.startswith("sm_9") or structure.by_tiles(relation.source):
        return []
    heads = relation.part[1] // width
    cut = Cut.COLUMNS if heads > 1 else None
    return [ExchangeChoice(CopyWarps(), Transfer.PUSH, heads, Nest.CHUNK_MAJOR, cut=cut)]


def _cuts(structure: Structure, relation: Relation, pins: Pins) -> list[tuple[Cut | None, int]]:
    """What the chunks of a part are and how many; what they are is open where a routing finds rows in all parts."""
    asked = pinned(pins, relation.name, fields.CHUNKS)

    def counts(extent: int, few: Sequence[int]) -> list[int]:
        if asked is not None and asked <= extent:
            return [asked]
        return [n for n in few if (n - 1) * -(-extent // n) < extent]

    rows = counts(relation.part[0], _CHUNKS)
    if relation.kind is not Kind.GATHER or not (structure.by_routing(relation) or structure.head_of(relation)):
        return [(None, n) for n in rows]
    width, wanted = structure.head_of(relation), pinned(pins, relation.name, fields.CUT)
    if width:  # a tile needs all rows of one head
        found = [(Cut.ROWS if n > 1 else None, n) for n in (rows if asked is not None else rows[:1])]
        found += (
            (Cut.COLUMNS, n) for n in counts(relation.part[1], _CHUNKS) if n > 1 and not relation.part[1] % (n * width)
        )
        return [(cut, n) for cut, n in found if wanted in (None, cut)]
    found = [(Cut.ROWS if n > 1 else None, n) for n in rows]
    if not structure.by_tiles(relation.source) and len(relation.part) == 2:
        found += ((Cut.COLUMNS, n) for n in counts(relation.part[1], _CHUNKS) if n > 1)
    return [(cut, n) for cut, n in found if wanted in (None, cut)]


def streams_per_peer(topology: Topology, nest: Nest) -> bool:
    """Whether a copy program has a stream for each peer unless a pin says so: where peers have links of their own and get
    their chunks in turns. Where all chunks leave through the same port it was not measured to be faster."""
    return topology.levels[0].fabric is Fabric.FULL_MESH and nest is Nest.CHUNK_MAJOR


def _bounded_options(relation: Relation, topology: Topology, pins: Pins) -> list[ExchangeChoice]:
    """Options for a relation through a bounded number of slots: producers of a few numbers, items from small to large."""
    atomics = peer_atomics(topology)
    rows = relation.part[0]
    kinds = [kind for kind in MOVERS if kind.issuer is Issuer.PROGRAMS and not kind.listed]
    producers = [one for kind in kinds for one in kind.tried(topology.gpu)]
    producers = producers or [CommSms(1)]
    counts = [count for count in item_counts(rows) if -(-rows // count) <= _ITEM_ROWS]
    slots = [n for n in _SLOTS if n == 1 or n < 2 * counts[0]]
    wanted = pinned(pins, relation.name, fields.MOVER)
    if isinstance(wanted, ChunkMover) and 0 < wanted.sms < topology.gpu.num_sms:
        producers = [wanted]
    if not atomics:
        producers = [one for one in producers if not one.why_not_without_atomics(Transfer.PUSH, by_tiles=False)]
    items, places = pinned(pins, relation.name, fields.CHUNKS), pinned(pins, relation.name, fields.SLOTS)
    counts = counts if items is None or items > rows else [items]
    slots = slots if places is None else [places]
    consumers = pinned(pins, relation.name, fields.CONSUMERS) or 0
    options = [
        ExchangeChoice(some, Transfer.PUSH, count, Nest.RANK_MAJOR, place, consumers)
        for some, count, place in product(producers, counts, slots)
    ]
    return _kept(options, relation.name, pins)


def compute_options(structure: Structure, group: Group, pins: Pins) -> list[ComputeChoice]:
    """Options for one group, large tiles first."""
    here, general = group_fields(structure, group), asked_of_all(group)
    if not here:
        return [ComputeChoice(TritonLoop(ITEM_TILE, 1, False), False)]
    if group.anchor.name in structure.library:
        return [ComputeChoice(LibraryCompute(), False)]
    tile = pinned(pins, group.name, fields.TILE, of_all=fields.TILE in general)
    number = pinned(pins, group.name, fields.GROUP, of_all=fields.GROUP in general)
    attend = group.anchor.operation

    def groups(tile: TileShape) -> list[int]:
        if number is not None:
            return [number]
        return list(_heads_together(attend)) if isinstance(attend, Attend) else [_group(structure, group, tile)]

    ahead = [pinned(pins, group.name, fields.PREFETCH) is not False] if fields.PREFETCH in here else [False]
    tails = list(Tail) if fields.TAIL in here else [Tail.WHOLE]
    counts = [False, True] if fields.COUNT in here and True in ahead else [False]
    sums = [True, False] if fields.SUM in here else [False]
    tiles = [(one, number) for one in _tiles(structure, group, tile) for number in groups(one)]
    every = product(tiles, ahead, tails, counts, sums)
    options = [ComputeChoice(TritonLoop(*one, p, h, late), s) for one, p, h, late, s in every]
    asked = pinned_of(pins, group.name, here, general)
    if fields.OWN in here:
        options += [one for one in map(_own_first, options) if asked.get(fields.OWN) or _has_own(structure, group, one)]
    legal = [one for one in options if _agrees(compute_fields(one), asked)] if asked else options
    # a sum in the epilogue is computed by the tiles of another loop
    folded = [option for option in legal if option.sum_in_epilogue]
    return [option for option in legal if not option.sum_in_epilogue or option is folded[0]]


def _group(structure: Structure, group: Group, tile: TileShape) -> int:
    """Row tiles that are walked together."""
    if not group.matmuls:
        return 4
    routings = _routings(group)
    if not routings:
        return _GROUP
    least, most = _GROUPS_OF_EXPERTS
    dtype = structure.graph.values[group.name].dtype
    weights = group.matmuls * math.prod(axis.extent for axis in group.anchor.axes if axis.routed is None)
    weights *= DTYPE_BYTES[dtype]
    if 2 * read_again(weights, structure.topology.gpu) < weights:
        return least
    tiles = round(routings[0].rows_of_expert) // tile.m
    fit = min(most, max(least, 1 << max(0, tiles.bit_length() - 1)))
    return fit * max(1, tile.n // _GROUP_COLS)


def _routings(group: Group) -> list[Routed]:
    return [axis.routed for axis in group.anchor.axes if axis.routed is not None]


def _heads_together(attend: Attend) -> Iterator[int]:
    """Heads whose rows are walked together: those that share keys; of several sequences, rows of a head. With a causal mask late
    rows take longest: each program has some of these, and early ones, where rows of many heads are walked together."""
    number = attend.shared if attend.sequences == 1 else _ROWS_TOGETHER
    yield number
    while attend.causal and attend.sequences == 1 and number < attend.heads:
        number = min(2 * number, attend.heads)
        yield number


def _own_first(choice: ComputeChoice) -> ComputeChoice:
    assert isinstance(choice.loop, TritonLoop), "its tiles find rows"
    return replace(choice, loop=replace(choice.loop, own_first=True))


def _has_own(structure: Structure, group: Group, choice: ComputeChoice) -> bool:
    """Whether tiles of own tokens are likely, that could come first; where that was not measured to be slower."""
    assert isinstance(choice.loop, TritonLoop), "its tiles find rows"
    height, ranks = choice.loop.tile.m, structure.topology.num_ranks
    routings = _routings(group)
    # experts of ranks: 128 of them, 8,192 tokens took 878 us with own tiles first, 750 without (2 x H200): rows of other ranks
    # then leave all at once
    return any(one.parts == 1 and one.likely_own_tiles(height, ranks) for one in routings)


def _tiles(structure: Structure, group: Group, wanted: TileShape | None) -> list[TileShape]:
    """The tile that is wanted, or those worth trying."""
    attend = group.anchor.operation
    if wanted is not None:
        of_a_head = not isinstance(attend, Attend) or wanted.n == attend.width
        return [wanted] if (wanted.k >= SMALLEST_DOT) is group.deep and of_a_head else []
    if isinstance(attend, Attend):
        queries, keys = (structure.graph.values[read.value] for read in group.anchor.reads[:2])
        return attention_tiles(attend, queries.shape[0], keys.shape[0], queries.dtype, structure.topology.gpu)
    written = [axis for axis in group.anchor.axes if not axis.reduction]
    rows, cols = written[0].extent, written[-1].extent
    combines = isinstance(group.anchor.operation, Combine)
    table: tuple[TileShape, ...] = COMBINE_TILES if combines else STREAM_TILES
    of_expert = 0.0
    if group.matmuls:
        routed = next(iter(_routings(group)), None)
        of_expert = routed.rows_of_expert if routed is not None else 0.0
        table = matmul_tiles(group.matmuls, of_expert)
    tiles = [tile for tile in table if suits(tile, rows, cols)] or [table[-1]]
    if group.matmuls:
        dtype = structure.graph.values[group.name].dtype
        fit = [tile for tile in tiles if worth_trying(tile, dtype, structure.topology.gpu, group.matmuls)]
        tiles = fit or [table[-1]]
    if not _leaves(
        structure, group.name
    ):  # nothing but a store comes behind the matmul: level with other loops (one H200)
        tiles = [tile for tile in tiles if tile.warpgroups == 1]
    return not_low(tiles, of_expert)


def _leaves(structure: Structure, name: str) -> bool:
    """Whether tiles of `name` are parts for other ranks, so that they are counted, and parts of peers may be added to them."""
    return any(relation.source == name for relation in structure.graph.relations())


def _kept(options: list[ExchangeChoice], name: str, pins: Pins) -> list[ExchangeChoice]:
    """The options that have what is pinned, of the fields that they have."""
    asked = pinned_of(pins, name, fields.OF_EXCHANGES)
    return [one for one in options if _agrees(exchange_fields(one), asked)] if asked else options


def _agrees(values: Mapping[AnyField, object], asked: Mapping[AnyField, object]) -> bool:
    return all(values.get(field, value) == value for field, value in asked.items())
