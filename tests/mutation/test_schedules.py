"""Mutators of schedules: none is dead, none yields what there is already, and they touch what they say."""

from __future__ import annotations

from collections import Counter

import pytest

import lowering
from tests.mutation.subjects import SUBJECTS, subject
from tilelink.ir.nodes import Finish
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Wait
from tilelink.mutation.judges import judge_schedule_by_run
from tilelink.mutation.mutant import ScheduleMutant
from tilelink.mutation.schedules import mutants, schedule_operators
from tilelink.mutation.sites import sites


@pytest.mark.slow
def test_every_operator_is_alive() -> None:
    found = Counter(mutant.operator for label in SUBJECTS for mutant in mutants(subject(label)))
    assert [name for name in schedule_operators() if not found[name]] == []


@pytest.mark.parametrize("label", SUBJECTS)
@pytest.mark.quick(8)
def test_mutants_differ(label: str) -> None:
    original = subject(label)
    found = [mutant.schedule for mutant in mutants(original)]
    assert original not in found
    assert len(set(found)) == len(found)
    assert all(mutant.spec == original.spec for mutant in found)


def test_sites_are_unique_and_readable() -> None:
    found = list(mutants(subject("scatter, SMs push, epilogue")))
    assert len({(mutant.operator, mutant.site) for mutant in found}) == len(found)
    sites_of = {mutant.operator: mutant.site for mutant in reversed(found)}
    assert sites_of["drop wait"] == "role y, step 1 IfOwn m, own step 0 SumParts out, Wait y_parts_arrived"
    assert sites_of["drop notify"] == "role y, step 1 IfOwn m, others step 1 Notify y_parts_count"
    assert sites_of["communication programs"] == ("launch 1 Kernel y_kernel, communication y_parts: programs 2 -> 1")
    assert sites_of["signal scope"] == "signal done: scope peer count -> local"


def test_deterministic() -> None:
    schedule = subject("MLP")
    first = list(mutants(schedule))
    assert list(mutants(Schedule.from_json(schedule.to_json()))) == first


def test_a_mutant_survives_storage() -> None:
    """Mutated schedules are ordinary ones: they print, and go through JSON in both directions."""
    for mutant in mutants(subject("gather, copy engine pull")):
        assert Schedule.from_json(mutant.schedule.to_json()) == mutant.schedule


def test_put_changes_one_node() -> None:
    schedule = subject("gather, SMs pull")
    (site,) = sites(schedule, Wait)
    assert site.label == "role out, step 0 Wait x_full_arrived"
    assert [s.node for s in sites(site.drop(), Wait)] == []
    assert [s.node for s in sites(site.put_all(site.node, site.node), Wait)] == [site.node] * 2
    assert site.put(site.node) == schedule
    assert [launch for launch in site.drop().launches if isinstance(launch, Finish)] == [
        Finish(by_copy=False, turns=True, within=True)
    ]


def one(label: str, operator: str, text: str) -> ScheduleMutant:
    return next(m for m in mutants(subject(label)) if m.operator == operator and text in m.site)


@pytest.mark.parametrize(
    ("label", "operator", "text"),
    [
        ("gather, SMs pull", "drop wait", "Wait x_full_arrived"),
        ("scatter, SMs push, epilogue", "drop notify", "y_parts_count"),
        ("gather, copy engine push", "another buffer", "x_full"),
        ("all-reduce, SMs", "communicate another exchange", ""),
        ("gather, copy engine pull", "drop copy", "Publish"),
        ("scatter, fused push", "store place", "Store y_parts: place peer -> every peer"),
    ],
)
@pytest.mark.quick(3)
def test_planner_bugs_are_killed_by_a_run(label: str, operator: str, text: str) -> None:
    assert judge_schedule_by_run(one(label, operator, text)).killed


# a launch, a mover or an algorithm that the others do not have
SOME = ("gather, fused pull, ragged", "gather, no atomics", "scatter, SMs push, epilogue", "all-reduce, SMs", "queue")


@pytest.mark.parametrize(
    "label", [label if label in SOME else pytest.param(label, marks=pytest.mark.slow) for label in SUBJECTS]
)
@pytest.mark.quick(2)
def test_originals_survive(label: str) -> None:
    """A judge that kills everything would find every mutant."""
    schedule = subject(label)
    verdict = judge_schedule_by_run(ScheduleMutant("nothing", "", schedule))
    assert not verdict.killed, verdict
    assert lowering.emit(schedule) == lowering.emit(Schedule.from_json(schedule.to_json()))
