"""Attention of one query a sequence, and merges of given states: random schedules on emulated ranks against the definition."""

from __future__ import annotations

import random

import pytest

import lowering
import topologies
from tests.pipeline.decode_specs import Drawn, drawn, meaning_by_definition
from tilelink import dims
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.planner.pins import checked_pins
from tilelink.planner.plan import plan_with
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut
from tilelink.runtime.run import run_emulated

_FAR = {"bf16": 0.03, "fp16": 0.004, "fp32": 2e-5}  # of means of values of size 1
_SMALL, _LARGE = ("laptop-switch", "laptop-mesh"), ("h100-nvswitch", "a100-nvswitch", "mi300x-full-mesh")
B, S, Q, G, D, N, L, P, K = dims("B S Q G D N L P K")


def scheduled(rng: random.Random, found: Drawn) -> Schedule:
    """A schedule of a spec with random pins: packets, splits, tiles."""
    spec, out = found.spec, found.spec.outputs[0]
    large = spec.num_ranks < 4 and rng.random() < 0.3  # whose many programs take their time
    machine = topologies.load(rng.choice(_LARGE if large else _SMALL), spec.num_ranks)
    pins: dict[str, object] = {f"{out}.protocol": rng.choice(["ll", "lamport"])} if rng.random() < 0.6 else {}
    if not found.how.merge and rng.random() < 0.7:
        width = spec.inputs[0].shape[2]
        pins[f"{out}.splits"] = str(rng.randint(1, 7))
        pins[f"{out}.fold"] = f"{rng.choice([16, 32])}x{rng.choice([16, 32, 64])}x{width}/{rng.choice([1, 4])}w2s"
    try:
        return plan_with(spec, machine, checked_pins(spec, machine, pins))
    except (NoLegalSchedule, IllegalPin):
        return plan_with(spec, machine, {})


@pytest.mark.quick(6)
@pytest.mark.parametrize("seed", range(120))
def test_a_random_schedule_computes_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    found = drawn(rng, rng.choice([2, 3, 4, 8]))
    schedule, spec = scheduled(rng, found), found.spec
    proof = verify(schedule)
    assert proof.proved, proof.findings
    source = lowering.emit(schedule, rng.choice(["triton", "triton-distributed"]))
    assert run_emulated(schedule, source, calls=2, seed=seed).equal
    run = EmulatedRun(schedule, source, seed)
    run.call()
    run.finish()
    ((inputs, outputs),) = run.calls
    exact = meaning_by_definition(found.how, inputs, spec.num_ranks)
    for rank, (out,) in enumerate(outputs):
        part = cut(exact, spec.value(spec.outputs[0]).placement, rank, spec.num_ranks)
        assert (out.double() - part).abs().max() <= _FAR[spec.inputs[0].dtype]
