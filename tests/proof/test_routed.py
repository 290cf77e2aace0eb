"""Schedules with routings whose steps have been changed: what is wrong for some routing is refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.expert_specs import SPECS
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.ir.slices import as_computed
from tilelink.proof.contents.tables import wrong_tables
from tilelink.proof.happens_before.all_tables import check_all_tables
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.instance import instantiated, with_indices
from tilelink.schedule.memory import Law, Region, Table
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import SORT_ROWS, Call, Compute, For, If, Load, Step, Store
from tilelink.schedule.walk import mapped, with_bodies

SIZES = {"T": 64, "H": 64, "F": 64, "E": 4, "K": 2}
PINS: dict[str, dict[str, object]] = {
    "ag_moe": {"mover": "CopyEngine()", "transfer": "push", "chunks": "1", "tile": "16x16x16/4w1s"},
    "moe_rs": {"mover": "Fused()", "transfer": "push", "sum": "kernel"},
    "ep_layer": {},
}


def planned(name: str) -> Planned:
    return SPECS[name].plan_for(topologies.load("laptop-switch", 2), SIZES, "bf16", PINS[name])


Change = Callable[[Step], tuple[Step, ...]]


def changed(name: str, change: Change) -> tuple[Planned, Schedule]:
    schedule = planned(name)
    steps = instantiated(elaborated(schedule))
    found = with_bodies(steps, lambda body: mapped(body, change))
    assert found != steps, "nothing has changed"
    return schedule, found


def other_index(of: str, new: Callable[[Index], Number]) -> Change:
    """Entries of tables whose names begin so are looked up elsewhere."""

    def change(step: Step) -> tuple[Step, ...]:
        return (with_indices(step, _replacing) if isinstance(step, Load | Store) else step,)

    def _replacing(index: Number) -> Number:
        if isinstance(index, int) or not index.args:
            return index
        if index.op.startswith(of):
            return new(index)
        return Index(index.op, tuple(_replacing(one) for one in index.args))

    return change


def _shifted(index: Index) -> Number:
    return Index(index.op, (index.args[0] + 1,))


def _of_other_table(name: str) -> Callable[[Index], Number]:
    return lambda index: Index(name.format(index.op.rpartition("_")[2]), index.args)


def _choice(step: Step) -> tuple[Step, ...]:
    """The last choice is left out."""
    return (replace(step, count=1) if isinstance(step, For) and step.variable == "choice" else step,)


def _load(buffer: str, new: Callable[[Region], Region]) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.region.buffer == buffer:
            return (replace(step, region=new(step.region)),)
        return (step,)

    return change


def _first_choice(region: Region) -> Region:
    return replace(region, start=(region.start[0], 0))


def _sorted(change: Callable[[Call], Call]) -> Change:
    """Calls that make tables are other ones."""

    def changed_call(step: Step) -> tuple[Step, ...]:
        return (change(step) if isinstance(step, Call) and step.function == SORT_ROWS else step,)

    return changed_call


def _number(place: int, new: Number) -> Change:
    return _sorted(lambda step: replace(step, numbers=(*step.numbers[:place], new, *step.numbers[place + 1 :])))


def _ids(change: Callable[[Region], Region]) -> Change:
    return _sorted(lambda step: replace(step, operands=(change(step.operands[0]),)))


def _combined(place: int, new: Number) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Compute) and step.op == "combined":
            return (replace(step, operands=(*step.operands[:place], new, *step.operands[place + 1 :])),)
        return (step,)

    return change


BUGS: dict[str, tuple[str, Change]] = {
    "tables of the first experts on each rank": ("ep_layer", _number(0, 0)),
    "tables of the next rank's experts": ("ep_layer", _number(0, (rank + 1) % 2 * 2)),
    "tables of fewer experts": ("ag_moe", _number(1, 3)),
    "ids of fewer experts are right": ("ep_layer", _number(2, 2)),
    "choices of other tokens": ("ag_moe", _number(3, 4)),
    "programs that sort too few ids": ("ag_moe", _number(4, 32)),
    "nothing is said of experts": ("ag_moe", _sorted(lambda step: replace(step, numbers=()))),
    "ids of some tokens": ("ag_moe", _ids(lambda ids: replace(ids, extent=(32, 2)))),
    "ids as they lie on one rank": ("ep_layer", _ids(lambda ids: replace(ids, buffer="ids", extent=(32, 2)))),
    "weights for ids": ("moe_rs", _ids(lambda ids: replace(ids, buffer="weights"))),
    "rows of the first experts are combined": ("ep_layer", _combined(5, 0)),
    "rows of all experts are combined": ("ep_layer", _combined(4, 4)),
    "rows of some experts are combined": ("moe_rs", _combined(4, 3)),
    "rows of the next tile": ("ag_moe", other_index("routing_tokens", _shifted)),
    "the matrix of the next tile's expert": ("ag_moe", other_index("routing_experts", _shifted)),
    "stored to rows of the next tile": ("ag_moe", other_index("routing_rows", _shifted)),
    "as many rows as the next tile has": ("ag_moe", other_index("routing_here", _shifted)),
    "assignments for tokens": ("ag_moe", other_index("routing_tokens", _of_other_table("routing_rows_{}"))),
    "tokens for assignments": ("moe_rs", other_index("routing_rows", _of_other_table("routing_tokens_{}"))),
    "a choice is left out": ("moe_rs", _choice),
    "the weight of the first choice": ("moe_rs", _load("weights", _first_choice)),
    "the id of the first choice": ("moe_rs", _load("ids", _first_choice)),
    "nothing is stored": ("ag_moe", lambda step: () if isinstance(step, Store) else (step,)),
    "tiles with rows are passed over": (
        "ag_moe",
        lambda step: (replace(step, body=step.others, others=step.body) if isinstance(step, If) else step,),
    ),
    "products are of one step of k": (
        "ag_moe",
        lambda step: (replace(step, count=1) if isinstance(step, For) and step.variable == "k_tile" else step,),
    ),
    "rows are combined twice": (
        "moe_rs",
        lambda step: (step, step) if isinstance(step, Compute) and step.op == "combined" else (step,),
    ),
}


@pytest.mark.parametrize("name", PINS)
def test_unchanged_schedules_are_proved(name: str) -> None:
    proof = verify(planned(name))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.quick(4)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    name, change = BUGS[bug]
    schedule, steps = changed(name, change)
    proof = verify(schedule, steps)
    assert not proof.proved


def test_tiles_that_do_not_wait_for_the_gather_are_refuted() -> None:
    """The order of steps, whatever a table says."""
    schedule = instantiated(elaborated(planned("ag_moe")))
    launches = tuple(
        replace(
            launch,
            roles=tuple(
                replace(role, phases=tuple(one for one in role.phases if one.title != "rows of all ranks"))
                for role in launch.roles
            ),
        )
        for launch in schedule.launches
    )
    changed_schedule = replace(schedule, launches=launches)
    assert changed_schedule != schedule
    assert check_all_tables(schedule).proved
    assert check_all_tables(changed_schedule).refutation is not None


def test_tables_are_made_before_they_are_looked_up() -> None:
    schedule = planned("ag_moe")
    steps = instantiated(elaborated(schedule))
    first, *rest = steps.launches
    for launches in ((*rest, first), tuple(rest)):
        proof = verify(schedule, replace(steps, launches=tuple(launches)))
        assert any("has not been made" in finding.fact for finding in proof.findings), proof.lines()


def test_rows_of_a_table_that_may_repeat_are_written_twice() -> None:
    schedule = instantiated(elaborated(planned("ag_moe")))
    tables = tuple(
        replace(one, laws=tuple(law for law in one.laws if law is not Law.DIFFERS)) for one in schedule.tables
    )
    assert check_all_tables(schedule).proved
    assert check_all_tables(replace(schedule, tables=tables)).refutation is not None


@pytest.mark.parametrize("table", ["counts", "rows", "tokens", "experts", "here", "tiles"])
@pytest.mark.parametrize("change", ["entries", "bound"])
def test_tables_have_room_for_every_routing(table: str, change: str) -> None:
    """One entry fewer, or a bound that an entry may reach."""
    schedule = planned("ag_moe")
    steps = instantiated(elaborated(schedule))

    def smaller(one: Table) -> Table:
        if not one.name.startswith(f"routing_{table}"):
            return one
        last = one.shape[-1] - 1
        return replace(one, shape=(*one.shape[:-1], last)) if change == "entries" else replace(one, below=one.below - 1)

    found = list(wrong_tables(replace(steps, tables=tuple(map(smaller, steps.tables))), as_computed(schedule.spec)))
    assert not list(wrong_tables(steps, as_computed(schedule.spec)))
    assert found or (table, change) == ("counts", "bound"), "counts are looked up by the index program alone"
