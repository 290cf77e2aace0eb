"""Structures that may be the best: of ways to carry out a collective by one call, the fastest one.

ids by the library, 12 us; ids by a kernel of packets, 3 us; all else alike   ->   ids by a kernel of packets
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelink.ir.collective import Collective
from tilelink.ir.expand import expand
from tilelink.ir.spec import BoundSpec
from tilelink.planner import fields
from tilelink.planner.calls import call_us
from tilelink.planner.choices import Pins, pinned
from tilelink.planner.space import carried_out, sends_too_many, structures_of, ways_of
from tilelink.planner.structure import Structure
from topologies.topology import Topology


def structures_to_search(
    spec: BoundSpec, topology: Topology, pins: Pins, *, piece: bool = False
) -> tuple[list[Structure], list[Structure]]:
    """Of `structures` those that may be the best, and the one of library calls alone if it is none of these.

    Of ways to carry out a collective by one call only the fastest one, the first of several: calls stand at one place of the
    compute stream, and nothing else depends on how they move bytes."""
    ways = ways_of(spec, topology, pins)
    fastest = {name: _with_fastest_call(spec, topology, pins, ways, name) for name in ways}
    every = list(structures_of(spec, topology, pins, fastest, piece=piece))
    if any(one.all_by_library for one in every):
        return every, []
    library = {name: [how for how in legal if how.by_library] for name, legal in ways.items()}
    others = structures_of(spec, topology, pins, library, piece=piece)
    return every, [one for one in others if one.all_by_library]


def _with_fastest_call(
    spec: BoundSpec, topology: Topology, pins: Pins, ways: Mapping[str, list[Collective]], name: str
) -> list[Collective]:
    """The ways to carry out a collective, of which only the last one is by one call, the fastest of these."""
    found, us = ways[name], dict[Collective, float]()
    asked = any(pinned(pins, name, field) is not None for field in fields.OF_COLLECTIVES)
    if asked or sum(how.by_call for how in found) < 2 or not all(ways.values()):
        return found  # a way may be all that a pin applies to
    for how in (one for one in found if one.by_call):
        chosen = {other: legal[0] for other, legal in ways.items()} | {name: how}
        graph = expand(spec, chosen)
        relations = [one for one in graph.relations() if one.by_call and carried_out(one, ways) == name]
        if not any(sends_too_many(graph, one, ways, pins) for one in relations):
            us[how] = sum(call_us(graph, one, topology) for one in relations)
    return [*(how for how in found if not how.by_call), *sorted(us, key=us.__getitem__)[:1]]
