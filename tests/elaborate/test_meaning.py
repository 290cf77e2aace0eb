"""What planned schedules compute as steps is what the spec means, on whole tensors: at random places of the space."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
import torch

import topologies
from tests.pipeline.workloads import SIZES, load, sizes
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.placement import Replicate
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.sample import sample_schedule
from tilelink.proof.happens_before.check import checked
from tilelink.runtime.meaning import cut, evaluate, whole_inputs
from tilelink.schedule.interpreter import Interpreter

WORKLOADS = sorted(name for name in SIZES if "user_op" not in name)  # whose bodies are functions of pointers
TOPOLOGIES = ("laptop-switch", "laptop-mesh", "h200-nvswitch", "l20-pcie", "h800-2-nodes", "mi300x-full-mesh")
Parts = list[dict[str, torch.Tensor]]


def inputs_of(spec: BoundSpec, generator: torch.Generator) -> Parts:
    ranks: Parts = [{} for _ in range(spec.num_ranks)]
    for value in spec.inputs:
        each = [torch.randn(value.local, generator=generator, dtype=torch.float64) for _ in ranks]
        for rank, part in enumerate(each):
            ranks[rank][value.name] = each[0] if isinstance(value.placement, Replicate) else part
    return ranks


def wrong_outputs(schedule: Schedule, calls: int, seed: int) -> list[str]:
    spec, generator = schedule.spec, torch.Generator().manual_seed(seed)
    run, found = Interpreter(elaborated(schedule), seed=seed), list[str]()
    for call in range(calls):
        ranks = inputs_of(spec, generator)
        values = evaluate(spec, whole_inputs(spec, ranks))
        results = run.call([{name: part.numpy() for name, part in parts.items()} for parts in ranks])
        for rank, outputs in enumerate(results):
            found += [f"{name} of rank {rank} in call {call}" for name in differing(spec, values, outputs, rank)]
    return found


def differing(
    spec: BoundSpec, values: Mapping[str, torch.Tensor], outputs: Mapping[str, object], rank: int
) -> list[str]:
    found = []
    for name in spec.outputs:
        right = cut(values[name], spec.value(name).placement, rank, spec.num_ranks).numpy()
        if not np.allclose(np.asarray(outputs[name]).reshape(right.shape), right, rtol=1e-9, atol=1e-9):
            found.append(name)
    return found


def sampled(workload: str, ranks: int, topology: str, seed: int) -> Schedule:
    spec = bind(load(workload).spec, sizes(workload, ranks), ranks, "bf16")
    return sample_schedule(spec, topologies.load(topology, ranks), random.Random(seed))


CASES = [(name, ranks, topology) for name in WORKLOADS for ranks in (2, 3, 4) for topology in TOPOLOGIES]


@pytest.mark.parametrize(("workload", "ranks", "topology"), random.Random(5).sample(CASES, len(CASES)))
@pytest.mark.quick(4)
def test_sampled_schedules(workload: str, ranks: int, topology: str) -> None:
    for seed in range(2):
        try:
            schedule = sampled(workload, ranks, topology, seed)
        except (LookupError, IndexError):
            continue  # a spec that has no schedule there
        assert wrong_outputs(schedule, 2, seed) == []
        assert checked(elaborated(schedule)).refutation is None


def test_a_wrong_sum_is_seen() -> None:
    """An interpreter that cannot fail would be no check."""
    workload, pins = load("03_gemm_rs.py:gemm_rs"), {"algorithm": "direct", "compute": "triton"}
    sized = sizes("03_gemm_rs.py:gemm_rs", 2)
    schedule = workload.plan_for(topologies.load("laptop-switch", 2), sized, "bf16", pins)
    spec = schedule.spec
    run = Interpreter(elaborated(schedule), {"add": lambda x, y: x, "dot": lambda a, b, c: c})
    ranks = inputs_of(spec, torch.Generator().manual_seed(0))
    (outputs, _) = run.call([{name: part.numpy() for name, part in parts.items()} for parts in ranks])
    assert differing(spec, evaluate(spec, whole_inputs(spec, ranks)), outputs, 0)
