"""Rows that return to the ranks of their tokens before they are added: what would be wrong for some routing is refuted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tests.proof.planted import refuted
from tilelink.elaborate.review import landing_bytes, sized
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.happens_before.all_tables import check_all_tables
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, less, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Law, Region
from tilelink.schedule.roles import Phase, Role, Schedule, Who
from tilelink.schedule.steps import Call, For, Load, Notify, Step, Store, Wait
from tilelink.schedule.walk import all_steps

RANKS = 3
SIZES = {"T": 48, "H": 64, "F": 64, "E": 6, "K": 2}
PEER = Index("peer")


def planned() -> Planned:
    pins = {"out.adder": "receiver", "out_rows.transfer": "push"}
    return SPECS["ep_layer"].plan_for(topologies.load("laptop-switch", RANKS), SIZES, "bf16", pins)


def is_back(step: Step) -> bool:
    return isinstance(step, Store) and step.region.buffer == "out_rows"


def rows(new: Callable[[Region], Region]) -> Callable[[Step], tuple[Step, ...]]:
    """Rows are stored elsewhere."""

    def change(step: Step) -> tuple[Step, ...]:
        return (replace(step, region=new(step.region)),) if isinstance(step, Store) and is_back(step) else (step,)

    return change


def counted_from(before: Number) -> Callable[[Step], tuple[Step, ...]]:
    """Rows of a rank's tokens begin elsewhere."""
    return rows(lambda one: replace(one, start=(less(one.start[0])[0] - before, one.start[1])))


def loops(new: Callable[[For], For]) -> Callable[[Step], tuple[Step, ...]]:
    """The loop over ranks to which rows go is another one."""
    return lambda step: (new(step),) if isinstance(step, For) and any(map(is_back, step.body)) else (step,)


def read(new: Callable[[Region], Region]) -> Callable[[Step], tuple[Step, ...]]:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == "out_rows":
            return (replace(step, region=new(step.region)),)
        return (step,)

    return change


def _waits(loop: Step) -> bool:
    return isinstance(loop, For) and any(
        isinstance(one, Wait) and one.signal == "out_rows_arrived" for one in loop.body
    )


EACH = SIZES["T"] * SIZES["K"] // RANKS  # rows of the tokens of a rank

BUGS: dict[str, Callable[[Step], tuple[Step, ...]]] = {
    "rows count from the first token of all": counted_from(0),
    "rows count from the first token of this rank": counted_from(rank * EACH),
    "rows count from the next rank's first token": counted_from((PEER + 1) % RANKS * EACH),
    "rows count from half of a rank's tokens": counted_from(PEER * (EACH // 2)),
    "rows stay here": rows(lambda one: replace(one, at=rank)),
    "rows go to the next rank": rows(lambda one: replace(one, at=(PEER + 1) % RANKS)),
    "rows go to peers only": loops(
        lambda loop: replace(loop, count=RANKS - 1, let=(("peer", (rank + 1 + Index("step")) % RANKS),))
    ),
    "rows go to some peers": loops(lambda loop: replace(loop, count=RANKS - 1)),
    "rows go nowhere": loops(lambda loop: replace(loop, body=())),
    "rows of the next tile": rows(
        lambda one: replace(
            one,
            start=(Index(less(one.start[0])[0].op, (Index("m") + 16 + Index("lane"),)) - PEER * EACH, one.start[1]),  # type: ignore[union-attr]
        )
    ),
    "columns of the next tile": rows(lambda one: replace(one, start=(one.start[0], one.start[1] + 16))),
    "rows of other tokens are added": read(lambda one: replace(one, start=(one.start[0] + SIZES["K"], one.start[1]))),
    "nobody waits": lambda step: () if _waits(step) else (step,),
    "one peer is not waited for": lambda step: (
        (replace(step, count=RANKS - 2),) if isinstance(step, For) and _waits(step) else (step,)
    ),
    "what is waited for is told of the last call": lambda step: (
        (replace(step, until=step.until - 1),)
        if isinstance(step, Wait) and step.signal == "out_rows_arrived"
        else (step,)
    ),
    "nobody is told": lambda step: () if isinstance(step, Notify) and step.signal == "out_rows_arrived" else (step,),
    "tables of the first experts on each rank": lambda step: (
        (replace(step, numbers=(0, *step.numbers[1:])),) if isinstance(step, Call) and step.tables else (step,)
    ),
}


def test_the_schedule_is_proved() -> None:
    proof = verify(planned())
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])


def with_roles(steps: Schedule, change: Callable[[Role], Role]) -> Schedule:
    launches = tuple(replace(one, roles=tuple(map(change, one.roles))) for one in steps.launches)
    return replace(steps, launches=launches)


def _tells(phase: Phase) -> bool:
    return any(isinstance(one, Notify) and one.signal == "out_rows_arrived" for loop in phase.body for one in _in(loop))


def _in(step: Step) -> tuple[Step, ...]:
    return step.body if isinstance(step, For) else (step,)


def _told_first(role: Role) -> Role:
    told = tuple(replace(one, who=Who.FIRST) for one in role.phases if _tells(one))
    return replace(role, phases=(*told, *(one for one in role.phases if not _tells(one))))


def _told_by_the_first(role: Role) -> Role:
    """Behind its own tiles, while others still have some."""
    return replace(role, phases=tuple(replace(one, who=Who.FIRST) if _tells(one) else one for one in role.phases))


def _at_once(role: Role) -> Role:
    """Without a wait for peers that may still add rows of the last call."""
    return replace(role, phases=tuple(one for one in role.phases if "last call" not in one.title))


@pytest.mark.parametrize("change", [_told_first, _told_by_the_first])
def test_an_order_that_some_routing_breaks_is_refuted(change: Callable[[Role], Role]) -> None:
    schedule = planned()
    steps = instantiated(elaborated(schedule))
    found = with_roles(steps, change)
    assert found != steps, "nothing has changed"
    assert check_all_tables(steps).proved
    assert check_all_tables(found).refutation is not None


def test_ids_of_a_call_say_that_their_rank_has_added_the_rows_of_the_last_one() -> None:
    """So that the exchanges of a layer are each other's barrier."""
    assert check_all_tables(with_roles(instantiated(elaborated(planned())), _at_once)).proved


def test_rows_of_two_ranks_may_be_the_same_without_that_law() -> None:
    steps = instantiated(elaborated(planned()))
    for law in (Law.DIFFERS, Law.APART):
        tables = tuple(replace(one, laws=tuple(set(one.laws) - {law})) for one in steps.tables)
        assert check_all_tables(replace(steps, tables=tables)).refutation is not None


def test_tables_of_all_experts_do_not_differ_between_ranks() -> None:
    """A law that does not hold is not believed."""
    schedule = SPECS["ag_moe"].plan_for(topologies.load("laptop-switch", 2), SIZES, "bf16", {})
    steps = instantiated(elaborated(schedule))
    tables = tuple(replace(one, laws=(*one.laws, Law.APART)) if one.laws else one for one in steps.tables)
    assert any(one.laws for one in steps.tables)
    assert not verify(schedule, replace(steps, tables=tables)).proved


def test_what_lands_is_as_large_as_the_rows_of_a_ranks_tokens() -> None:
    """So that it does not grow with experts; the plan says how much memory of a rank its peers reach."""
    found = planned()
    steps = instantiated(elaborated(found))
    assert steps.shapes["out_rows"] == (EACH, SIZES["H"])
    assert {one.region.buffer for one in all_steps(steps) if isinstance(one, Store) and one.region.at != rank} >= {
        "out_rows"
    }
    values, ids = (math.prod(steps.shapes[name]) for name in ("rows_value_packets", "ids_full_packets"))
    assert landing_bytes(steps) == 2 * values + 2 * 4 * ids + 2 * EACH * SIZES["H"]  # of packets of ids half is data
    assert f"{sized(landing_bytes(steps))} of symmetric memory a rank" in str(found)


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 bytes"), (1000, "1.0 KB"), (33_554_432, "33.6 MB"), (2_000_000_000, "2.0 GB")]
)
def test_bytes_are_printed_as_people_read_them(count: int, text: str) -> None:
    assert sized(count) == text
