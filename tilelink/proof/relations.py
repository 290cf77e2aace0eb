"""Exchanges and collectives: each is one that the spec needs, of what it needs."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import Collective, WordCollective
from tilelink.ir.counting import words_sent
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.nodes import Kind, Publish
from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding


def staging_names(relation: Relation) -> tuple[str, str]:
    """Buffers in which what `relation` sends is staged: by its value, or by its own name if several send that value."""
    return f"{relation.source}_staged", f"{relation.name}_staged"


def sources(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    """An exchange sends the value that the spec says: itself, where its tiles stage it, or a copy that peers pull."""
    for exchange in schedule.exchanges:
        relation = graph.relation(exchange.name)
        if relation is None or not exchange.source:
            continue
        value = relation.source
        shared = {f"{value}_shared", f"{exchange.name}_shared"}
        made = graph.op(value) is not None and relation.kind is not Kind.SHIFT  # which takes the plain value
        staged = set(staging_names(relation)) if made else {value} | shared
        staged |= {exchange.target} if exchange.met else set()
        published = [x for x in schedule.launches if isinstance(x, Publish) and x.exchange == exchange.name]
        copied = all((x.copy_from == value) == (exchange.source in shared) for x in published)
        if exchange.source not in staged or not copied:
            fact = f"it sends {exchange.source}, and the spec says {value}"
            yield Finding(BugClass.WRONG_PLACE, f"exchange {exchange.name}", fact)


def exchanges(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    """Each relation that no library call carries out has one exchange, of its parts."""
    wanted = {relation.name: relation for relation in graph.relations() if not relation.library}
    for exchange in schedule.exchanges:
        where = f"exchange {exchange.name}"
        relation = wanted.pop(exchange.name, None)
        if relation is None:
            yield Finding(BugClass.WRONG_PLACE, where, "the spec has no such relation between ranks")
            continue
        part = (relation.part[0], relation.part[1] if len(relation.part) > 1 else 1)
        if exchange.kind is not relation.kind or (exchange.rows, exchange.cols) != part:
            got = f"{exchange.kind.value} of {exchange.rows} x {exchange.cols}"
            fact = f"it is a {got}, not a {relation.kind.value} of {part[0]} x {part[1]}"
            yield Finding(BugClass.WRONG_PLACE, where, fact)
        if exchange.by != relation.by or (exchange.slots > 0) is not (relation.kind is Kind.SHIFT):
            fact = f"it goes {exchange.by} ranks further through {exchange.slots} slots, and the spec says {relation.by} ranks"
            yield Finding(BugClass.WRONG_PLACE, where, fact)
        if not 1 <= exchange.chunks <= exchange.rows or (exchange.chunks - 1) * exchange.chunk_rows >= exchange.rows:
            yield Finding(BugClass.WRONG_PLACE, where, f"{exchange.rows} rows are no {exchange.chunks} chunks")
    for name in wanted:
        yield Finding(BugClass.WRONG_PLACE, f"relation {name}", "no exchange carries it out")


def collectives(schedule: Schedule, graph: TileGraph) -> Iterator[Finding]:
    functions = {Kind.GATHER: "all_gather", Kind.SCATTER: "reduce_scatter", Kind.REDUCE: "all_reduce"}
    calls = {x.out: x for x in schedule.launches if isinstance(x, Collective)}
    count = sum(isinstance(x, Collective) for x in schedule.launches)
    wanted = {r.name: r for r in graph.relations() if r.library and not r.in_tiles}
    if set(calls) != set(wanted) or count != len(wanted):
        fact = f"collectives make {sorted(calls)}, and the spec needs {sorted(wanted)}"
        yield Finding(BugClass.WRONG_PLACE, "launches", fact)
        return
    for name, relation in wanted.items():
        found = calls[name]
        by_words = isinstance(found, WordCollective)
        if by_words is (relation.protocol is None):
            said = "of the library" if by_words else "by words"
            fact = f"{type(found).__name__} carries out what the choices say is {said}"
            yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)
        elif isinstance(found, WordCollective):
            if (found.protocol, found.shots) != (relation.protocol, relation.shots):
                fact = f"words of {found.protocol.value} travel in {found.shots} shots, and the choices say otherwise"
                yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)
            elif found.words != words_sent(relation, graph.values[name].dtype):
                fact = (
                    f"{found.words} words travel to a peer, and its part is {relation.part} {graph.values[name].dtype}"
                )
                yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)
            yield from _within(relation, found)
        if calls[name].function != functions[relation.kind]:
            fact = f"{calls[name].function} is called for a {relation.kind.value}"
            yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)
        sources = {relation.source, *staging_names(relation), name}
        if calls[name].operand not in sources:
            fact = f"it sends {calls[name].operand}, not {relation.source}"
            yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)


def _within(relation: Relation, found: WordCollective) -> Iterator[Finding]:
    if found.within is not relation.within:
        where = "within a kernel" if found.within else "by a launch"
        fact = f"it is carried out {where}, and the choices say otherwise"
        yield Finding(BugClass.WRONG_PLACE, f"collective {relation.name}", fact)
