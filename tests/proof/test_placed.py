"""Rows that go to their places in the order of the receiver's tiles: what would be wrong for some routing is refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tests.proof.planted import Change, refuted
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.happens_before.all_tables import check_all_tables
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Law, Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import LIST_PLACES, SORT_ROWS, Call, For, Load, Move, Notify, Step, Store, Wait

RANKS = 3
SIZES = {"T": 192, "H": 64, "F": 64, "E": 6, "K": 2}
OWN, HEIGHT, PIECE = SIZES["T"] // RANKS, 32, 16
PEER, AT, LANE, M = Index("peer"), Index("piece"), Index("lane"), Index("m")
NEXT = (PEER + 1) % RANKS


def planned(name: str = "ep_layer", experts: int = SIZES["E"]) -> Planned:
    rows = "dispatch_out" if name == "there_and_back" else "rows_value"
    pins = {f"{rows}.mover": f"PlacedRows({HEIGHT})", "ids_full.mover": "Library()"}
    # packets of ids would tell more than is relied on: that their sender has ended the last call
    pins |= {"h.tile": f"{HEIGHT}x64x64/4w3s"} if name == "ep_layer" else {}
    if name == "there_and_back":
        pins["dispatch_out_spread.tile"] = f"{HEIGHT}x64x0/4w1s"
    if name == "of_functions":
        pins |= {"relu_out.tile": f"{HEIGHT}x64x0/4w1s", "tile": f"{HEIGHT}x64x64/4w3s"}
    known = {size: number for size, number in (SIZES | {"E": experts}).items() if size in SPECS[name].spec.symbols()}
    adder = "sender" if name == "of_functions" else "receiver"
    topology = topologies.load("laptop-switch", RANKS)
    return SPECS[name].plan_for(topology, known, "bf16", {**pins, "out.adder": adder})


def _entry(table: str, peer: Number = PEER, piece: Number = AT) -> Index:
    return Index(f"rows_value_{table}", (peer, piece * PIECE + LANE))


def moved(source: Callable[[Region], Region], target: Callable[[Region], Region]) -> Change:
    """Other rows are moved, or elsewhere."""

    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Move):
            return (step,)
        return (replace(step, source=(source(step.source[0]),), target=(target(step.target[0]),)),)

    return change


def as_it_is(region: Region) -> Region:
    return region


def source(new: Callable[[Region], Region]) -> Change:
    return moved(new, as_it_is)


def target(new: Callable[[Region], Region]) -> Change:
    return moved(as_it_is, new)


def both(new: Callable[[Region], Region]) -> Change:
    return moved(new, new)


def numbers(function: str, **new: Number) -> Change:
    """An index program is told others, by their places."""

    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Call) or step.function != function:
            return (step,)
        told = list(step.numbers)
        for place, number in new.items():
            told[int(place.removeprefix("at"))] = number
        return (replace(step, numbers=tuple(told)),)

    return change


def loads(new: Callable[[Region], Region]) -> Change:
    """Tiles read something else of what has come."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == "rows_value":
            return (replace(step, region=new(step.region)),)
        return (step,)

    return change


def waits(new: Callable[[For], For | None]) -> Change:
    """The loop over the ranks of which rows are awaited is another one, or none."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, For) and any(isinstance(one, Wait) and "rows_value" in one.signal for one in step.body):
            return () if (other := new(step)) is None else (other,)
        return (step,)

    return change


def told(new: Callable[[Notify], Notify]) -> Change:
    return lambda step: (new(step),) if isinstance(step, Notify) and step.signal == "rows_value_arrived" else (step,)


def pieces(new: Callable[[For], For]) -> Change:
    """The loop over pieces is another one."""
    return lambda step: (
        (new(step),) if isinstance(step, For) and any(isinstance(one, Move) for one in step.body) else (step,)
    )


def _first(region: Region, row: Number) -> Region:
    return replace(region, start=(row, *region.start[1:]))


def _rows(region: Region, extent: Number) -> Region:
    return replace(region, extent=(extent, *region.extent[1:]))


def _here(peer: Number = PEER, piece: Number = AT) -> Index:
    return Index("rows_value_here", (peer, piece))


BUGS: dict[str, Change] = {
    # where rows go, and which
    "rows go to the next rank": target(lambda one: replace(one, at=NEXT)),
    "rows stay here": target(lambda one: replace(one, at=rank)),
    "rows come from the next rank": source(lambda one: replace(one, at=NEXT)),
    "rows of the list of the next rank": moved(
        lambda one: _first(one, _entry("listed", NEXT)), lambda one: _first(one, _entry("placed", NEXT))
    ),
    "tokens of the list of the next rank": source(lambda one: _first(one, _entry("listed", NEXT))),
    "places of the list of the next rank": target(lambda one: _first(one, _entry("placed", NEXT))),
    "places of the next piece": target(lambda one: _first(one, _entry("placed", piece=AT + 1))),
    "tokens of the first piece": source(lambda one: _first(one, _entry("listed", piece=0))),
    "places of the next rows": target(lambda one: _first(one, one.start[0] + 1)),
    "rows of the next tokens": source(lambda one: _first(one, one.start[0] + 1)),
    "places are tokens": target(lambda one: _first(one, _entry("listed"))),
    "rows are taken one by one": source(lambda one: _first(one, AT * (PIECE // 2) + LANE)),
    "rows are placed one by one": target(lambda one: _first(one, AT * PIECE + LANE)),
    "columns of the next ones": target(lambda one: replace(one, start=(one.start[0], 16))),
    "half of the columns": both(lambda one: replace(one, extent=(one.extent[0], SIZES["H"] // 2))),
    # how many
    "a piece is left out": pieces(lambda one: replace(one, count=one.count - 1)),
    "each program moves the first pieces": pieces(lambda one: replace(one, let=(("piece", Index("number")),))),
    "one row less": both(lambda one: _rows(one, _here() - 1)),
    "as many rows as go to the next rank": both(lambda one: _rows(one, _here(NEXT))),
    "as many rows as the next piece has": both(lambda one: _rows(one, _here(piece=AT + 1))),
    # what index programs are told
    "tokens of the first rank": numbers(LIST_PLACES, at0=0),
    "tokens of the next rank": numbers(LIST_PLACES, at0=(rank + 1) % RANKS * OWN),
    "some of the tokens": numbers(LIST_PLACES, at1=OWN // 2),
    "experts of half a rank": numbers(LIST_PLACES, at2=1),
    "an expert less": numbers(LIST_PLACES, at3=SIZES["E"] - 1),
    "half of the choices": numbers(LIST_PLACES, at4=1),
    "places in higher tiles": numbers(LIST_PLACES, at5=2 * HEIGHT),
    "places in lower tiles": numbers(LIST_PLACES, at5=HEIGHT // 2),
    "fewer ids are counted": numbers(LIST_PLACES, at6=16),
    "ids of some tokens": lambda step: (
        (replace(step, operands=(_rows(step.operands[0], SIZES["T"] // 2),)),)
        if isinstance(step, Call) and step.function == LIST_PLACES
        else (step,)
    ),
    "tables of the next rank's experts": numbers(SORT_ROWS, at0=(rank + 1) % RANKS * 2),
    # what tiles read
    "rows of the next tile": loads(lambda one: _first(one, M + HEIGHT)),
    "rows from the middle of a tile on": loads(lambda one: _first(one, M + HEIGHT // 2)),
    "half of a tile's rows": loads(lambda one: _rows(one, HEIGHT // 2)),
    "rows by token": loads(lambda one: _first(one, Index("routing_tokens_32", (M + LANE,)))),
    "rows of the next rank": loads(lambda one: replace(one, at=(rank + 1) % RANKS)),
    "all rows of a tile are stored": lambda step: (
        (replace(step, region=_rows(step.region, HEIGHT)),)
        if isinstance(step, Store) and step.region.buffer == "h"
        else (step,)
    ),
    # who waits for what
    "nobody waits": waits(lambda one: None),
    "one peer is not waited for": waits(lambda one: replace(one, count=RANKS - 1)),
    "own rows are not waited for": waits(
        lambda one: replace(one, count=RANKS - 1, let=(("m_segment", (rank + 1 + Index("step")) % RANKS),))
    ),
    "rows of the last call are waited for": lambda step: (
        (replace(step, until=step.until - 1),)
        if isinstance(step, Wait) and step.signal == "rows_value_arrived"
        else (step,)
    ),
    "the first program tells": told(lambda one: replace(one, last_of=1)),
    "the next rank is told": told(lambda one: replace(one, at=NEXT)),
    "nobody is told": lambda step: () if isinstance(step, Notify) and step.signal == "rows_value_arrived" else (step,),
}


@pytest.mark.parametrize("name", ["ep_layer", "there_and_back", "of_functions"])
def test_schedules_are_proved(name: str) -> None:
    proof = verify(planned(name))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("experts", [1, 2, 4, 5, 7])
def test_ranks_need_not_divide_the_experts(experts: int) -> None:
    assert verify(planned(experts=experts)).proved


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])


def _told_first(steps: Schedule) -> Schedule:
    """Peers are told before rows are moved."""

    def turned(body: tuple[Step, ...]) -> tuple[Step, ...]:
        moves = any(isinstance(one, Move) for loop in body if isinstance(loop, For) for one in loop.body)
        return body[::-1] if moves else body

    launches = tuple(
        replace(
            launch,
            roles=tuple(
                replace(role, phases=tuple(replace(phase, body=turned(phase.body)) for phase in role.phases))
                for role in launch.roles
            ),
        )
        for launch in steps.launches
    )
    return replace(steps, launches=launches)


def test_who_tells_too_early_is_found() -> None:
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    assert _told_first(steps) != steps
    assert not verify(schedule, _told_first(steps)).proved


FALSE_LAWS: dict[str, tuple[str, int, tuple[Law, ...]]] = {
    "more rows than a piece has": ("rows_value_here", 3, ()),
    "tokens of other ranks": ("rows_value_listed", 3, ()),
    "places behind the last one": ("rows_value_placed", 3, (Law.DIFFERS, Law.APART)),
    "tokens that differ": ("rows_value_listed", 0, (Law.DIFFERS,)),
    "tokens on one rank only": ("rows_value_listed", 0, (Law.APART,)),
    "counts that differ": ("rows_value_here", 0, (Law.DIFFERS,)),
}


def with_table(steps: Schedule, name: str, below: int, laws: tuple[Law, ...]) -> Schedule:
    tables = (replace(one, below=below or one.below, laws=laws) if one.name == name else one for one in steps.tables)
    return replace(steps, tables=tuple(tables))


@pytest.mark.parametrize("law", FALSE_LAWS)
def test_a_law_that_does_not_hold_is_found(law: str) -> None:
    schedule = planned()
    assert not verify(schedule, with_table(instantiated(elaborated(schedule)), *FALSE_LAWS[law])).proved


@pytest.mark.parametrize("laws", [(), (Law.DIFFERS,), (Law.APART,)], ids=str)
def test_the_order_of_writes_follows_from_both_laws(laws: tuple[Law, ...]) -> None:
    """Without one of them programs, or ranks, could write the same place."""
    steps = instantiated(elaborated(planned()))
    assert check_all_tables(steps).proved
    assert not check_all_tables(with_table(steps, "rows_value_placed", 0, laws)).proved


def _first_of(shape: tuple[Number, ...]) -> int:
    first = shape[0]
    assert isinstance(first, int), "it has numbers"
    return first


def test_room_for_fewer_places_is_found() -> None:
    """The last tile of some routing would lie behind the end."""
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    fewer = tuple(
        replace(one, shape=(_first_of(one.shape) - HEIGHT, *one.shape[1:])) if one.name == "rows_value" else one
        for one in steps.buffers
    )
    assert not verify(schedule, replace(steps, buffers=fewer)).proved


def test_tables_of_another_height_do_not_do() -> None:
    """Readers find rows where tables of their own tiles are: places of other tiles are other ones."""
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    tables = tuple(
        replace(one, shape=(_first_of(one.shape) // 2,)) if one.name == "routing_experts_32" else one
        for one in steps.tables
    )
    assert tables != steps.tables
    assert not verify(schedule, replace(steps, tables=tables)).proved
