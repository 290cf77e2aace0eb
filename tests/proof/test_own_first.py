"""Tiles of own tokens come before the wait for rows of other ranks: what would be wrong for some routing is refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tests.proof.planted import Change
from tilelink.elaborate.routed import OWN_TOKENS
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.contents import routed
from tilelink.proof.contents.check import contents
from tilelink.proof.happens_before.all_tables import check_all_tables
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, less, rank
from tilelink.schedule.instance import instantiated, with_indices
from tilelink.schedule.memory import Law, Region
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import SORT_ROWS, Call, If, Load, Step, Wait
from tilelink.schedule.walk import mapped, steps_in, with_bodies

RANKS = 3
SIZES = {"T": 192, "H": 64, "F": 96, "E": 6, "K": 2}
EACH = SIZES["T"] // RANKS  # tokens of a rank
TILE = {"tile": "16x16x16/4w1s", "group": "4"}
PINS: dict[str, dict[str, object]] = {
    "ag_moe": {"mover": "CopyEngine()", "transfer": "push", "own": "first", **TILE},
    "moe_layer": {"xf.mover": "CommSms(2)", "xf.transfer": "pull", "h.own": "first"},
    "ep_layer": {
        "rows_value.mover": "NeededRows()",
        "out.adder": "receiver",
        "out_rows.transfer": "push",
        "h.own": "first",
    },
    "of_functions": {"rows_value.mover": "CommSms(2)", "out.adder": "sender", "own": "first"},
}
OWN, ALL = Index("routing_own_tiles_16", (0,)), Index("routing_tiles_16", (0,))
TOKENS, LANE = "routing_tokens_16", Index("lane")


def planned(name: str = "ag_moe") -> Planned:
    sizes = {size: number for size, number in SIZES.items() if size in SPECS[name].spec.symbols()}
    return SPECS[name].plan_for(topologies.load("laptop-switch", RANKS), sizes, "bf16", PINS[name])


def is_own(phase: Phase) -> bool:
    return phase.title == OWN_TOKENS


def is_other(phase: Phase) -> bool:
    return phase.first != 0


def with_roles(steps: Schedule, change: Callable[[Role], Role]) -> Schedule:
    launches = tuple(replace(one, roles=tuple(map(change, one.roles))) for one in steps.launches)
    return replace(steps, launches=launches)


OnSteps = Callable[[Schedule], Schedule]


def phases(which: Callable[[Phase], bool], new: Callable[[Phase], Phase]) -> OnSteps:
    return lambda steps: with_roles(
        steps, lambda role: replace(role, phases=tuple(new(one) if which(one) else one for one in role.phases))
    )


def each_step(change: Change) -> OnSteps:
    return lambda steps: with_bodies(steps, lambda body: mapped(body, change))


def loads(buffer: str, new: Callable[[Region], Region]) -> OnSteps:
    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Load) or step.region.buffer != buffer:
            return (step,)
        return (replace(step, region=new(step.region)),)

    return each_step(change)


def rows(new: Callable[[Index], Number]) -> OnSteps:
    """Own rows are found elsewhere."""
    return loads("x", lambda one: replace(one, start=(new(less(one.start[0])[0]), one.start[1])))  # type: ignore[arg-type]


def counted_from(before: Number) -> OnSteps:
    return rows(lambda token: token - before)


def numbers(*tokens: Number) -> OnSteps:
    """The index program is told of other own tokens."""

    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Call) or step.function != SORT_ROWS:
            return (step,)
        return (replace(step, numbers=(*step.numbers[:5], *tokens)),)

    return each_step(change)


def replacing(old: Index, new: Number, which: Callable[[Phase], bool]) -> OnSteps:
    def other(index: Number) -> Number:
        if isinstance(index, int) or index == old:
            return new if index == old else index
        return Index(index.op, tuple(map(other, index.args))) if index.args else index

    return phases(which, lambda phase: with_indices(phase, other))


def begins(first: Number) -> OnSteps:
    """The others begin at another position, and end where they do."""
    return phases(is_other, lambda phase: replace(phase, first=first, count=less(phase.count)[0] - first))


def swapped(steps: Schedule) -> Schedule:
    """The others come before the wait, too."""

    def order(role: Role) -> Role:
        mine = [one for one in role.phases if is_own(one) or is_other(one)]
        first = next((at for at, one in enumerate(role.phases) if is_own(one)), 0)
        rest = [one for one in role.phases if one not in mine]
        return replace(role, phases=(*rest[:first], *mine, *rest[first:]))

    return with_roles(steps, order)


def _without_guard(body: tuple[Step, ...]) -> tuple[Step, ...]:
    return tuple(inner for step in body for inner in (step.others if isinstance(step, If) else (step,)))


def _here_of_the_next_tile(region: Region) -> Region:
    many = region.extent[0]
    assert isinstance(many, Index)
    return replace(region, extent=(Index(many.op, (many.args[0] + 1,)), region.extent[1]))


GROUP = 4 * (SIZES["F"] // RANKS // 16)  # positions of a group of tiles
BUGS: dict[str, OnSteps] = {
    "nobody waits": each_step(
        lambda step: () if isinstance(step, Wait) and step.signal == "x_full_arrived" else (step,)
    ),
    "others come before the wait": swapped,
    "own tiles are all tiles": replacing(OWN, ALL, is_own),
    "own tiles are all of their groups": phases(is_own, lambda phase: replace(phase, body=_without_guard(phase.body))),
    "own tiles are one more": replacing(OWN, OWN + 1, is_own),
    "own tiles are one less": replacing(OWN, OWN - 1, is_own),
    "others begin a tile later": replacing(OWN, OWN + 1, is_other),
    "others begin a group later": begins(OWN // 4 * GROUP + GROUP),
    "others begin with the next whole group": begins((OWN + 3) // 4 * GROUP),
    "others begin a position later": begins(OWN // 4 * GROUP + 1),
    "own tiles end with the last whole group": phases(is_own, lambda phase: replace(phase, count=OWN // 4 * GROUP)),
    "others end a position earlier": phases(
        is_other, lambda phase: replace(phase, count=less(phase.count)[0] - 1 - phase.first)
    ),
    "others end as if they began with the first tile": phases(is_other, lambda phase: replace(phase, first=0)),
    "rows count from the next rank's first token": counted_from((rank + 1) % RANKS * EACH),
    "rows count from the first token of all": counted_from(0),
    "rows count from the second token": counted_from(rank * EACH + 1),
    "rows count from half of a rank's tokens": counted_from(rank * (EACH // 2)),
    "rows are taken one by one": rows(lambda _: Index("m") + LANE),
    "assignments for tokens": rows(lambda token: Index("routing_rows_16", token.args) - rank * EACH),
    "rows of the next tile": rows(lambda token: Index(TOKENS, (token.args[0] + 16,)) - rank * EACH),
    "as many rows as the next tile has": loads("x", _here_of_the_next_tile),
    "half of the columns": loads("x", lambda one: replace(one, extent=(one.extent[0], SIZES["H"] // 2))),
    "rows of another rank": loads("x", lambda one: replace(one, at=(rank + 1) % RANKS)),
    "own tiles look for rows among those of peers": loads(
        "x", lambda one: replace(one, buffer="x_full", start=(less(one.start[0])[0], one.start[1]))
    ),
    "tokens of the next rank come first": numbers((rank + 1) % RANKS * EACH, EACH),
    "tokens of the first rank come first": numbers(0, EACH),
    "half of the own tokens come first": numbers(rank * EACH, EACH // 2),
    "all tokens come first": numbers(0, SIZES["T"]),
    "no tokens are said to come first": numbers(),
    "own tiles are not counted": each_step(
        lambda step: (replace(step, tables=step.tables[:-1]) if isinstance(step, Call) else step,)
    ),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", PINS)
def test_schedules_are_proved(name: str) -> None:
    schedule = planned(name)
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())
    steps = elaborated(schedule)
    assert sum(is_own(phase) for one in steps.launches for role in one.roles for phase in role.phases) == 1


@pytest.mark.quick(8)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    found = BUGS[bug](steps)
    assert found != steps, "nothing has changed"
    assert not verify(schedule, found).proved


def test_rows_that_programs_push_are_waited_for_by_others() -> None:
    """Own ones as well, since other programs of this rank may have pushed them."""
    schedule = planned("ep_layer")
    steps = instantiated(elaborated(schedule))

    def change(step: Step) -> tuple[Step, ...]:
        waits = [one for one in steps_in((step,)) if isinstance(one, Wait) and one.signal == "rows_value_arrived"]
        return () if waits else (step,)

    assert check_all_tables(steps).proved
    assert check_all_tables(each_step(change)(steps)).refutation is not None


@pytest.mark.quick(2)
@pytest.mark.parametrize("own", [0, 1, 2, 3, 4, 7, 1000])
def test_it_is_the_same_for_every_number_of_own_tiles(own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof looks at one number a rank: others would do as well, for what is right and for what is wrong."""

    def others(tables: routed._Tables) -> Number:
        return min(own, tables.tiles)

    monkeypatch.setattr(routed._Tables, "own_tiles", property(others))
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    assert not list(contents(steps, schedule.spec))
    assert list(contents(BUGS["own tiles are one more"](steps), schedule.spec)) or own > 100


FALSE_LAWS = {
    "fewer own tiles than there may be": (2, None),
    "their number differs from entry to entry": (0, Law.DIFFERS),
    "no rank has as many": (0, Law.APART),
}


@pytest.mark.parametrize("law", FALSE_LAWS)
def test_a_law_that_does_not_hold_is_found(law: str) -> None:
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    below, more = FALSE_LAWS[law]
    tables = tuple(
        replace(one, below=below or one.below, laws=(*one.laws, *([more] if more else [])))
        if one.name == OWN.op
        else one
        for one in steps.tables
    )
    assert not verify(schedule, replace(steps, tables=tables)).proved
