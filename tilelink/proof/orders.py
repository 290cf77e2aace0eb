"""Orders, exchanges and library calls: each goes through all ranks or tiles once, and is one that the spec needs."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import Collective, LibraryGemm, WordCollective
from tilelink.ir.counting import words_sent
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.nodes import ComputeRole, Kernel, Kind, Publish
from tilelink.ir.order import Nest, RankOrder
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import SMALLEST_DOT, IfOwn, MatmulBody, Notify, SlotNotify, SlotWait, Step, SumWords, Wait
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contract import flat, staging_names
from tilelink.proof.findings import Finding


def orders(schedule: Schedule) -> Iterator[Finding]:
    """Orders go through all ranks once, and rotate with the rank."""
    found: list[tuple[str, RankOrder]] = [(f"exchange {x.name}", x.order.ranks) for x in schedule.exchanges]
    for launch in schedule.launches:
        if isinstance(launch, Kernel) and launch.compute is not None:
            order = launch.compute.order
            where = f"role {launch.compute.name}"
            found += [(where, order.ranks), (where, order.minor_ranks)]
            yield from _tile_order(launch.compute)
        elif isinstance(launch, LibraryGemm):
            found.append((f"library matmul into {launch.out.buffer}", launch.order))
    for where, ranks in found:
        legal = ranks.num_ranks == schedule.num_ranks and ranks.num_ranks % max(1, ranks.ranks_per_node) == 0
        if not legal or sorted(ranks.sequence(0)) != list(range(schedule.num_ranks)):
            fact = f"its order is over {ranks.num_ranks} ranks, {ranks.ranks_per_node} a node, and there are {schedule.num_ranks}"
            yield Finding(BugClass.WRONG_PLACE, where, fact)


def movers(schedule: Schedule) -> Iterator[Finding]:
    """A mover goes through the peers, so the own rank comes last in its order and is left out."""
    for exchange in schedule.exchanges:
        if exchange.order.ranks.sequence(0)[-1] != 0:
            fact = "the own rank is not the last of its order, so that a peer would be left out in its place"
            yield Finding(BugClass.WRONG_PLACE, f"exchange {exchange.name}", fact)


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


def own_tiles_last(role: ComputeRole, branch: IfOwn) -> bool:
    """Whether all tiles that `branch` takes for own ones come after all others."""
    in_turn = branch.axis == role.order.major and role.order.nest is Nest.RANK_MAJOR
    return in_turn and role.order.ranks.sequence(0)[-1] == 0


def one_step_behind_wait(role: ComputeRole) -> bool:
    """Whether tiles wait and then load operands for a single step of k. A compiler that runs the loops over tiles and over k as
    one then takes the loop over tiles for that over k, and loads operands of later tiles in front of their wait (Triton 3.6)."""
    at = next((at for at, step in enumerate(role.body) if isinstance(step, MatmulBody)), None)
    if at is None:
        return False
    matmul = role.body[at]
    assert isinstance(matmul, MatmulBody)
    waits = bool(matmul.waits) or any(isinstance(step, Wait | SlotWait) for step in role.body[:at])
    return waits and role.axis(matmul.axis).tiles == 1


def _tile_order(role: ComputeRole) -> Iterator[Finding]:
    """Every tile has one launch position."""
    order, written = role.order, [axis.name for axis in role.axes if not axis.reduction]
    named = [name for name in (order.major, order.minor) if name]
    where = f"role {role.name}"
    if sorted(named) != sorted(written) or order.group < 1:
        fact = f"its order goes through {named} in groups of {order.group}, and tiles lie along {written}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
        return
    major = role.axis(order.major)
    minor = role.axis(order.minor) if order.minor else None
    minor_tiles = minor.segments * minor.tiles if minor else 1
    seen = set(order.sequence(major.tiles, minor_tiles, major.segments))
    if len(seen) != role.num_tiles or any(row >= major.tiles or column >= minor_tiles for _, row, column in seen):
        fact = f"{role.num_tiles} launch positions reach {len(seen)} tiles"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    last = role.body[-1] if role.body else None
    if role.prefetch and isinstance(last, IfOwn) and not own_tiles_last(role, last):
        fact = "it prefetches, so its own tiles have a loop of their own, and they do not come last"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if role.prefetch and one_step_behind_wait(role):
        fact = (
            "it prefetches behind a wait, and k is a single step: the compiler would load later tiles before their wait"
        )
        yield Finding(BugClass.COMPILED_ORDER, where, fact)
    yield from _halves(role, where)
    if role.counts_late and not role.prefetch:
        fact = "its tiles are counted late, and it has no loop that begins the next tile before one is stored"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if not 0 < role.programs <= role.num_tiles:
        yield Finding(BugClass.WRONG_PLACE, where, f"{role.programs} programs share {role.num_tiles} tiles")


def _halves(role: ComputeRole, where: str) -> Iterator[Finding]:
    """Two halves are one tile, and nothing counts or waits for halves: chunks are made of whole tiles."""
    if not role.halved:
        return
    minor = next((axis for axis in role.axes if axis.name == role.order.minor), None)
    if not 0 < role.halved <= role.num_tiles:
        fact = f"{role.halved} of {role.num_tiles} tiles are halved"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    multiplied = any(isinstance(step, MatmulBody) for step in role.body)
    if minor is not None and multiplied and minor.tile < 2 * SMALLEST_DOT:
        fact = f"tiles are halved to {minor.tile // 2} columns, and matmuls need at least {SMALLEST_DOT}"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    if minor is None or minor.tile % 2:
        fact = f"tiles are halved along {role.order.minor or 'no axis'}, where they are not of an even extent"
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    steps = (*role.body, *flat(role.body))  # `flat` leaves branches out
    if any(isinstance(step, Notify | SlotNotify) for step in steps):
        yield Finding(BugClass.SIGNAL_TOO_EARLY, where, "tiles are halved, and count as whole ones")
    if any(isinstance(step, SumWords) for step in steps):
        yield Finding(BugClass.WRONG_PLACE, where, "tiles are halved, and their words are those of whole ones")
    if any(_waits_whole(step, role.order.minor) for step in steps):
        yield Finding(BugClass.WRONG_PLACE, where, "tiles are halved, and wait as whole ones")


def _waits_whole(step: Step, minor: str) -> bool:
    return isinstance(step, SlotWait | IfOwn) or (isinstance(step, Wait) and step.rows == minor)


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
            yield from _within(schedule, relation, found)
            if min(found.programs, found.block) < 1 or found.block & (found.block - 1):
                fact = f"{found.programs} programs cannot move blocks of {found.block} words, a power of two"
                yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)
        if calls[name].function != functions[relation.kind]:
            fact = f"{calls[name].function} is called for a {relation.kind.value}"
            yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)
        sources = {relation.source, *staging_names(relation), name}
        if calls[name].operand not in sources:
            fact = f"it sends {calls[name].operand}, not {relation.source}"
            yield Finding(BugClass.WRONG_PLACE, f"collective {name}", fact)


def _within(schedule: Schedule, relation: Relation, found: WordCollective) -> Iterator[Finding]:
    """A gather within a kernel is done by all of its programs, which do nothing else but its tiles."""
    where = f"collective {relation.name}"
    if found.within is not relation.within:
        fact = (
            f"it is carried out {'within a kernel' if found.within else 'by a launch'}, and the choices say otherwise"
        )
        yield Finding(BugClass.WRONG_PLACE, where, fact)
    elif found.within:
        kernel = next((one for one in schedule.kernels() if any(x is found for x in schedule.within(one))), None)
        if kernel is not None and (found.programs != schedule.grid(kernel) or kernel.comm):
            fact = (
                f"{found.programs} programs gather, and {kernel.name} has {schedule.grid(kernel)}, which wait for all"
            )
            yield Finding(BugClass.RESIDENCY, where, fact)
