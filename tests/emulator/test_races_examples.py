"""Emitted operators have no race, on any mover and transfer; operators with one line taken out or weakened have one."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

import lowering
import topologies
from tests.emulator.ag_gemm_source import AgGemm
from tests.pipeline.test_workloads import PINS, in_turns
from tests.pipeline.workloads import SIZES, has, load, sizes, space
from tilelink.emulator import NarrowScope, Race, World
from tilelink.emulator.races import RaceDetector, Rules
from tilelink.errors import NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

OVERLAPPED = {"algorithm": "direct", "mover": "CommSms(2)", "compute": "triton"}


def schedule_of(name: str, num_ranks: int, pins: dict[str, str], topology: str = "laptop-switch") -> Schedule:
    if "transfer" in pins and "protocol" in space(name):
        pins = {**pins, "protocol": "simple"}
    machine = topologies.load(topology, num_ranks)
    return load(name).plan_for(machine, sizes(name, num_ranks), "bf16", pins)


def run(schedule: Schedule, source: str, seed: int, rules: Rules = Rules(), calls: int = 2) -> Race | None:  # noqa: B008
    build = operator_class(load_source(source, schedule.name))
    detector = RaceDetector(schedule.num_ranks, rules)
    world = World(schedule.num_ranks, num_sms=schedule.machine.num_sms, seed=seed, observers=[detector])
    operators = [build(fabric) for fabric in world.fabrics]
    results = []
    for call in range(calls):
        inputs = make_inputs(schedule.spec, call)
        results += [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    try:
        world.run()
    except Race as race:
        return race
    return None


def check(name: str, label: str, num_ranks: int, seeds: range) -> None:
    if not has(name, PINS[label]):
        return  # no schedule has them, which tests/pipeline/test_workloads.py sees refused
    try:
        schedule = schedule_of(name, num_ranks, PINS[label])
    except NoLegalSchedule:
        assert label in ("fused push", "fused pull")
        return
    source = lowering.emit(schedule)
    for seed in seeds:
        assert run(schedule, source, seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
def test_emitted_operators(name: str) -> None:
    check(name, "SMs pull" if has(name, PINS["SMs pull"]) else "SMs push", 3, range(1))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "label", "num_ranks"), in_turns(2, 4))
def test_every_mover(name: str, label: str, num_ranks: int) -> None:
    check(name, label, num_ranks, range(4 // num_ranks))


@pytest.mark.parametrize("by", ["copy engine", "SMs"])
@pytest.mark.quick(1)
def test_a_hand_written_operator(by: str) -> None:
    for drop in (False, True):
        world = World(3, seed=2, num_sms=8, observers=[RaceDetector(3)])
        operators = [AgGemm(fabric, by) for fabric in world.fabrics]
        if drop:
            for operator in operators:
                operator.free = operator.signal  # begin waits for what is long raised, not for the readers
        for _ in range(3):
            for operator in operators:
                operator(torch.ones(80, 64, dtype=torch.bfloat16), torch.ones(64, 64, dtype=torch.bfloat16))
        if not drop:
            world.run()
            continue
        with pytest.raises(Race):
            world.run()


MUTANTS = {
    "no CTA barrier before a count": ("    program_barrier()\n    return tl.atomic_add", "    return tl.atomic_add"),
    "relaxed wait": ('(word, 0, sem="acquire"', '(word, 0, sem="relaxed"'),
    "relaxed notify": ('(signal, call, sem="release"', '(signal, call, sem="relaxed"'),
    "notify at GPU scope": ('call, sem="release", scope="sys"', 'call, sem="release", scope="gpu"'),
    "wait at GPU scope": ('(word, 0, sem="acquire", scope="sys"', '(word, 0, sem="acquire", scope="gpu"'),
    "count of peers at GPU scope": ('< WORDS, sem="relaxed", scope="sys"', '< WORDS, sem="relaxed", scope="gpu"'),
    "no wait for a chunk": ("wait_until(signals + X_FULL_ARRIVED + m_segment, call)", "pass"),
    "no wait for readers": (
        "    wait_until(signals + DONE, NUM_RANKS - 1)",
        "    pass",
    ),
}
CAUSES = {
    "no CTA barrier before a count": "cta_barriers",
    "relaxed wait": "semantics",
    "relaxed notify": "semantics",
    "notify at GPU scope": "scopes",
    "wait at GPU scope": "scopes",
    "count of peers at GPU scope": "scopes",
    "no wait for a chunk": "",
    "no wait for readers": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_of_an_emitted_operator(mutant: str) -> None:
    schedule = schedule_of("02_ag_gemm.py:ag_gemm", 3, OVERLAPPED)
    before, after = MUTANTS[mutant]
    source = lowering.emit(schedule)
    assert source.count(before) == 1
    source = source.replace(before, after)
    race = run(schedule, source, seed=0)
    assert race is not None
    scope = "at GPU scope" in mutant
    assert isinstance(race, NarrowScope) == scope
    assert race.first.what.startswith("signals[" if scope else "x_full[")
    assert race.same_call_hint == (mutant != "no wait for readers")
    lifted = [
        rule.name
        for rule in fields(Rules)
        if run(schedule, source, seed=0, rules=replace(Rules(), **{rule.name: False})) is None
    ]
    assert lifted == [CAUSES[mutant]] * bool(CAUSES[mutant])
