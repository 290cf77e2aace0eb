"""Rows that go to the nodes that need them, and there to ranks: what would be wrong for some routing, or some put, is refuted."""

from __future__ import annotations

from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tests.proof.planted import Change, refuted
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.happens_before.check import checked
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Region
from tilelink.schedule.network import TRANSPORTS
from tilelink.schedule.steps import LIST_ROWS, Call, Load, Move, Notify, Order, Step, Sync, Wait

SIZES = {"T": 256, "H": 64, "F": 64, "E": 8, "K": 2}
LANDING, FAR, NEAR = "rows_value_from_nodes", "rows_value_far_listed", "rows_value_listed"


def planned(name: str = "ep_layer", nodes: int = 2, rows: int = SIZES["T"]) -> Planned:
    moved = "dispatch_out" if name == "there_and_back" else "rows_value"
    pins = {f"{moved}.mover": "NeededRails(2)", "ids_full.mover": "Library()"}
    known = SPECS[name].spec.symbols()
    sizes = {size: number for size, number in (SIZES | {"T": rows}).items() if size in known}
    return SPECS[name].plan_for(topologies.load("laptop-switch", 4, nodes), sizes, "bf16", pins)


def moves(source: str, new: Change) -> Change:
    """Changes moves from one buffer."""
    return lambda step: new(step) if isinstance(step, Move) and step.source[0].buffer == source else (step,)


def puts(new: Change) -> Change:
    return lambda step: new(step) if isinstance(step, Move) and step.target[0].buffer == LANDING else (step,)


def lists(table: str, **new: Number) -> Change:
    """An index program is told other experts, or another first reader."""

    def change(step: Step) -> tuple[Step, ...]:
        if not (isinstance(step, Call) and step.function == LIST_ROWS and step.tables[0] == table):
            return (step,)
        experts, choices, first = step.numbers
        return (replace(step, numbers=(new.get("experts", experts), choices, new.get("first", first))),)

    return change


def _ended(region: Region, **new: Number) -> Region:
    start = list(region.start)
    start[-2] = new.get("row", start[-2])
    start[0] = new.get("part", start[0])
    return replace(region, start=tuple(start), at=new.get("at", region.at))


def both(row: Number) -> Change:
    """All rows one by one, whichever are listed."""

    def change(step: Step) -> tuple[Step, ...]:
        assert isinstance(step, Move)
        (source,), (target,) = step.source, step.target
        return (replace(step, source=(_ended(source, row=row),), target=(_ended(target, row=row),)),)

    return change


BUGS: dict[str, Change] = {
    "nobody knows whether rows have landed": lambda step: () if step == Sync(Order.LANDED) else (step,),
    "sources are free, and rows under way": lambda step: (
        (Sync(Order.QUIET),) if step == Sync(Order.LANDED) else (step,)
    ),
    "nobody waits for rows of other nodes": lambda step: (
        () if isinstance(step, Wait) and step.signal == "rows_value_far" else (step,)
    ),
    "rows of the call before are waited for": lambda step: (
        (replace(step, until=step.until - 1),)
        if isinstance(step, Wait) and step.signal == "rows_value_far"
        else (step,)
    ),
    "the first program tells": lambda step: (
        (replace(step, last_of=1),) if isinstance(step, Notify) and step.signal == "rows_value_arrived" else (step,)
    ),
    "rows go along another rail": puts(
        lambda step: (
            (replace(step, target=(_ended(step.target[0], at=Index("group") * 2 + (rank + 1) % 2),)),)
            if isinstance(step, Move)
            else (step,)
        )
    ),
    "rows lie among those of this node": puts(
        lambda step: (
            (replace(step, target=(_ended(step.target[0], part=Index("group")),)),)
            if isinstance(step, Move)
            else (step,)
        )
    ),
    "rows are put one by one": puts(both(Index("block") * 16 + Index("lane"))),
    "rows of another node are handed on": moves(
        LANDING,
        lambda step: (
            (replace(step, source=(_ended(step.source[0], part=rank // 2),)),) if isinstance(step, Move) else (step,)
        ),
    ),
    "rows are handed to the next rank": moves(
        LANDING,
        lambda step: (
            (replace(step, target=(_ended(step.target[0], at=rank // 2 * 2 + (Index("place") + 1) % 2),)),)
            if isinstance(step, Move)
            else (step,)
        ),
    ),
    "experts of one rank of the node": lists(FAR, experts=2),
    "rows of nodes from the second one on": lists(FAR, first=1),
    "experts of half a rank": lists(NEAR, experts=1),
    "ranks of the first node": lists(NEAR, first=0),
    "ranks of the other node": lists(NEAR, first=(rank // 2 * 2 + 2) % 4),
    "readers look up all rows": lambda step: (
        (replace(step, region=_ended(step.region, row=Index("m") + Index("lane"))),)
        if isinstance(step, Load) and step.region.buffer == "rows_value"
        else (step,)
    ),
}


@pytest.mark.parametrize("name", ["ep_layer", "there_and_back", "of_functions"])
@pytest.mark.parametrize("nodes", [2, 4])
@pytest.mark.quick(2)
def test_schedules_are_proved(name: str, nodes: int) -> None:
    proof = verify(planned(name, nodes, 16 * 4 * 3))  # three blocks, in two strips
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.quick(6)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])


def test_a_transport_that_does_not_say_what_has_landed() -> None:
    steps = instantiated(elaborated(planned()))
    nodes, local = steps.mesh
    weak = replace(steps, mesh=(replace(nodes, transport=TRANSPORTS["GIN put, weak signal"]), local))
    assert "cannot ask whether puts by GIN put, weak signal have landed" in str(checked(weak))
