"""The search space: every structure of a spec, and for each the options of every exchange and every compute group.

Pins narrow it: a pinned field keeps only the options that have the value; a pinned value that is not enumerated (any number
of SMs, any tile) is added to the options.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import product

from tilelink.ir.choices import Choices, ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.collective import Adder, Collective, Landing
from tilelink.ir.counting import packets_sent
from tilelink.ir.enums import Protocol
from tilelink.ir.expand import expand
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.movers import MOVERS, ChunkMover, CommSms, Fused, Issuer, Transfer
from tilelink.ir.nodes import Kind, TileShape
from tilelink.ir.order import Nest
from tilelink.ir.slices import as_carried_out
from tilelink.ir.spec import AllGather, BoundSpec, Combine, Matmul
from tilelink.ir.steps import SMALLEST_DOT
from tilelink.planner import fields
from tilelink.planner.choices import (
    ITEM_TILE,
    REUSED,
    Pin,
    Pins,
    asked_of_all,
    compute_fields,
    exchange_fields,
    group_fields,
    pinned,
)
from tilelink.planner.collectives import collective_names, collective_pins, fits, legal_collectives, operation_of
from tilelink.planner.fields import AnyField
from tilelink.planner.group import Group, group_ops, shareable
from tilelink.planner.rules import item_counts, peer_atomics
from tilelink.planner.structure import Structure
from tilelink.planner.tiles import COMBINE_TILES, STREAM_TILES, matmul_tiles, suits, worth_trying
from topologies.topology import Fabric, Topology

# fields of all options of a relation, whose source tiles make or not: all that they depend on, and most structures have
# relations in common
Known = dict[tuple[Relation, bool], list[dict[AnyField, object]]]

_GROUP = 8  # row tiles that share columns in the L2; the cost model does not tell other numbers apart
_CHUNKS = (1, 2, 4, 8, 16)
_ITEM_ROWS = 128  # at most, of the items that are tried
_SLOTS = (1, 8, 32, 128)
_MOST_SENT = 512 << 10  # packets that a rank sends in a call (LL, 2 x H200): beyond, packets are planned if pinned


def structures(spec: BoundSpec, topology: Topology, pins: Pins, *, piece: bool = False) -> Iterator[Structure]:
    """All structures in which every pin applies to something; all matmuls by tile loops first, by the library last.
    Pins of a `piece` may apply to other pieces."""
    yield from structures_of(spec, topology, pins, ways_of(spec, topology, pins), piece=piece)


def ways_of(spec: BoundSpec, topology: Topology, pins: Pins) -> dict[str, list[Collective]]:
    """Of each collective the ways to carry it out."""
    ways = legal_collectives(spec, topology)
    return {name: _tried(operation_of(spec, name), name, legal, pins) for name, legal in ways}


def structures_of(
    spec: BoundSpec, topology: Topology, pins: Pins, ways: Mapping[str, list[Collective]], *, piece: bool
) -> Iterator[Structure]:
    """Those of these ways."""
    decisions = pins.keys() - REUSED.keys()
    names, options = list(ways), list(ways.values())
    matmuls = [node.output.name for node in spec.nodes if isinstance(node.operation, Matmul)]
    readers = _readers_of_columns(spec)
    known: Known = {}
    for chosen in product(*options):
        collectives = tuple(zip(names, chosen, strict=True))
        if any(how != legal[0] for name, how, legal in _idle(spec, collectives, options)):
            continue
        graphs: dict[frozenset[str], TileGraph] = {}
        for library in _library_sets(matmuls, pins):
            whole = library & readers
            if whole not in graphs:
                graphs[whole] = expand(spec, dict(collectives), whole)
            graph = graphs[whole]
            if any(sends_too_many(graph, one, names, pins) for one in graph.relations()):
                break  # whoever multiplies, as many packets are sent
            if any(relation.in_tiles and relation.source in library for relation in graph.relations()):
                continue
            for shared in _shared(shareable(graph, library), pins):
                loops = tuple((name, name in shared) for name in shareable(graph, library))
                groups = group_ops(graph, library, shared)
                structure = Structure(spec, topology, collectives, library, loops, graph, groups)
                if piece or not decisions or decisions <= _applied(structure, pins, known):
                    yield structure


def _idle(
    spec: BoundSpec, collectives: Sequence[tuple[str, Collective]], options: Sequence[list[Collective]]
) -> Iterator[tuple[str, Collective, list[Collective]]]:
    """Collectives that nobody needs if others are carried out so, with what else they could be."""
    if all(how.adder is Adder.SENDER for _, how in collectives):
        return
    made = {node.output.name for node in as_carried_out(spec, collectives).nodes}
    for (name, how), legal in zip(collectives, options, strict=True):
        if name not in made:
            yield name, how, legal


def joined(spec: BoundSpec, parts: Sequence[Structure], pins: Pins) -> Structure | None:
    """The structure of a spec whose pieces have these, if every pin applies to something in it."""
    chosen = {name: how for part in parts for name, how in part.collectives}
    library = frozenset(name for part in parts for name in part.library)
    shared = {name for part in parts for name, is_shared in part.loops if is_shared}
    structure = _structure(spec, parts[0].topology, chosen, library, shared)
    decisions = pins.keys() - REUSED.keys()
    return structure if not decisions or decisions <= _applied(structure, pins, {}) else None


def structure_with(spec: BoundSpec, topology: Topology, choices: Choices) -> Structure:
    """The structure that these choices are of."""
    library = frozenset(name for name, choice in choices.computes if isinstance(choice.loop, LibraryCompute))
    shared = {name for name, is_shared in choices.loops if is_shared}
    return _structure(spec, topology, dict(choices.collectives), library, shared)


def _structure(
    spec: BoundSpec,
    topology: Topology,
    chosen: Mapping[str, Collective],
    library: frozenset[str],
    shared: AbstractSet[str],
) -> Structure:
    collectives = tuple((name, chosen[name]) for name in collective_names(spec))
    graph = expand(spec, dict(chosen), library & _readers_of_columns(spec))
    can = shareable(graph, library)
    groups = group_ops(graph, library, {name: first for name, first in can.items() if name in shared})
    return Structure(spec, topology, collectives, library, tuple((name, name in shared) for name in can), graph, groups)


def _readers_of_columns(spec: BoundSpec) -> set[str]:
    """What is computed of gathered columns: the library needs the whole matrix."""
    columns = {node.output.name for node in spec.nodes if node.operation == AllGather(1)}
    return {node.output.name for node in spec.nodes if columns & set(node.inputs)}


def _tried(operation: type, name: str, legal: tuple[Collective, ...], pins: Pins) -> list[Collective]:
    """Ways to carry out a collective that have the fields that are pinned; some only if they are asked for."""
    reuses, found = pinned(pins, "", fields.OUTPUTS) is True, []
    for how in legal:
        asked = _left_out(how, legal, gathers=operation is AllGather, reuses=reuses)
        if fits(operation, name, how, pins) and all(pinned(pins, name, field) is not None for field in asked):
            found.append(how)
    return found


def _left_out(how: Collective, legal: tuple[Collective, ...], *, gathers: bool, reuses: bool) -> tuple[AnyField, ...]:
    """Fields that pins must ask for, all of them, or else this way to carry out a collective is not tried."""
    if how.landing is Landing.REUSED and not reuses:
        return (fields.LANDING,)
    if how.in_tiles and how.shots > 1:  # never timed
        return (fields.SHOTS, fields.PROTOCOL)
    if how.in_tiles and gathers:  # one launch takes longer than two, unless the L2 still has the weights (one H200)
        return (fields.MOVER, fields.PROTOCOL)
    if how.protocol is Protocol.LL and replace(how, protocol=Protocol.LAMPORT) in legal:
        return (fields.PROTOCOL,)  # its packets take as long as those of Lamport and carry half as much (one H200)
    return ()


def _sends_many(graph: TileGraph, relation: Relation) -> bool:
    """Whether a rank sends more packets for it than was measured."""
    if not relation.by_packets:
        return False
    packets = packets_sent(relation, graph.values[relation.name].dtype)
    return (relation.num_ranks - 1) * relation.shots * packets > _MOST_SENT


def sends_too_many(graph: TileGraph, relation: Relation, names: Collection[str], pins: Pins) -> bool:
    """The same, unless pins ask for packets of the collective that `relation` carries out."""
    asked = pinned(pins, carried_out(relation, names), fields.PROTOCOL) is not None
    return _sends_many(graph, relation) and not asked


def carried_out(relation: Relation, names: Collection[str]) -> str:
    """Which of these collectives the relation carries out."""
    return relation.name if relation.name in names else relation.name.removesuffix("_whole")


def _shared(can: Mapping[str, str], pins: Pins) -> Iterator[dict[str, str]]:
    """All matmuls that can run in the loop of another one do, or none does; those with a pin as it says."""
    for flag in (True, False) if can else (False,):
        asked = {name: flag if (one := pinned(pins, name, fields.LOOP)) is None else one for name in can}
        if flag or not all(asked.values()) or not can:
            yield {name: first for name, first in can.items() if asked[name]}


def _applied(structure: Structure, pins: Pins, known: Known) -> set[Pin]:
    """Pins for which some value of the structure has the field, with the pinned value: a pin is never passed over.

    A value to which the pins leave no option counts: building the structure then says so. `known`: of relations of other
    structures that were looked at under the same pins.
    """
    return {
        pin
        for name, field, of_all, legal in _held(structure, pins, known)
        for pin in ((name, field), ("", field))[: 1 + of_all]
        if pin in pins and (not legal or pins[pin] in legal)
    }


def _held(structure: Structure, pins: Pins, known: Known) -> Iterator[tuple[str, AnyField, bool, set[object]]]:
    """(name, field, whether pins of all are about it, values) of what is decided; of options, where it is pinned."""
    for (name, field), value in collective_pins(structure.spec, structure.collectives).items():
        yield name, field, True, {value}
    for op in structure.graph.ops():
        if isinstance(op.operation, Matmul):
            yield op.name, fields.COMPUTE, True, {op.name in structure.library}
    for name, shared in structure.loops:
        yield name, fields.LOOP, True, {shared}
    for relation in structure.relations:
        asked = _asked(pins, relation.name, fields.OF_EXCHANGES)
        key = relation, structure.by_tiles(relation.source)
        if asked and key not in known:
            known[key] = list(map(exchange_fields, exchange_options(structure, relation, pins)))
        for field in asked:
            if not known[key] or any(field in one for one in known[key]):
                yield relation.name, field, True, {one[field] for one in known[key] if field in one}
    for group in structure.groups:
        general = asked_of_all(group)
        asked = _asked(pins, group.name, group_fields(structure, group), general)
        options = list(map(compute_fields, compute_options(structure, group, pins))) if asked else []
        for field in asked:
            yield group.name, field, field in general, {one[field] for one in options}


def _asked(
    pins: Pins, name: str, some: Iterable[AnyField], general: Collection[AnyField] | None = None
) -> dict[AnyField, object]:
    """What is pinned of some fields; pins without a name are about those that are `general`, or all."""
    found = ((field, pinned(pins, name, field, of_all=general is None or field in general)) for field in some)
    return {field: value for field, value in found if value is not None}


def _library_sets(matmuls: list[str], pins: Pins) -> Iterator[frozenset[str]]:
    fixed = {name: pinned(pins, name, fields.COMPUTE) for name in matmuls}
    for flags in product((False, True), repeat=len(matmuls)):
        chosen = dict(zip(matmuls, flags, strict=True))
        if all(fixed[name] in (None, flag) for name, flag in chosen.items()):
            yield frozenset(name for name, flag in chosen.items() if flag)


def exchange_options(structure: Structure, relation: Relation, pins: Pins) -> list[ExchangeChoice]:
    """Options for one relation, copy engines first."""
    topology = structure.topology
    if relation.kind is Kind.SHIFT:
        return _bounded_options(relation, topology, pins)
    if relation.kind is Kind.RETURN:
        return _kept([ExchangeChoice(Fused(), Transfer.PUSH, 1, Nest.RANK_MAJOR)], relation.name, pins)
    listed = structure.sent(relation) is not None
    movers = [mover for kind in MOVERS if listed or not kind.listed for mover in kind.tried(topology.gpu)]
    chunks = [n for n in _CHUNKS if (n - 1) * -(-relation.part[0] // n) < relation.part[0]]
    wanted = pinned(pins, relation.name, fields.MOVER)
    if isinstance(wanted, ChunkMover) and wanted.sms < topology.gpu.num_sms:
        movers = [wanted]
    asked = pinned(pins, relation.name, fields.CHUNKS)
    if asked is not None and asked <= relation.part[0]:
        chunks = [asked]
    streams = pinned(pins, relation.name, fields.STREAMS)
    atomics, by_tiles = peer_atomics(topology), structure.by_tiles(relation.source)
    options = []
    for mover, transfer, count, nest in product(movers, Transfer, chunks, Nest):
        if nest is Nest.CHUNK_MAJOR and mover.issuer is Issuer.TILES and count == 1:
            continue
        if not atomics and mover.why_not_without_atomics(transfer, by_tiles=by_tiles):
            continue
        per_peer = streams_per_peer(topology, nest) if streams is None else streams
        if mover.issuer is Issuer.STREAMS:
            options.append(ExchangeChoice(mover, transfer, count, nest, per_peer=per_peer))
        elif streams is None:  # it is pinned of copies
            options.append(ExchangeChoice(mover, transfer, count, nest))
    return _kept(options, relation.name, pins)


def streams_per_peer(topology: Topology, nest: Nest) -> bool:
    """Whether a copy program has a stream for each peer unless a pin says so: where peers have links of their own and get
    their chunks in turns. Where all chunks leave through the same port it was not measured to be faster."""
    return topology.levels[0].fabric is Fabric.FULL_MESH and nest is Nest.CHUNK_MAJOR


def _bounded_options(relation: Relation, topology: Topology, pins: Pins) -> list[ExchangeChoice]:
    """Options for a relation through a bounded number of slots: producers of a few numbers, items from small to large."""
    atomics = peer_atomics(topology)
    rows = relation.part[0]
    producers = [one for kind in MOVERS if kind.issuer is Issuer.PROGRAMS for one in kind.tried(topology.gpu)]
    producers = [one for one in producers if one.sms]
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
    groups = [number or (_GROUP if group.matmuls else 4)]
    ahead = [pinned(pins, group.name, fields.PREFETCH) is not False] if fields.PREFETCH in here else [False]
    tails = [False, True] if fields.TAIL in here else [False]
    counts = [False, True] if fields.COUNT in here and True in ahead else [False]
    sums = [True, False] if fields.SUM in here else [False]
    every = product(_tiles(structure, group, tile), groups, ahead, tails, counts, sums)
    options = [ComputeChoice(TritonLoop(t, g, p, h, late), s) for t, g, p, h, late, s in every]
    asked = _asked(pins, group.name, here, general)
    if fields.OWN in here:
        options += [one for one in map(_own_first, options) if asked.get(fields.OWN) or _has_own(structure, group, one)]
    legal = [one for one in options if _agrees(compute_fields(one), asked)] if asked else options
    # a sum in the epilogue is computed by the tiles of another loop
    folded = [option for option in legal if option.sum_in_epilogue]
    return [option for option in legal if not option.sum_in_epilogue or option is folded[0]]


def _own_first(choice: ComputeChoice) -> ComputeChoice:
    assert isinstance(choice.loop, TritonLoop), "its tiles find rows"
    return replace(choice, loop=replace(choice.loop, own_first=True))


def _has_own(structure: Structure, group: Group, choice: ComputeChoice) -> bool:
    """Whether tiles of own tokens are likely, that could come first."""
    assert isinstance(choice.loop, TritonLoop), "its tiles find rows"
    height, ranks = choice.loop.tile.m, structure.topology.num_ranks
    routings = (axis.routed for axis in group.anchor.axes if axis.routed is not None)
    return any(one.likely_own_tiles(height, ranks) for one in routings)


def _tiles(structure: Structure, group: Group, wanted: TileShape | None) -> list[TileShape]:
    """The tile that is wanted, or those worth trying."""
    if wanted is not None:
        return [wanted] if (wanted.k >= SMALLEST_DOT) is bool(group.matmuls) else []
    written = [axis for axis in group.anchor.axes if not axis.reduction]
    rows, cols = written[0].extent, written[-1].extent
    combines = isinstance(group.anchor.operation, Combine)
    table = matmul_tiles(group.matmuls) if group.matmuls else COMBINE_TILES if combines else STREAM_TILES
    tiles = [tile for tile in table if suits(tile, rows, cols)] or [table[-1]]
    if group.matmuls:
        dtype = structure.graph.values[group.name].dtype
        tiles = [tile for tile in tiles if worth_trying(tile, dtype, structure.topology.gpu, group.matmuls)] or [
            table[-1]
        ]
    if not _leaves(
        structure, group.name
    ):  # nothing but a store comes behind the matmul: level with other loops (one H200)
        tiles = [tile for tile in tiles if tile.warpgroups == 1]
    return tiles


def _leaves(structure: Structure, name: str) -> bool:
    """Whether tiles of `name` are parts for other ranks, so that they are counted, and parts of peers may be added to them."""
    return any(relation.source == name for relation in structure.graph.relations())


def _kept(options: list[ExchangeChoice], name: str, pins: Pins) -> list[ExchangeChoice]:
    """The options that have what is pinned, of the fields that they have."""
    asked = _asked(pins, name, fields.OF_EXCHANGES)
    return [one for one in options if _agrees(exchange_fields(one), asked)] if asked else options


def _agrees(values: Mapping[AnyField, object], asked: Mapping[AnyField, object]) -> bool:
    return all(values.get(field, value) == value for field, value in asked.items())
