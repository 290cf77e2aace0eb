"""The search space: every structure of a spec, and for each the options of every exchange and every compute group.

Pins narrow it: a pinned field keeps only the options whose text equals the pin; a pinned value that is not enumerated
(any number of SMs, any tile) is added to the options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import product

from tilelink.errors import LARGEST_SIZE
from tilelink.ir.choices import Choices, ComputeChoice, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.collective import Collective, Landing
from tilelink.ir.counting import packets_sent
from tilelink.ir.enums import Protocol
from tilelink.ir.expand import expand
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.movers import MOVERS, CommSms, Issuer, Transfer, parsed_mover
from tilelink.ir.nodes import Kind, TileShape
from tilelink.ir.order import Nest
from tilelink.ir.spec import AllGather, BoundSpec, Matmul
from tilelink.ir.steps import SMALLEST_DOT
from tilelink.planner.choices import (
    EXCHANGE_FIELDS,
    ITEM_TILE,
    OUTPUTS,
    REUSED,
    compute_fields,
    exchange_fields,
    loop_text,
    pinned,
)
from tilelink.planner.collectives import collective_fields, collective_names, fits, legal_collectives, operation_of
from tilelink.planner.fields import asked_of_all, group_fields
from tilelink.planner.group import Group, group_ops, shareable
from tilelink.planner.rules import item_counts, peer_atomics
from tilelink.planner.structure import Structure
from tilelink.planner.tiles import STREAM_TILES, matmul_tiles, suits, worth_trying
from topologies.topology import Fabric, Topology

Pins = Mapping[str, str]
Known = tuple[Relation, bool]  # a relation, and whether tiles make its source: all that its options depend on
Texts = dict[Known, list[dict[str, str]]]  # fields of all options: most structures have relations in common

_GROUP = 8  # row tiles that share columns in the L2; the cost model does not tell other numbers apart
_CHUNKS = (1, 2, 4, 8, 16)
_ITEM_ROWS = 128  # at most, of the items that are tried
_SLOTS = (1, 8, 32, 128)
_MOST_SENT = 512 << 10  # packets that a rank sends in a call (LL, 2 x H200): beyond, packets are planned if pinned


def structures(spec: BoundSpec, topology: Topology, pins: Pins, *, piece: bool = False) -> Iterator[Structure]:
    """All structures in which every pin applies to something; all matmuls by tile loops first, by the library last.
    Pins of a `piece` may apply to other pieces."""
    decisions = set(pins) - {OUTPUTS}
    ways = legal_collectives(spec, topology)
    names = [name for name, _ in ways]
    options = [_tried(operation_of(spec, name), name, legal, pins) for name, legal in ways]
    matmuls = [node.output.name for node in spec.nodes if isinstance(node.operation, Matmul)]
    readers = _readers_of_columns(spec)
    texts: Texts = {}
    for chosen in product(*options):
        collectives = tuple(zip(names, chosen, strict=True))
        graphs: dict[frozenset[str], TileGraph] = {}
        for library in _library_sets(matmuls, pins):
            whole = library & readers
            if whole not in graphs:
                graphs[whole] = expand(spec, dict(collectives), whole)
            graph = graphs[whole]
            if any(
                _sends_many(graph, one) and not _sends_as_asked(one, collectives, pins) for one in graph.relations()
            ):
                break  # whoever multiplies, as many packets are sent
            if any(relation.in_tiles and relation.source in library for relation in graph.relations()):
                continue
            for shared in _shared(shareable(graph, library), pins):
                loops = tuple((name, name in shared) for name in shareable(graph, library))
                groups = group_ops(graph, library, shared)
                structure = Structure(spec, topology, collectives, library, loops, graph, groups)
                if piece or not decisions or decisions <= _applied(structure, pins, texts):
                    yield structure


def joined(spec: BoundSpec, parts: Sequence[Structure], pins: Pins) -> Structure | None:
    """The structure of a spec whose pieces have these, if every pin applies to something in it."""
    chosen = {name: how for part in parts for name, how in part.collectives}
    library = frozenset(name for part in parts for name in part.library)
    shared = {name for part in parts for name, is_shared in part.loops if is_shared}
    structure = _structure(spec, parts[0].topology, chosen, library, shared)
    decisions = set(pins) - {OUTPUTS}
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
    reuses, found = pins.get(OUTPUTS) == REUSED, []
    for how in legal:
        asked = _left_out(how, legal, gathers=operation is AllGather, reuses=reuses)
        if fits(operation, name, how, pins) and all(pinned(pins, name, field) is not None for field in asked):
            found.append(how)
    return found


def _left_out(how: Collective, legal: tuple[Collective, ...], *, gathers: bool, reuses: bool) -> tuple[str, ...]:
    """Fields that pins must ask for, all of them, or else this way to carry out a collective is not tried."""
    if how.landing is Landing.REUSED and not reuses:
        return ("landing",)
    if how.in_tiles and how.shots > 1:  # never timed
        return ("shots", "protocol")
    if how.in_tiles and gathers:  # one launch takes longer than two, unless the L2 still has the weights (one H200)
        return ("mover", "protocol")
    if how.protocol is Protocol.LL and replace(how, protocol=Protocol.LAMPORT) in legal:
        return ("protocol",)  # its packets take as long as those of Lamport and carry half as much (one H200)
    return ()


def _sends_many(graph: TileGraph, relation: Relation) -> bool:
    """Whether a rank sends more packets for it than was measured."""
    if not relation.by_packets:
        return False
    packets = packets_sent(relation, graph.values[relation.name].dtype)
    return (relation.num_ranks - 1) * relation.shots * packets > _MOST_SENT


def _sends_as_asked(relation: Relation, collectives: Sequence[tuple[str, Collective]], pins: Pins) -> bool:
    """Whether pins ask for packets of the collective that `relation` carries out."""
    known = {name for name, _ in collectives}
    name = relation.name if relation.name in known else relation.name.removesuffix("_whole")
    return pinned(pins, name, "protocol") is not None


def _shared(can: Mapping[str, str], pins: Pins) -> Iterator[dict[str, str]]:
    """All matmuls that can run in the loop of another one do, or none does; those with a pin as it says."""
    for flag in (True, False) if can else (False,):
        asked = {name: pinned(pins, name, "loop") or loop_text(flag) for name in can}
        if flag or any(asked[name] != loop_text(True) for name in can) or not can:
            yield {name: first for name, first in can.items() if asked[name] == loop_text(True)}


def _applied(structure: Structure, pins: Pins, known: Texts) -> set[str]:
    """Pins for which some value of the structure has the field, with the pinned text: a pin is never passed over.

    A value to which the pins leave no option counts: building the structure then says so. `known`: of relations of other
    structures that were looked at under the same pins.
    """
    texts: list[tuple[str, str, set[str]]] = []
    for name, how in structure.collectives:
        fields_here = collective_fields(operation_of(structure.spec, name), how)
        texts += ((name, field, {text}) for field, text in fields_here.items())
    for op in structure.graph.ops():
        if isinstance(op.operation, Matmul):
            texts.append((op.name, "compute", {"library" if op.name in structure.library else "triton"}))
    texts += ((name, "loop", {loop_text(shared)}) for name, shared in structure.loops)
    for relation in structure.graph.relations():
        if not relation.library:
            key = relation, structure.by_tiles(relation.source)
            if key not in known:
                known[key] = list(map(exchange_fields, exchange_options(structure, relation, pins)))
            exchanges = known[key]
            for field in EXCHANGE_FIELDS:
                if not exchanges or any(field in o for o in exchanges):
                    texts.append((relation.name, field, {o[field] for o in exchanges if field in o}))
    found = {
        pin
        for value, field, legal in texts
        for pin in (field, f"{value}.{field}")
        if pin in pins and (not legal or pins[pin] in legal)
    }
    for group in structure.groups:
        fields = fields_of(structure, group)
        for field in fields:
            named = (f"{group.name}.{field}", *((field,) if field in asked_of_all(group) else ()))
            if any(pin in pins for pin in named):
                computes = [compute_fields(o) for o in compute_options(structure, group, pins)]
                legal = {o[field] for o in computes}
                found |= {pin for pin in named if pin in pins and (not legal or pins[pin] in legal)}
    return found


def fields_of(structure: Structure, group: Group) -> tuple[str, ...]:
    """Fields of a group in this structure."""
    by_library = group.anchor.name in structure.library
    descriptors = structure.topology.gpu.tensor_descriptors
    return group_fields(structure.graph, group, descriptors=descriptors, by_library=by_library)


def _library_sets(matmuls: list[str], pins: Pins) -> Iterator[frozenset[str]]:
    fixed = {name: pinned(pins, name, "compute") for name in matmuls}
    for flags in product((False, True), repeat=len(matmuls)):
        chosen = dict(zip(matmuls, flags, strict=True))
        if all(fixed[name] in (None, "library" if flag else "triton") for name, flag in chosen.items()):
            yield frozenset(name for name, flag in chosen.items() if flag)


def exchange_options(structure: Structure, relation: Relation, pins: Pins) -> list[ExchangeChoice]:
    """Options for one relation, copy engines first."""
    topology = structure.topology
    if relation.kind is Kind.SHIFT:
        return _bounded_options(relation, topology, pins)
    movers = [mover for kind in MOVERS for mover in kind.tried(topology.gpu)]
    chunks = [n for n in _CHUNKS if (n - 1) * -(-relation.part[0] // n) < relation.part[0]]
    wanted = parsed_mover(pinned(pins, relation.name, "mover") or "", topology.gpu)
    movers = movers if wanted is None else [wanted]
    asked = pinned(pins, relation.name, "chunks")
    if asked is not None and is_number(asked) and int(asked) <= relation.part[0]:
        chunks = [int(asked)]
    streams = pinned(pins, relation.name, "streams")
    atomics, by_tiles = peer_atomics(topology), structure.by_tiles(relation.source)
    options = []
    for mover, transfer, count, nest in product(movers, Transfer, chunks, Nest):
        if nest is Nest.CHUNK_MAJOR and mover.issuer is Issuer.TILES and count == 1:
            continue
        if not atomics and mover.why_not_without_atomics(transfer, by_tiles=by_tiles):
            continue
        per_peer = streams == "peer" or (streams is None and streams_per_peer(topology, nest))
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
    producers = producers or [CommSms(1)]
    counts = [count for count in item_counts(rows) if -(-rows // count) <= _ITEM_ROWS]
    slots = [n for n in _SLOTS if n == 1 or n < 2 * counts[0]]
    wanted = parsed_mover(pinned(pins, relation.name, "mover") or "", topology.gpu)
    if wanted is not None and wanted.issuer is Issuer.PROGRAMS:
        producers = [wanted]
    if not atomics:
        producers = [one for one in producers if not one.why_not_without_atomics(Transfer.PUSH, by_tiles=False)]
    numbers = {name: pinned(pins, relation.name, name) or "" for name in ("chunks", "slots", "consumers")}
    asked = {name: int(text) if is_number(text) else 0 for name, text in numbers.items()}
    counts = [asked["chunks"]] if 1 <= asked["chunks"] <= rows else counts
    slots = [asked["slots"]] if asked["slots"] else slots
    options = [
        ExchangeChoice(some, Transfer.PUSH, items, Nest.RANK_MAJOR, places, asked["consumers"])
        for some, items, places in product(producers, counts, slots)
    ]
    return _kept(options, relation.name, pins)


def compute_options(structure: Structure, group: Group, pins: Pins) -> list[ComputeChoice]:
    """Options for one group, large tiles first."""
    fields, general = fields_of(structure, group), asked_of_all(group)
    if not fields:
        return [ComputeChoice(TritonLoop(ITEM_TILE, 1, False), False)]
    if group.anchor.name in structure.library:
        return [ComputeChoice(LibraryCompute(), False)]
    asked: dict[str, str] = {}
    for name in fields:
        text = pins.get(f"{group.name}.{name}", pins.get(name) if name in general else None)
        if text is not None:
            asked[name] = text
    number = asked.get("group", "")
    groups = [int(number)] if is_number(number) else [_GROUP if group.matmuls else 4]
    ahead = [asked.get("prefetch") != "no"] if "prefetch" in fields else [False]
    tails = [False, True] if "tail" in fields else [False]
    counts = [False, True] if "count" in fields and True in ahead else [False]
    sums = [True, False] if "sum" in fields else [False]
    every = product(_tiles(structure, group, asked), groups, ahead, tails, counts, sums)
    options = [ComputeChoice(TritonLoop(t, g, p, h, late), s) for t, g, p, h, late, s in every]
    texts = ((option, compute_fields(option)) for option in options)
    legal = [option for option, text in texts if all(text[name] == wanted for name, wanted in asked.items())]
    # a sum in the epilogue is computed by the tiles of another loop
    folded = [option for option in legal if option.sum_in_epilogue]
    return [option for option in legal if not option.sum_in_epilogue or option is folded[0]]


def _tiles(structure: Structure, group: Group, asked: Pins) -> list[TileShape]:
    """The tile that a pin asks for, or those worth trying."""
    wanted = parse_tile(asked.get("tile", ""))
    if wanted is not None:
        return [wanted] if (wanted.k >= SMALLEST_DOT) is bool(group.matmuls) else []
    written = [axis for axis in group.anchor.axes if not axis.reduction]
    rows, cols = written[0].extent, written[-1].extent
    table = matmul_tiles(group.matmuls) if group.matmuls else STREAM_TILES
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
    """The options whose texts are those that are pinned, of the fields that they have."""
    wanted = {field: text for field in EXCHANGE_FIELDS if (text := pinned(pins, name, field)) is not None}
    if not wanted:
        return options
    return [o for o in options if all(wanted.get(field, text) == text for field, text in exchange_fields(o).items())]


def is_number(text: str) -> bool:
    """Whether `text` is a whole number from 1 on, as it is printed, that kernels count in 32 bits."""
    return re.fullmatch(r"[1-9][0-9]{0,9}", text) is not None and int(text) <= LARGEST_SIZE


def parse_tile(text: str) -> TileShape | None:
    """`128x256x64/8w3s`, `128x128x64/4w3s2p` (two programs an SM), `128x128x64/4w5s2g` (two warpgroups in turns), or None."""
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)/(\d+)w(\d+)s(?:(\d+)p)?(?:(2)g)?", text)
    if match is None:
        return None
    m, n, k, warps, stages, per_sm, warpgroups = (int(number or 1) for number in match.groups())
    powers = all(size and size & (size - 1) == 0 for size in (m, n, warps)) and (k & (k - 1)) == 0
    sizes = powers and m >= 16 and n >= 16 and stages >= 1 and per_sm >= 1
    return TileShape(m, n, k, warps, stages, per_sm, warpgroups) if sizes else None
