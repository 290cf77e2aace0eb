"""Specs in torch's own spellings give what torch gives on whole tensors: numbers, `-` and `/`, columns of scales, slices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import lowering
import topologies
from lowering.libraries import library_values
from tests.pipeline.torch_specs import WRITTEN, Written, random_written, sizes
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec, bind
from tilelink.ir.steps import Apply, Operand
from tilelink.mutation.sites import sites
from tilelink.planner.sample import sample_schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.bounds import near_values
from tilelink.runtime.load import load_source
from tilelink.runtime.meaning import cut, evaluate, whole_inputs
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated


def means_what_torch_gives(written: Written, spec: BoundSpec) -> None:
    """The meaning with which results of ranks are compared is that of torch, on the function itself. (Constants are of fp32.)"""
    whole = whole_inputs(spec, make_inputs(spec, 7))
    values = evaluate(spec, whole)
    wanted = written.on_whole_tensors(dict(spec.sizes), [whole[value.name] for value in spec.inputs])
    for name, one in zip(spec.outputs, wanted, strict=True):
        torch.testing.assert_close(values[name], one, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.quick(4)
def test_it_gives_what_torch_gives(name: str) -> None:
    gives_what_torch_gives(name, first_ranks(name), "triton")


def first_ranks(name: str) -> int:
    return (2, 4, 3)[list(WRITTEN).index(name) % 3]


OTHERS = [
    (name, num_ranks, target)
    for name in WRITTEN
    for num_ranks, target in [(2, "triton"), (4, "triton"), (2, "triton-distributed")]
    if (num_ranks, target) != (first_ranks(name), "triton")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_ranks", "target"), OTHERS)
def test_on_other_ranks_and_targets(name: str, num_ranks: int, target: str) -> None:
    gives_what_torch_gives(name, num_ranks, target)


def gives_what_torch_gives(name: str, num_ranks: int, target: str) -> None:
    operator = WRITTEN[name].overlap()
    schedule = operator.plan_for(topologies.load("laptop-switch", num_ranks), sizes(operator, num_ranks))
    means_what_torch_gives(WRITTEN[name], schedule.spec)
    assert Schedule.from_json(schedule.to_json()) == schedule
    source = lowering.emit(schedule, target)
    outcome = run_emulated(schedule, source, calls=2)
    assert outcome.equal, f"{schedule}\n{outcome}"
    checks_itself_by_that(schedule, source)


def checks_itself_by_that(schedule: Schedule, source: str) -> None:
    """The reference in the emitted file, by which it checks itself, has the same values and bounds."""
    inputs = make_inputs(schedule.spec, 3)
    near = near_values(schedule.spec, inputs, library_values(schedule))
    found = load_source(source, "one").reference(inputs)
    for number, name in enumerate(schedule.spec.outputs):
        placement, bound = schedule.spec.value(name).placement, near[name][0].error
        assert isinstance(bound, torch.Tensor)
        for rank in range(schedule.num_ranks):
            value, error = found[rank][number]
            torch.testing.assert_close(
                value, cut(near[name][0].value, placement, rank, schedule.num_ranks), rtol=1e-9, atol=0
            )
            torch.testing.assert_close(error, cut(bound, placement, rank, schedule.num_ranks), rtol=1e-3, atol=0)


def with_another_window(schedule: Schedule) -> Iterator[Schedule]:
    """A window that begins elsewhere along one dimension, or the whole buffer."""
    for site in sites(schedule, Operand):
        window = site.node.window
        if window:
            yield site.put(replace(site.node, window=()))
        for dim, (first, end) in enumerate(window):
            for start in {0, first + 1, end} - {first}:
                moved = (*window[:dim], (start, start + end - first), *window[dim + 1 :])
                yield site.put(replace(site.node, window=moved))


def with_another_constant(schedule: Schedule) -> Iterator[Schedule]:
    """Another number, or the number on the other side."""
    for site in sites(schedule, Apply):
        left, right = site.node.left, site.node.right
        if (left, right) != (None, None):
            yield site.put(replace(site.node, left=right, right=left))
            yield site.put(replace(site.node, left=left and 2 * left, right=right and 2 * right))


@pytest.mark.parametrize("name", ["a fused gate and up", "slices of columns of what is gathered", "numbers"])
def test_the_proof_sees_other_elements_and_numbers(name: str) -> None:
    operator = WRITTEN[name].overlap()
    schedule = operator.plan_for(topologies.load("laptop-switch", 2), sizes(operator, 2))
    found = [*with_another_window(schedule), *with_another_constant(schedule)]
    steps = instantiated(elaborated(schedule))
    found = [other for other in found if instantiated(elaborated(other)) != steps]  # a window may be all that there is
    assert found
    for other in found:
        assert BugClass.WRONG_PLACE in [finding.bug for finding in verify(other).findings], other


def check(seed: int) -> None:
    """Any schedule of any such spec."""
    rng = random.Random(seed)
    num_ranks, written = rng.choice((2, 3, 4)), random_written(rng)
    operator = written.overlap()
    spec = bind(operator.spec, dict.fromkeys(operator.spec.symbols(), 8 * num_ranks), num_ranks, "fp32")
    schedule = sample_schedule(spec, topologies.load("laptop-switch", num_ranks), rng)
    means_what_torch_gives(written, spec)
    result = run_emulated(schedule, lowering.emit(schedule), calls=2, seed=seed)
    assert result.equal, f"seed {seed}: relative error {result.max_error}\n{schedule}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.quick(2)
def test_some_schedules(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(5))
def test_many_schedules(block: int) -> None:
    for seed in range(100 + 20 * block, 120 + 20 * block):
        check(seed)
