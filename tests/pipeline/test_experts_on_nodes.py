"""Mixtures of experts over several nodes: tokens go along rails once to each node, and what a node has added comes back so."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

import lowering
import topologies
from lowering.libraries import library_values
from tests.pipeline import expert_specs
from tests.pipeline.workloads import load
from tilelink.elaborate.rails import puts_words
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.planner.rails import hops
from tilelink.proof.verify import verify
from tilelink.runtime.compare import outputs_with_bounds
from tilelink.runtime.load import load_source
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated
from topologies.topology import Topology

LAYER, GATHERED, SCATTERED = (
    load(one) for one in ("09_ep_layer.py:ep_layer", "07_ag_moe.py:ag_moe", "08_moe_rs.py:moe_rs")
)
MESHES = [(2, 2), (3, 2), (2, 4), (4, 2)]
TARGETS = ("triton", "triton-nvshmem", "triton-distributed")
RAILS = {"rows_value.mover": "Rails(1)", "out_summand_parts.mover": "Rails(2)"}
SENT = {"rows_value.mover": "LibraryRails(2)", "out_summand_parts.mover": "LibraryRails(2)"}


def machine(nodes: int, local: int) -> Topology:
    return topologies.load("laptop-switch", nodes * local, nodes)


def drawn(rng: random.Random, ranks: int) -> dict[str, int]:
    sizes = {"T": ranks * rng.randint(1, 9), "H": ranks * 8 * rng.randint(1, 2), "F": ranks * 8}
    return sizes | {"E": rng.choice((ranks, 2 * ranks, ranks + 1)), "K": rng.randint(1, 4)}


def right(schedule: Schedule, seed: int) -> bool:
    proof = verify(schedule)
    assert proof.proved, proof.lines()
    targets = TARGETS if puts_words(schedule) else TARGETS[:1]  # of what the library carries nothing is put
    return all(run_emulated(schedule, lowering.emit(schedule, one), calls=3, seed=seed).equal for one in targets)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.quick(4)
def test_a_layer_of_experts(mesh: tuple[int, int], seed: int) -> None:
    rng = random.Random(repr((mesh, seed)))
    pins = RAILS if seed else {"out_summand_parts.mover": "Rails(1)", "rows_value.mover": "Library()"}
    schedule = LAYER.plan_for(machine(*mesh), drawn(rng, mesh[0] * mesh[1]), "bf16", pins)
    assert any(one.mover.crosses_nodes for one in schedule.exchanges)
    assert right(schedule, seed)


@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
@pytest.mark.quick(1)
def test_a_library_sends_tokens_and_sums(mesh: tuple[int, int]) -> None:
    rng, small = random.Random(f"sent {mesh}"), machine(*mesh)
    roomy = replace(small, gpu=replace(small.gpu, num_sms=40))
    schedule = LAYER.plan_for(roomy, drawn(rng, mesh[0] * mesh[1]), "bf16", SENT)
    assert sum(one.mover.library_sms > 0 for one in schedule.exchanges) >= 2
    assert right(schedule, 0)


@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
@pytest.mark.quick(1)
def test_halves_of_a_layer(mesh: tuple[int, int]) -> None:
    rng, ranks = random.Random(repr(mesh)), mesh[0] * mesh[1]
    for spec in (GATHERED, SCATTERED):
        names = {str(dim) for value in spec.spec.inputs for dim in value.shape}
        sizes = {name: size for name, size in drawn(rng, ranks).items() if name in names}
        assert right(spec.plan_for(machine(*mesh), sizes, "bf16", {}), ranks)


@pytest.mark.parametrize("mesh", [*MESHES, (2, 1), (3, 1)], ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.quick(3)
def test_rows_go_to_the_nodes_that_need_them(mesh: tuple[int, int], seed: int) -> None:
    rng, ranks = random.Random(f"needed {mesh} {seed}"), mesh[0] * mesh[1]
    sizes = drawn(rng, ranks) | {"T": ranks * rng.choice((1, 6, 16, 33, 48)), "H": ranks * 8}
    pins = {"rows_value.mover": f"NeededRails({rng.randint(1, 3)})", "out_summand_parts.mover": "Rails(1)"}
    assert right(LAYER.plan_for(machine(*mesh), sizes, "bf16", pins), seed)


def test_strips_of_an_emitted_file_stay_whole() -> None:
    """Where they are, steps have no branch for a last one with fewer blocks: the file refuses numbers that leave some out."""
    pins = {"rows_value.mover": "NeededRails(2)", "out_summand_parts.mover": "Rails(1)"}
    sizes = {"T": 4 * 64, "H": 32, "F": 32, "E": 4, "K": 2}
    text = lowering.emit(LAYER.plan_for(machine(2, 2), sizes, "bf16", pins), "triton-nvshmem")
    (edited,) = (line for line in text.splitlines() if line.startswith("ROWS_VALUE_STRIPS = tl.constexpr(2)"))
    with pytest.raises(AssertionError, match="whole pieces"):
        load_source(text.replace(edited, "ROWS_VALUE_STRIPS = tl.constexpr(3)"), "edited")


def test_predictions_know_which_rows_nodes_need() -> None:
    """With few choices of many nodes, fewer rows go anywhere."""
    pins = {"rows_value.mover": "NeededRails(1)", "out_summand_parts.mover": "Rails(1)"}
    sizes = {"T": 8 * 1024, "H": 1024, "F": 64, "E": 8}
    plans = [LAYER.plan_for(machine(8, 1), sizes | {"K": choices}, "bf16", pins) for choices in (1, 8)]
    few, many = (hops(machine(8, 1), plan.exchange("rows_value"), 2) for plan in plans)
    assert few.put < 0.5 * many.put


@pytest.mark.parametrize("pins", [RAILS, {"out.mover": "Library()"}], ids=["rails", "library"])
def test_bounds_know_that_partial_sums_are_rounded(pins: dict[str, str]) -> None:
    """A right sum of node sums in fp16 had been 3 % outside of its bound. Files have the same bounds."""
    spec = expert_specs.SPECS["there_and_back"]
    pins = {name: pin for name, pin in pins.items() if name.startswith("out")}
    schedule = spec.plan_for(machine(3, 2), {"T": 12, "H": 144, "K": 3, "E": 6}, "fp16", pins)
    assert "out" in library_values(schedule)
    inputs = make_inputs(schedule.spec, 1)
    ours = outputs_with_bounds(schedule.spec, inputs, library_values(schedule))
    alone = outputs_with_bounds(schedule.spec, inputs, ())
    carried = load_source(lowering.emit(schedule, "triton-nvshmem"), "carried").reference(inputs)
    for theirs, (one,), (other,) in zip(carried, ours, alone, strict=True):
        assert (torch.as_tensor(one.error) >= torch.as_tensor(other.error)).all()
        assert (torch.as_tensor(one.error) > torch.as_tensor(other.error)).any()
        torch.testing.assert_close(theirs[0].error, one.error, rtol=1e-4, atol=1e-12)
    assert all(run_emulated(schedule, lowering.emit(schedule), calls=4, seed=seed).equal for seed in range(3))


def test_packets_along_rails_take_two_sms() -> None:
    """On 8 SMs a library and streams had left one, and what was planned was refuted."""
    spec, small = expert_specs.SPECS["there_and_back"], machine(2, 3)
    assert small.gpu.num_sms == 8
    pins = {"ids_full.protocol": "ll", "dispatch_out.mover": "LibraryRails(4)", "weights_full.mover": "StreamRails(1)"}
    sizes = {"T": 30, "H": 96, "K": 2, "E": 2}
    with pytest.raises((IllegalPin, NoLegalSchedule), match="no schedule of"):
        spec.plan_for(small, sizes, "bf16", pins)
    larger = replace(small, gpu=replace(small.gpu, num_sms=24))
    assert verify(spec.plan_for(larger, sizes, "bf16", pins)).proved
