"""Rows that go only to the ranks that need them, or are fetched by these: what would be wrong for some routing is refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tests.proof.planted import Change, refuted
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Law, Region
from tilelink.schedule.steps import LIST_ROWS, SORT_ROWS, Call, For, Load, Move, Notify, Step, Wait

RANKS = 3
SIZES = {"T": 192, "H": 64, "F": 64, "E": 6, "K": 2}
OWN = SIZES["T"] // RANKS  # tokens of a rank
PEER, BLOCK, LANE = Index("peer"), Index("block"), Index("lane")


def planned(name: str = "ep_layer", transfer: str = "push") -> Planned:
    rows = "dispatch_out" if name == "there_and_back" else "rows_value"
    mover = {f"{rows}.mover": "NeededRows()", f"{rows}.transfer": transfer, "ids_full.mover": "Library()"}
    # packets of ids would tell more than is relied on: that their sender had published its rows
    sizes = {size: number for size, number in SIZES.items() if size in SPECS[name].spec.symbols()}
    adder = "sender" if name == "of_functions" else "receiver"
    return SPECS[name].plan_for(topologies.load("laptop-switch", RANKS), sizes, "bf16", {**mover, "out.adder": adder})


def _pushed(peer: Number = PEER, block: Number = BLOCK) -> tuple[Number, Number]:
    """The list, and the block in it, of rows of this rank that go to a peer."""
    return peer, block


def _pulled(peer: Number = PEER, block: Number = BLOCK) -> tuple[Number, Number]:
    """The same of rows of a peer that come here."""
    return 0, peer * (OWN // 16) + block


Place = Callable[..., tuple[Number, Number]]


def _entry(peer: Number = PEER, block: Number = BLOCK, place: Place = _pushed) -> Index:
    return Index("rows_value_listed", (*place(peer, block), LANE))


def target(new: Callable[[Region], Region]) -> Change:
    """Rows are moved elsewhere."""
    return lambda step: (replace(step, target=(new(step.target[0]),)),) if isinstance(step, Move) else (step,)


def source(new: Callable[[Region], Region]) -> Change:
    return lambda step: (replace(step, source=(new(step.source[0]),)),) if isinstance(step, Move) else (step,)


def both(row: Callable[[Region], Region]) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Move):
            return (step,)
        return (replace(step, source=(row(step.source[0]),), target=(row(step.target[0]),)),)

    return change


def numbers(*new: Number) -> Change:
    """The index program is told others."""

    def change(step: Step) -> tuple[Step, ...]:
        return (replace(step, numbers=new),) if isinstance(step, Call) and step.function == LIST_ROWS else (step,)

    return change


def _first(region: Region, row: Number) -> Region:
    return replace(region, start=(row, *region.start[1:]))


def _rows(region: Region, extent: Number) -> Region:
    return replace(region, extent=(extent, *region.extent[1:]))


def _share(step: Step) -> bool:
    return isinstance(step, For) and any(isinstance(one, Move) for one in step.body)


BLOCKS = BLOCK * 16


def in_both(place: Place) -> dict[str, Change]:
    return {
        "rows of the list of the next rank": both(
            lambda one: _first(one, one.start[0] - _entry(place=place) + _entry((PEER + 1) % RANKS, place=place))
        ),
        "as many rows as go to the next rank": both(
            lambda one: _rows(one, Index("rows_value_here", place((PEER + 1) % RANKS)))
        ),
        "rows of the list of the first block": both(
            lambda one: _first(one, one.start[0] - _entry(place=place) + _entry(block=0, place=place))
        ),
        "rows are taken one by one": source(lambda one: _first(one, BLOCKS + LANE)),
        "rows of the next token": source(lambda one: _first(one, one.start[0] + 1)),
        "one row less": both(lambda one: _rows(one, Index("rows_value_here", place()) - 1)),
        "half of the columns": both(lambda one: replace(one, extent=(one.extent[0], SIZES["H"] // 2))),
        "a block is left out": lambda step: (
            (replace(step, count=step.count - 1),) if isinstance(step, For) and _share(step) else (step,)
        ),
        "ids of some tokens": lambda step: (
            (replace(step, operands=(_rows(step.operands[0], OWN // 2),)),)
            if isinstance(step, Call) and step.function == LIST_ROWS
            else (step,)
        ),
        "readers look up all rows": lambda step: (
            (replace(step, region=_first(step.region, Index("m") + LANE)),)
            if isinstance(step, Load) and step.region.buffer == "rows_value"
            else (step,)
        ),
        "readers look up rows of the next rank's experts": lambda step: (
            (replace(step, numbers=((rank + 1) % RANKS * 2, *step.numbers[1:])),)
            if isinstance(step, Call) and step.function == SORT_ROWS
            else (step,)
        ),
        "nobody waits": lambda step: () if isinstance(step, Wait) and step.signal == "rows_value_arrived" else (step,),
        "own rows are not waited for": lambda step: (
            (replace(step, count=RANKS - 1, let=(("m_segment", (rank + 1 + Index("step")) % RANKS),)),)
            if isinstance(step, For)
            and any(isinstance(one, Wait) and one.signal == "rows_value_arrived" for one in step.body)
            else (step,)
        ),
        "the first program tells": lambda step: (
            (replace(step, last_of=1),) if isinstance(step, Notify) and step.signal == "rows_value_arrived" else (step,)
        ),
    }


PUSHED: dict[str, Change] = {
    "rows go to the next rank": target(lambda one: replace(one, at=(PEER + 1) % RANKS)),
    "rows stay here": target(lambda one: replace(one, at=rank)),
    "rows are placed one by one": target(lambda one: _first(one, rank * OWN + BLOCKS + LANE)),
    "rows begin at those of the receiver": target(lambda one: _first(one, PEER * OWN + BLOCKS + _entry())),
    "experts of half a rank": numbers(1, SIZES["K"], 0),
    "half of the choices": numbers(2, 1, 0),
}
PULLED: dict[str, Change] = {
    "rows come from the next rank": source(lambda one: replace(one, at=(PEER + 1) % RANKS)),
    "rows come from here": source(lambda one: replace(one, at=rank)),
    "rows are placed one by one": target(lambda one: _first(one, PEER * OWN + BLOCKS + LANE)),
    "rows begin at those of the reader": target(lambda one: _first(one, rank * OWN + BLOCKS + _entry())),
    "experts of half a rank": numbers(1, SIZES["K"], rank),
    "half of the choices": numbers(2, 1, rank),
    "experts of the next rank": numbers(2, SIZES["K"], (rank + 1) % RANKS),
    "experts of the owner": numbers(2, SIZES["K"], 0),
    "nobody waits for the owner": lambda step: (
        () if isinstance(step, Wait) and step.signal == "rows_value_ready" else (step,)
    ),
    "the owner of the call before is waited for": lambda step: (
        (replace(step, until=step.until - 1),)
        if isinstance(step, Wait) and step.signal == "rows_value_ready"
        else (step,)
    ),
}
BUGS = {
    transfer: {f"{transfer}: {bug}": change for bug, change in (in_both(place) | of_one).items()}
    for transfer, place, of_one in (("push", _pushed, PUSHED), ("pull", _pulled, PULLED))
}


@pytest.mark.parametrize("transfer", BUGS)
@pytest.mark.parametrize("name", ["ep_layer", "there_and_back", "of_functions"])
def test_schedules_are_proved(name: str, transfer: str) -> None:
    proof = verify(planned(name, transfer))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("bug", BUGS["push"])
def test_a_bug_of_rows_that_are_pushed_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS["push"][bug])


@pytest.mark.parametrize("bug", BUGS["pull"])
def test_a_bug_of_rows_that_are_pulled_is_found(bug: str) -> None:
    assert refuted(planned(transfer="pull"), BUGS["pull"][bug])


FALSE_LAWS = {
    "more rows than are listed": ("rows_value_here", 3, None),
    "places outside of a block": ("rows_value_listed", 3, None),
    "counts that differ": ("rows_value_here", 0, Law.DIFFERS),
    "places on one rank only": ("rows_value_listed", 0, Law.APART),
}


@pytest.mark.parametrize("law", FALSE_LAWS)
def test_a_law_that_does_not_hold_is_found(law: str) -> None:
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    name, below, more = FALSE_LAWS[law]
    tables = tuple(
        replace(one, below=below or one.below, laws=(*one.laws, *([more] if more else []))) if one.name == name else one
        for one in steps.tables
    )
    assert not verify(schedule, replace(steps, tables=tables)).proved
