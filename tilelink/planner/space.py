"""The search space: every structure of a spec, and for each the options of every exchange and every compute group.

Pins narrow it: a pinned field keeps only the options that have the value; a pinned value that is not enumerated (any number
of SMs, any tile) is added to the options.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import product

from tilelink.ir.choices import Choices, LibraryCompute
from tilelink.ir.collective import Adder, Collective, Landing
from tilelink.ir.counting import packets_sent
from tilelink.ir.enums import Protocol
from tilelink.ir.expand import expand
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.slices import as_carried_out, as_computed
from tilelink.ir.spec import AllGather, BoundSpec, Merged
from tilelink.planner import fields
from tilelink.planner.choices import (
    REUSED,
    Pin,
    Pins,
    asked_of_all,
    compute_fields,
    exchange_fields,
    group_fields,
    pinned,
)
from tilelink.planner.collectives import collective_names, collective_pins, fits, legal_collectives
from tilelink.planner.fields import AnyField
from tilelink.planner.group import group_ops, shareable
from tilelink.planner.in_library import (
    attends_to_parts,
    attention_by,
    in_library,
    library_computes,
    whole_tiles,
    why_not_in_library,
)
from tilelink.planner.options import compute_options, exchange_options, pinned_of
from tilelink.planner.states import merges
from tilelink.planner.structure import Structure
from topologies.topology import Topology

# fields of all options of a relation, whose source tiles make or not: all that they depend on, and most structures have
# relations in common
Known = dict[tuple[Relation, bool], list[dict[AnyField, object]]]

_MOST_SENT = 512 << 10  # packets that a rank sends in a call (LL, 2 x H200): beyond, packets are planned if pinned


def structures(spec: BoundSpec, topology: Topology, pins: Pins, *, piece: bool = False) -> Iterator[Structure]:
    """All structures in which every pin applies to something; all by tile loops first, by the library last.
    Pins of a `piece` may apply to other pieces."""
    yield from structures_of(spec, topology, pins, ways_of(spec, topology, pins), piece=piece)


def ways_of(spec: BoundSpec, topology: Topology, pins: Pins) -> dict[str, list[Collective]]:
    """Of each collective the ways to carry it out."""
    found = {}
    for name, legal in legal_collectives(spec, topology):
        node = next(one for one in as_computed(spec).nodes if one.output.name == name)
        if isinstance(node.operation, Merged):
            legal = merges(node, topology, pinned(pins, name, fields.SPLITS), pinned(pins, name, fields.FOLD))
        found[name] = _tried(type(node.operation), name, legal, pins)
    return found


def structures_of(
    spec: BoundSpec, topology: Topology, pins: Pins, ways: Mapping[str, list[Collective]], *, piece: bool
) -> Iterator[Structure]:
    """Those of these ways."""
    decisions = pins.keys() - REUSED.keys()
    names, options = list(ways), list(ways.values())
    able = in_library(spec)
    readers = _readers_of_columns(spec)
    known: Known = {}
    for chosen in product(*options):
        collectives = tuple(zip(names, chosen, strict=True))
        if any(how != legal[0] for name, how, legal in _idle(spec, collectives, options)):
            continue
        graphs: dict[frozenset[str], TileGraph] = {}
        for library in _library_sets(able, pins):
            whole = library & readers
            if whole not in graphs:
                graphs[whole] = expand(spec, dict(collectives), whole)
            graph = graphs[whole]
            if any(sends_too_many(graph, one, names, pins) for one in graph.relations()):
                break  # whoever multiplies, as many packets are sent
            if any(relation.in_tiles and relation.source in library for relation in graph.relations()):
                continue
            if not _may_attend(graph, library, topology, pins):
                continue
            for shared in _shared(shareable(graph, library), pins):
                loops = tuple((name, name in shared) for name in shareable(graph, library))
                groups = group_ops(graph, library, shared)
                structure = Structure(spec, topology, collectives, library, loops, graph, groups)
                if piece or not decisions or decisions <= _applied(structure, pins, known):
                    yield structure


def why_not_attended(spec: BoundSpec, topology: Topology, pins: Pins) -> str:
    """Why the library computes no attention that pins ask it for, however collectives are carried out; nothing if it does."""
    asked = {name for name in in_library(spec) if pinned(pins, name, fields.COMPUTE) is True}
    ways, found = ways_of(spec, topology, pins), dict[str, None]()
    for chosen in product(*ways.values()):
        graph = expand(spec, dict(zip(ways, chosen, strict=True)))
        reasons = [why_not_in_library(graph, op, topology.gpu) for op in attention_by(graph, asked)]
        if not any(reasons):
            return ""
        found |= dict.fromkeys(filter(None, reasons))
    return "; or ".join(found)


def _may_attend(graph: TileGraph, library: AbstractSet[str], topology: Topology, pins: Pins) -> bool:
    """Whether the library can compute its attention; part by part without a pin of ragged tokens alone: where there are
    whole tiles, those of warpgroups were faster, or level (2 x H200)."""
    for op in attention_by(graph, library):
        asked = pinned(pins, op.name, fields.COMPUTE) is True
        if why_not_in_library(graph, op, topology.gpu):
            return False
        if attends_to_parts(graph, op) and not asked and whole_tiles(graph, op):
            return False
    return True


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
    if how.multicast:  # no machine has run it
        return (fields.MULTICAST, *_left_out(replace(how, multicast=False), legal, gathers=gathers, reuses=reuses))
    if how.landing is Landing.REUSED and not reuses:
        return (fields.LANDING,)
    if how.in_tiles and how.shots > 1:  # never timed
        return (fields.SHOTS, fields.PROTOCOL)
    if how.in_tiles and gathers:  # one launch takes longer than two, unless the L2 still has the weights (one H200)
        return (fields.MOVER, fields.PROTOCOL)
    if how.protocol is Protocol.LL128:  # lines are no faster than packets of Lamport, at any size (2 x H200)
        return (fields.PROTOCOL,)
    if how.protocol is Protocol.LL and how.tile is None and replace(how, protocol=Protocol.LAMPORT) in legal:
        return (fields.PROTOCOL,)  # its packets take as long as those of Lamport and carry half as much (one H200)
    return ()


def _sends_many(graph: TileGraph, relation: Relation) -> bool:
    """Whether a rank sends more packets for it than was measured."""
    if not relation.by_packets:
        return False
    packets = packets_sent(relation, graph.values[relation.name].dtype)
    return (relation.num_ranks - 1) * relation.how.shots * packets > _MOST_SENT


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
        if library_computes(op.operation, structure.graph.values[op.name].dtype):
            yield op.name, fields.COMPUTE, True, {op.name in structure.library}
    for name, shared in structure.loops:
        yield name, fields.LOOP, True, {shared}
    for relation in structure.relations:
        asked = pinned_of(pins, relation.name, fields.OF_EXCHANGES)
        key = relation, structure.by_tiles(relation.source)
        if asked and key not in known:
            known[key] = list(map(exchange_fields, exchange_options(structure, relation, pins)))
        for field in asked:
            if not known[key] or any(field in one for one in known[key]):
                yield relation.name, field, True, {one[field] for one in known[key] if field in one}
    for group in structure.groups:
        general = asked_of_all(group)
        asked = pinned_of(pins, group.name, group_fields(structure, group), general)
        options = list(map(compute_fields, compute_options(structure, group, pins))) if asked else []
        for field in asked:
            yield group.name, field, field in general, {one[field] for one in options}


def _library_sets(able: list[str], pins: Pins) -> Iterator[frozenset[str]]:
    fixed = {name: pinned(pins, name, fields.COMPUTE) for name in able}
    for flags in product((False, True), repeat=len(able)):
        chosen = dict(zip(able, flags, strict=True))
        if all(fixed[name] in (None, flag) for name, flag in chosen.items()):
            yield frozenset(name for name, flag in chosen.items() if flag)
