"""Schedules with experts as steps: what they compute on arrays is what the spec means, with tables that calls make."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import topologies
from tests.pipeline.expert_draws import TOKENS_COME
from tests.pipeline.expert_specs import SPECS
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner import fields
from tilelink.planner.choices import Pins
from tilelink.planner.sample import sample_schedule
from tilelink.runtime.meaning import cut, evaluate, whole_inputs
from tilelink.runtime.reference import make_inputs
from tilelink.schedule.interpreter import Interpreter
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import LIST_ROWS, SORT_ROWS, Call, Step
from tilelink.schedule.walk import mapped, with_bodies

SIZES = {"T": 24, "H": 16, "F": 24, "E": 5, "K": 3}


def wrong_calls(schedule: Schedule, steps: Steps, seed: int, calls: int = 3) -> list[int]:
    """Calls in which an output of some rank differs; ids of each call are of another kind."""
    spec, run, found = schedule.spec, Interpreter(steps, seed=seed), []
    for call in range(calls):
        ranks = make_inputs(spec, 1000 * seed + call)
        values = evaluate(spec, whole_inputs(spec, ranks))
        results = run.call([{name: part.double().numpy() for name, part in parts.items()} for parts in ranks])
        for rank, outputs in enumerate(results):
            for name in spec.outputs:
                right = cut(values[name], spec.value(name).placement, rank, spec.num_ranks)
                near = torch.from_numpy(np.asarray(outputs[name])).reshape(right.shape)
                if not torch.allclose(near, right, rtol=1e-9, atol=1e-9):
                    found.append(call)
    return sorted(set(found))


def sized(name: str, ranks: int, rng: random.Random, pins: Pins | None = None, tokens: int = 6) -> Schedule:
    known = {size: number for size, number in SIZES.items() if size in SPECS[name].spec.symbols()}
    spec = bind(SPECS[name].spec, known | {"T": ranks * tokens, "H": ranks * 8}, ranks, "fp32")
    return sample_schedule(spec, topologies.load("laptop-switch", ranks), rng, pins)


@pytest.mark.quick(7)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", SPECS)
def test_steps_mean_what_the_spec_does(name: str, seed: int) -> None:
    rng = random.Random(seed)
    schedule = sized(name, (2, 3)[seed % 2], rng)
    assert wrong_calls(schedule, elaborated(schedule), seed) == []


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", TOKENS_COME)
def test_steps_with_tiles_of_own_tokens_first(name: str, seed: int) -> None:
    rng = random.Random(seed)
    schedule = sized(name, (2, 3)[seed % 2], rng, {("", fields.OWN): True}, tokens=20)
    assert wrong_calls(schedule, elaborated(schedule), seed, calls=5) == []


def test_a_call_that_is_told_other_tokens_is_seen() -> None:
    pins = {"mover": "CopyEngine()", "transfer": "push", "own": "first"}
    known = {"T": 64, "H": 16, "F": 32, "E": 2, "K": 2}
    schedule = SPECS["ag_moe"].plan_for(topologies.load("laptop-switch", 2), known, "fp32", pins)
    steps = elaborated(schedule)
    assert wrong_calls(schedule, steps, 0) == []
    assert wrong_calls(schedule, with_bodies(steps, lambda body: mapped(body, _one_less(SORT_ROWS, 5))), 0)


def _one_less(function: str, number: int) -> Callable[[Step], tuple[Step, ...]]:
    """A number that a call is told is less by one."""

    def change(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Call) or step.function != function:
            return (step,)
        told = (one - (place == number) for place, one in enumerate(step.numbers))
        return (replace(step, numbers=tuple(told)),)

    return change


@pytest.mark.parametrize(("function", "number"), [(SORT_ROWS, 0), (SORT_ROWS, 1), (LIST_ROWS, 0)])
def test_a_call_that_is_told_other_experts_is_seen(function: str, number: int) -> None:
    """An interpreter that cannot fail would be no check."""
    pins = {"dispatch_out.mover": "NeededRows()", "out.adder": "receiver", "out_rows.transfer": "push"}
    known = {"T": 24, "H": 16, "E": 4, "K": 3}
    schedule = SPECS["there_and_back"].plan_for(topologies.load("laptop-switch", 2), known, "fp32", pins)
    steps = elaborated(schedule)
    assert wrong_calls(schedule, steps, 0) == []
    changed = with_bodies(steps, lambda body: mapped(body, _one_less(function, number)))
    assert changed != steps
    assert wrong_calls(schedule, changed, 0)
