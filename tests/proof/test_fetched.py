"""Rows that stay at the ranks of their experts until the ranks of their tokens add them: what would be wrong is refuted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Phase, Schedule, Who
from tilelink.schedule.steps import Compute, For, Load, Notify, Step, Store, Wait

RANKS = 3
SIZES = {"T": 48, "H": 64, "F": 64, "E": 7, "K": 2}  # the last rank has one expert, others three
EACH = SIZES["T"] // RANKS
PEER, STEP, CHOICE, LANE = Index("peer"), Index("step"), Index("choice"), Index("lane")
NEXT = (PEER + 1) % RANKS


# what peers send in call i + 1 says that they have fetched rows of call i; the proof relies on nothing in a library's call
BY_LIBRARY = {"rows_value.mover": "Library()", "ids_full.mover": "Library()"}


def planned(name: str = "ep_layer", choices: int = 2, more: Mapping[str, object] | None = None) -> Planned:
    known = {size: number for size, number in SIZES.items() if size in SPECS[name].spec.symbols()} | {"K": choices}
    pins = {"out.adder": "receiver", "out_rows.transfer": "pull", **(more or {})}
    return SPECS[name].plan_for(topologies.load("laptop-switch", RANKS), known, "bf16", pins)


def is_there(region: Region) -> bool:
    return region.buffer == "grouped_matmul_out_3_staged"


def fetched(new: Callable[[Region], Region]) -> Change:
    """Rows are loaded from elsewhere."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and is_there(step.region):
            return (replace(step, region=new(step.region)),)
        return (step,)

    return change


def rows_from(start: Number) -> Change:
    return fetched(lambda one: replace(one, start=(start, one.start[1])))


def experts(many: Number, first: Number) -> Change:
    """Rows of other experts are added."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Compute) and step.op == "combined":
            return (replace(step, operands=(*step.operands[:4], many, first)),)
        return (step,)

    return change


def loops(new: Callable[[For], Step]) -> Change:
    """The loop over ranks from which rows come is another one."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, For) and any(isinstance(one, Load) and is_there(one.region) for one in step.body):
            return (new(step),)
        return (step,)

    return change


def waits(new: Callable[[Wait], tuple[Step, ...]]) -> Change:
    return lambda step: new(step) if isinstance(step, Wait) and step.signal == "out_rows_ready" else (step,)


TOKEN = Index("t") + LANE
BUGS: dict[str, Change] = {
    "rows of the first tokens of all": rows_from(TOKEN * 2 + CHOICE),
    "rows of the next rank's tokens": rows_from(((rank + 1) % RANKS * EACH + TOKEN) * 2 + CHOICE),
    "rows of the peer's tokens": rows_from((PEER * EACH + TOKEN) * 2 + CHOICE),
    "rows of the first choice": rows_from((rank * EACH + TOKEN) * 2),
    "rows of the other choice": rows_from((rank * EACH + TOKEN) * 2 + 1 - CHOICE),
    "rows of half of a rank's tokens": rows_from((rank * (EACH // 2) + TOKEN) * 2 + CHOICE),
    "rows of this rank": fetched(lambda one: replace(one, at=rank)),
    "rows of the next rank": fetched(lambda one: replace(one, at=NEXT)),
    "columns of the next tile": fetched(lambda one: replace(one, start=(one.start[0], one.start[1] + 16))),
    "rows of peers only": loops(lambda one: replace(one, count=RANKS - 1, let=(("peer", (rank + 1 + STEP) % RANKS),))),
    "rows of one rank twice": loops(lambda one: replace(one, count=RANKS + 1)),
    "experts of this rank": experts(3 - rank // 2 * 2, rank * 3),
    "experts of the next rank": experts(3 - NEXT // 2 * 2, NEXT * 3),
    "all experts of each": experts(7, 0),
    "one expert less": experts(2 - PEER // 2, PEER * 3),
    "three experts of the last rank": experts(3, PEER * 3),
    "nobody waits": waits(lambda one: ()),
    "rows of the call before are waited for": waits(lambda one: (replace(one, until=one.until - 1),)),
    "one peer is not waited for": lambda step: (
        (replace(step, count=RANKS - 2),)
        if isinstance(step, For) and any(isinstance(one, Wait) and one.signal == "out_rows_ready" for one in step.body)
        else (step,)
    ),
    "nobody is told": lambda step: () if isinstance(step, Notify) and step.signal == "out_rows_ready" else (step,),
    "rows are stored by place": lambda step: (
        (replace(step, region=replace(step.region, start=(Index("m") + LANE, step.region.start[1]))),)
        if isinstance(step, Store) and is_there(step.region)
        else (step,)
    ),
}


@pytest.mark.parametrize("choices", [1, 2])
@pytest.mark.parametrize("name", ["ep_layer", "there_and_back"])
def test_schedules_are_proved(name: str, choices: int) -> None:
    proof = verify(planned(name, choices))
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])


def _with_phases(steps: Schedule, change: Callable[[Phase], tuple[Phase, ...]]) -> Schedule:
    launches = []
    for launch in steps.launches:
        roles = (replace(role, phases=tuple(p for one in role.phases for p in change(one))) for role in launch.roles)
        launches.append(replace(launch, roles=tuple(roles)))
    return replace(steps, launches=tuple(launches))


def _told_by_the_first(phase: Phase) -> tuple[Phase, ...]:
    """Peers may fetch rows while other programs still make some."""
    tells = "are there for the ranks" in phase.title
    return (replace(phase, who=Who.FIRST) if tells else phase,)


def _at_once(phase: Phase) -> tuple[Phase, ...]:
    """Without a wait for peers that may still fetch rows of the last call."""
    return () if "last call" in phase.title else (phase,)


@pytest.mark.parametrize("change", [_told_by_the_first, _at_once])
def test_an_order_that_some_routing_breaks_is_refuted(change: Callable[[Phase], tuple[Phase, ...]]) -> None:
    schedule = planned(more=BY_LIBRARY)
    assert verify(schedule).proved
    steps = instantiated(elaborated(schedule))
    changed = _with_phases(steps, change)
    assert changed != steps
    assert not verify(schedule, changed).proved
