"""Two warpgroups of a program that compute its tiles in turns, fed by a third one (ping-pong), in Gluon."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

import lowering
import topologies
from tests.pipeline.feature import PARTS_BY_COPIES
from tests.pipeline.features import TURNS_SIZES, TURNS_TILE, of
from tests.pipeline.features import planned as row
from tilelink.adversary.small import small_form
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from tilelink.emulator import World
from tilelink.emulator.errors import EmulationError, KernelError
from tilelink.emulator.gluon.errors import IllegalBarrier
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import ComputeRole, Kernel, TileShape
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import IfOwn, in_pieces
from tilelink.ir.walk import flat
from tilelink.planner.tiles import Held, shared_bytes
from tilelink.profiling.stamps import Moment, stamped
from tilelink.proof.verify import verify
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated
from topologies.topology import Topology

CASES = of("turns")
TILE, PLAIN, CE = TURNS_TILE, TURNS_SIZES, PARTS_BY_COPIES


def machine(ranks: int = 4) -> Topology:
    return topologies.load("laptop-switch", ranks)


def planned(name: str, ranks: int = 4, *, k_major: bool = False) -> Schedule:
    return row(f"turns: {name}, weights as [n, k]" if k_major else f"turns: {name}", ranks)


def in_turns(schedule: Schedule) -> ComputeRole:
    """The role whose warpgroups take turns."""
    roles = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    return next(role for role in roles if role.warpgroups > 1)


@pytest.mark.parametrize(
    "mover", ["CopyEngine()", "Fused()"]
)  # slices that leave in pieces leave from places of their own
@pytest.mark.slow
def test_the_full_size_needs_the_shared_memory_that_is_planned(mover: str) -> None:
    machine = topologies.load("h200-nvswitch", 4)
    pins = {"y_parts.mover": mover, "y_parts.transfer": "push"}
    sizes = {"M": 8192, "N": 4096, "K": 11008}
    schedule = declaration(Operator.GEMM_RS, False).plan_for(machine, sizes, "bf16", pins)
    role = in_turns(schedule)  # unpinned: own tiles add parts, which the product of another tile hides
    assert isinstance(role.body[-1], IfOwn)
    pieces = any(map(in_pieces, flat(role.body)))
    assert pieces is (mover == "Fused()")
    launches = record(load_source(lowering.emit(schedule), "full"), 4)
    compiled = compile_launch(next(one for one in launches if one.grid == (132,)), "sm_90")
    tile = TileShape(128, 128, 64, 4, schedule.kernels()[0].stages, warpgroups=2)
    needed = shared_bytes(tile, "bf16", machine.gpu, Held(pieces=pieces))
    assert tile.stages * (128 + 128) * 64 * 2 < compiled.metadata.shared <= needed


def outputs(source: str, schedule: Schedule) -> list[torch.Tensor]:
    world = World(schedule.num_ranks, num_sms=schedule.machine.num_sms, seed=3)
    build = operator_class(load_source(source, "calls"))
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 3)
    found = [operator(*given.values()) for operator, given in zip(operators, inputs, strict=True)]
    world.run()
    return [one.clone() for one in found]


@pytest.mark.slow
def test_the_bits_are_those_of_one_group() -> None:
    """The order in which products are added up is that of the loop that computes one tile after the other."""
    pins = {**CE, "algorithm": "direct", "out.sum": "epilogue"}
    plain = declaration(Operator.GEMM_RS, False).plan_for(machine(), PLAIN, "bf16", {**pins, "y.tile": TILE[:-2]})
    turned = planned("sums, copies")
    ours, theirs = (outputs(lowering.emit(schedule), schedule) for schedule in (turned, plain))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def refuted(source: str, schedule: Schedule) -> bool:
    """Whether some interleaving gives a wrong result, or stops."""
    for seed in range(8):
        try:
            if not run_emulated(schedule, source, seed=seed).equal:
                return True
        except EmulationError:
            return True
    return False


def test_what_a_group_raises_is_an_error_of_the_kernel() -> None:
    """With the line of the file, as that of a program without groups."""
    schedule = planned("sums, copies")
    source = lowering.emit(schedule).replace(
        "        step = number * STEPS + k\n", "        step = numbers * STEPS + k\n"
    )
    with pytest.raises(KernelError, match=r"group \d(.|\n)*NameError: name 'numbers' is not defined"):
        run_emulated(schedule, source)


ONE_LEFT = "        sums = warpgroup_mma_wait(1, deps=[sums])  # the step before has read its operands\n"
NONE_LEFT = "    sums = warpgroup_mma_wait(0, deps=[sums])\n"
BACK = "        mbarrier.arrive(used.index((step + PLACES - 1) % PLACES), pred=k > 0)\n"
LAST_BACK = "    mbarrier.arrive(used.index((number * STEPS + STEPS - 1) % PLACES))\n"
LINES = {  # what stands in the source, and what a mistake would be
    "its turn": ("    mbarrier.wait(turns.index(GROUP), (number // 2 + 1 + GROUP) % 2)\n", ""),
    "operands": ("        mbarrier.wait(loaded.index(place), step // PLACES % 2)\n", ""),
    "a place": ("        mbarrier.wait(used.index(place), (step // PLACES + 1) % 2)\n", ""),
    "products before places are given back": (ONE_LEFT + BACK, BACK + ONE_LEFT),
    "the last product before its place is given back": (NONE_LEFT + LAST_BACK, LAST_BACK + NONE_LEFT),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LINES)
def test_without_a_wait_some_run_is_wrong(what: str) -> None:
    schedule, (line, mistake) = planned("sums, copies", 2), LINES[what]
    source = lowering.emit(schedule)
    assert source.count(line) == 1
    assert not refuted(source, schedule)
    assert refuted(source.replace(line, mistake), schedule)


def test_a_barrier_at_which_too_many_arrive() -> None:
    schedule = planned("sums, copies", 2)
    source = lowering.emit(schedule)
    once = "mbarrier.arrive(turns.index(1 - GROUP))"
    assert source.count(once) == 1
    with pytest.raises(IllegalBarrier, match="more arrive"):
        run_emulated(schedule, source.replace(once, f"{once[:-1]}, count=2)"), seed=1)


@pytest.mark.slow
def test_helpers_of_the_same_name_in_one_file() -> None:
    """The first matmuls of an MLP are a loop of Triton here, whose barrier does not hinder its pipeline."""
    source = lowering.emit(planned("beside a loop of Triton"))
    for name in set(re.findall(r"def (\w+)_in_turns\(", source)):
        assert f"def {name}(" in source
    assert len(re.findall(r"^@gluon.jit", source, re.MULTILINE)) > 5


@pytest.mark.slow
def test_stamps_of_the_groups() -> None:
    """A timeline has each tile of a program, whichever group computes it."""
    schedule = planned("sums, copies", 2)
    role, marked = in_turns(schedule), stamped(lowering.emit(schedule))
    tiles = {site.function: site.turns for site in marked.sites if site.moment is Moment.TILE}
    assert tiles == dict.fromkeys(("y_loads", "y_turns"), -(-role.num_tiles // role.programs))
    assert run_emulated(schedule, marked.source).equal


@pytest.mark.parametrize(
    ("kernel", "role", "reason"),
    [
        ({"warps": 8}, {}, "has 4 warps"),
        ({"per_sm": 2}, {}, "an SM for itself"),
        ({}, {"prefetch": True}, "before or behind their tiles"),
    ],
)
def test_what_the_groups_count_on_is_proved(kernel: dict[str, Any], role: dict[str, Any], reason: str) -> None:
    schedule = planned("sums, copies")
    edited = tuple(
        replace(one, **kernel, compute=replace(one.compute, **role))
        if isinstance(one, Kernel) and one.compute is not None
        else one
        for one in schedule.launches
    )
    proof = verify(replace(schedule, launches=edited))
    assert any(reason in finding.fact for finding in proof.findings)


def test_operands_that_groups_cannot_multiply_are_refuted() -> None:
    schedule = planned("sums, copies")
    wider = tuple(replace(buffer, dtype="fp32") if buffer.name == "w" else buffer for buffer in schedule.buffers)
    assert any("w is fp32" in found.fact for found in verify(replace(schedule, buffers=wider)).findings)


def test_a_small_form_keeps_the_groups() -> None:
    declared, h200 = declaration(Operator.GEMM_RS, False), topologies.load("h200-nvswitch", 4)
    schedule = declared.plan_for(h200, {"M": 8192, "N": 4096, "K": 11008}, "bf16", {})
    small = small_form(declared.spec, schedule, h200)
    assert in_turns(small).num_tiles > 2 * in_turns(small).programs


@pytest.mark.parametrize(
    ("topology", "dtype", "pins", "reason"),
    [
        ("a100-nvswitch", "bf16", {"y.tile": TILE}, "are those of sm_90"),
        ("h200-nvswitch", "fp32", {"y.tile": TILE}, "not bf16 or fp16"),
        ("h200-nvswitch", "bf16", {"y.tile": "32x64x16/4w2s2g"}, "a multiple of 64 rows"),
        ("h200-nvswitch", "bf16", {"y.tile": "64x64x16/8w2s2g"}, "has 4 warps"),
        ("h200-nvswitch", "bf16", {"y.tile": "128x128x64/4w7s2g"}, "of shared memory"),
        ("h200-nvswitch", "bf16", {"y.tile": TILE, "count": "late"}, "counted at once"),
        ("h200-nvswitch", "bf16", {"y.tile": TILE, "mover": "CommSms(4)"}, "do nothing else"),
    ],
)
@pytest.mark.quick(3)
def test_where_they_cannot(topology: str, dtype: str, pins: dict[str, str], reason: str) -> None:
    declared = declaration(Operator.GEMM_RS, False)
    with pytest.raises(NoLegalSchedule, match=reason):
        declared.plan_for(topologies.load(topology, 4), PLAIN, dtype, {"algorithm": "direct", **pins})
