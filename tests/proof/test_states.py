"""Bugs of merges of states: tokens that splits lose or take twice, logarithms that are lost, states of others, stale packets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import topologies
from tests.pipeline.decode_specs import How, spec_of
from tests.proof.planted import Change, refuted
from tests.proof.test_attention import computed, loaded, loop, moved, operand, shifted
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.proof.contents.states import mean_of_all
from tilelink.proof.contents.tile import MergedStates, Term, Tile
from tilelink.proof.contents.values import Mismatch, Values
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number
from tilelink.schedule.instance import instantiated, with_indices
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Phase, Role
from tilelink.schedule.steps import For, Load, Step, Store
from tilelink.schedule.walk import with_phases

ROW, LENGTHS, WINDOW = How(), How(lengths=True), How(lengths=True, window=50)
PAGES, GIVEN = How(lengths=True, pages=True), How(merge=True)
SIZES = {"B": 2, "Q": 12, "G": 2, "D": 16}


def planned(how: How, kind: str = "heads", **pins: str) -> Schedule:
    sizes, more = dict(SIZES), {"splits": "3", "fold": "16x16x16/1w2s", "protocol": "lamport"}
    if how.merge:
        sizes, more = {"T": 6, "H": 12, "D": 16}, {"protocol": "ll"}
    elif how.pages:
        sizes |= {"N": 36, "L": 16, "P": 15}
    else:
        sizes |= {"S": 210}
    return spec_of(kind, how).plan_for(topologies.load("laptop-switch", 3), sizes, "bf16", more | pins)


def merging(new: Callable[[For], For]) -> Change:
    return lambda step: (new(step),) if isinstance(step, For) and step.variable == "state" else (step,)


def stored(name: str, new: Callable[[Region], Region]) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        return (replace(step, region=new(step.region)),) if isinstance(step, Store) and step.value == name else (step,)

    return change


def at_place(dim: int, new: Callable[[Number], Number]) -> Callable[[Region], Region]:
    def change(region: Region) -> Region:
        start = list(region.start)
        start[dim] = new(start[dim])
        return replace(region, start=tuple(start))

    return change


def sent_to(new: Callable[[Number], Number]) -> Callable[[Region], Region]:
    return lambda region: replace(region, at=new(region.at)) if region.buffer.startswith("out_") else region


def left_out(name: str) -> Change:
    return lambda step: (
        () if isinstance(step, Store) and step.value == name and step.region.buffer != "out" else (step,)
    )


def of_state(name: str, new: Callable[[Number], Number]) -> Change:
    """The number of the state that is loaded."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.result == name and step.region.buffer.startswith("out_"):
            return (replace(step, region=at_place(1, new)(step.region)),)
        return (step,)

    return change


def in_set(name: str, number: Number) -> Change:
    """The set of packets that is loaded."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Load) and step.result == name and step.region.buffer.startswith("out_"):
            return (replace(step, region=at_place(0, lambda _: number)(step.region)),)
        return (step,)

    return change


NEXT = (Index("state") + 1) % 9
BUGS: dict[str, tuple[How, Change]] = {
    "a tile of keys less in each split": (ROW, loop("attend_between", lambda one: replace(one, count=one.count - 1))),
    "a tile of keys more in each split": (LENGTHS, loop("attend_between", lambda one: replace(one, count=one.count + 1))),
    "splits begin a tile later": (LENGTHS, loop("attend_between", lambda one: shifted(one, 16))),
    "a token behind the length": (LENGTHS, computed("attend_between", operand(9, lambda end: end + 1))),  # type: ignore[operator]
    "the last token is not seen": (LENGTHS, computed("attend_between", operand(9, lambda end: end - 1))),  # type: ignore[operator]
    "a token in front of the window": (WINDOW, computed("attend_between", operand(8, lambda first: first - 1))),  # type: ignore[operator]
    "no window": (WINDOW, computed("attend_between", operand(8, lambda _: 0))),
    "nothing is masked": (LENGTHS, computed("attend_between", lambda one: (replace(one, op="attend", operands=one.operands[:8]),))),  # noqa: E501
    "another scale": (LENGTHS, computed("attend_between", operand(6, lambda _: 0.5))),
    "keys of another head": (LENGTHS, loaded("keys_tile", lambda region: moved(region, -1, 16))),
    "values of another head": (LENGTHS, loaded("values_tile", lambda region: moved(region, -1, 16))),
    "values of other tokens": (LENGTHS, loaded("values_tile", lambda region: moved(region, -2, 1))),
    "the next slot of a page": (PAGES, loaded("keys_tile", lambda region: moved(region, -2, 1))),
    "queries of the next head": (LENGTHS, loaded("queries_tile", lambda region: moved(region, 1, 1))),
    "no logarithm is sent": (LENGTHS, left_out("log")),
    "no mean is sent": (LENGTHS, left_out("mean")),
    "a state less is merged": (LENGTHS, merging(lambda one: replace(one, count=8))),
    "a state is merged twice": (LENGTHS, of_state("mean", lambda state: NEXT)),
    "logarithms of other states": (LENGTHS, of_state("log", lambda state: NEXT)),
    "splits are sent as one": (LENGTHS, stored("mean", at_place(1, lambda _: Index("rank") * 3))),
    "means of the last call but one": (LENGTHS, in_set("mean", 0)),
    "logarithms of the last call": (LENGTHS, in_set("log", (Index("call") + 1) % 2)),
    "states go to the next rank": (LENGTHS, stored("mean", sent_to(lambda at: (at + 1) % 3))),
    "logarithms go to the next rank": (LENGTHS, stored("log", sent_to(lambda at: (at + 1) % 3))),
    "means of the next head": (LENGTHS, stored("mean", lambda one: moved(one, -2, 1) if one.buffer == "out_means" else one)),
    "a merge begins with a weight": (LENGTHS, computed("full", operand(0, lambda _: 0.0))),
    "no mean at the end": (LENGTHS, computed("attended", operand(1, lambda _: "top"))),
    "a mean of another share": (LENGTHS, computed("log_of_weights", operand(1, lambda _: "total"))),
    "natural logarithms": (GIVEN, computed("in_base_2", lambda one: (replace(one, op="copy"),))),
    "a given state less is merged": (GIVEN, merging(lambda one: replace(one, count=2))),
    "given logarithms of other heads": (GIVEN, loaded("given_logs", lambda region: moved(region, -1, 1))),
}  # fmt: skip


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_refuted(name: str) -> None:
    how, change = BUGS[name]
    assert refuted(planned(how), change)


@pytest.mark.parametrize("kind", ["sequences", "all"])
def test_so_are_bugs_of_what_other_ranks_get(kind: str) -> None:
    sizes = {"B": 3} if kind == "sequences" else {}
    machine = topologies.load("laptop-switch", 3)
    schedule = spec_of(kind, LENGTHS).plan_for(machine, SIZES | {"S": 210} | sizes, "bf16", {"splits": "3"})
    assert verify(schedule).proved
    for name in ("no logarithm is sent", "a state less is merged", "splits are sent as one", "means of the next head"):
        assert refuted(schedule, BUGS[name][1]), name


def test_the_length_of_another_sequence_is_refuted() -> None:
    schedule = planned(LENGTHS)
    steps = instantiated(elaborated(schedule))

    def other(index: Number) -> Number:
        if isinstance(index, int) or index.is_name:
            return index
        args = tuple(map(other, index.args))
        return Index(index.op, ((args[0] + 1) % 2,) if index.is_lookup else args)

    assert not verify(schedule, with_indices(steps, other)).proved


@pytest.mark.parametrize("number", [Index("tile") % 3 // 2, Index("tile") % 3 + 1, (Index("tile") + 1) % 3], ids=str)
def test_other_numbers_of_splits_are_refuted_but_for_another_order(number: Number) -> None:
    schedule = planned(LENGTHS)
    steps = instantiated(elaborated(schedule))

    def numbered(_: Role, phase: Phase) -> Phase:
        return replace(phase, let=tuple((name, number if name == "split" else index) for name, index in phase.let))

    assert verify(schedule, with_phases(steps, numbered)).proved is (number == (Index("tile") + 1) % 3)


def test_a_weight_of_fewer_rows_is_no_weight_of_the_merge() -> None:
    """Means are divided by weights of the same elements, not only of those that begin where they do."""
    ranks = np.zeros(1, np.int64)
    place = Tile(
        Term("out"), (0, 1, 2), ranks, (ranks,) * 3, (ranks + 1, ranks + 4, ranks + 16), (ranks,) * 3, ranks == 0
    )
    fewer = replace(place, extent=(ranks + 1, ranks + 2, ranks + 16))
    times = np.ones((1, 2), np.int16)
    values = Values(bind(spec_of("all", GIVEN).spec, {"T": 1, "H": 4, "D": 16}, 2, "bf16"))
    total, weight = MergedStates(2, "out", place, times), MergedStates(1, "out", place, times.copy())
    assert mean_of_all(values, total, weight, ranks).term == Term("out")
    with pytest.raises(Mismatch, match="not the state of a merge"):
        mean_of_all(values, total, replace(weight, place=fewer), ranks)
