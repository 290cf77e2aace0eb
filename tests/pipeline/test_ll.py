"""Collectives whose words carry data and the number of the call: emulated for both targets and all dtypes, proved, refuted
where they must be, planned where few bytes travel."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from triton import knobs

import lowering
import topologies
from tests.adversary.bugs import edited, verdict
from tests.pipeline.workloads import STOCK_FIRST, load
from tilelink.emulator import World
from tilelink.errors import NoLegalSchedule
from tilelink.ir.calls import LibraryCollective, LLCollective
from tilelink.ir.expand import LL_MOST_BYTES, collectives
from tilelink.ir.nodes import Algorithm
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.overlap import Overlap
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

AG_GEMM, GEMM_RS = load("02_ag_gemm.py:ag_gemm"), load("03_gemm_rs.py:gemm_rs")
GEMM_AR, MLP = load("04_gemm_ar.py:gemm_ar"), load("05_mlp.py:mlp")
CASES = {
    "gather": (AG_GEMM, {"M": 32, "K": 64, "N": 64}),
    "gather, ragged": (AG_GEMM, {"M": 44, "K": 34, "N": 52}),
    "several programs an SM": (AG_GEMM, {"M": 256, "K": 256, "N": 16}),
    "several blocks a program": (AG_GEMM, {"M": 640, "K": 256, "N": 16}),
    "scatter": (GEMM_RS, {"M": 32, "K": 64, "N": 66}),
    "reduce": (GEMM_AR, {"M": 5, "K": 64, "N": 66}),
}


def planned(operator: Overlap, sizes: dict[str, int], dtype: str = "bf16", topology: str = "laptop-switch") -> Schedule:
    return operator.plan_for(topologies.load(topology, 4), sizes, dtype, {"algorithm": "ll"})


def collective(schedule: Schedule) -> LLCollective:
    return next(launch for launch in schedule.launches if isinstance(launch, LLCollective))


LONG = ("several blocks a program",)


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in CASES])
@pytest.mark.quick(3)
def test_it_gives_what_the_collective_gives(name: str, target: str) -> None:
    schedule = planned(*CASES[name])
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=5)  # each set of words more than once
    assert outcome.equal, f"{schedule}\n{outcome}"


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("operator", [AG_GEMM, GEMM_RS, GEMM_AR], ids=lambda operator: operator.name)
@pytest.mark.quick(2)
def test_words_of_other_types(operator: Overlap, dtype: str) -> None:
    schedule = planned(operator, {"M": 16, "K": 32, "N": 64}, dtype)
    assert (
        collective(schedule).words * 4
        == {"fp16": 2, "fp32": 4}[dtype]
        * {
            "ag_gemm": 4 * 32,
            "gemm_rs": 4 * 64,
            "gemm_ar": 16 * 64,
        }[operator.name]
    )
    assert run_emulated(schedule, lowering.emit(schedule), calls=3).equal


@pytest.mark.slow
def test_a_whole_mlp_of_few_rows() -> None:
    schedule = planned(MLP, {"M": 44, "H": 34, "F": 52})
    assert sum(isinstance(launch, LLCollective) for launch in schedule.launches) == 2
    assert run_emulated(schedule, lowering.emit(schedule), calls=3).equal


def test_all_ranks_add_in_one_order() -> None:
    """All have the same bits, though sums of floats depend on the order."""
    schedule = planned(GEMM_AR, {"M": 16, "K": 256, "N": 64})
    build = operator_class(load_source(lowering.emit(schedule), "ll"))
    world = World(4, num_sms=schedule.machine.num_sms, seed=3)
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 5)
    first, *others = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    assert first.any() and all(torch.equal(first, other) for other in others)


def changed(schedule: Schedule, **fields: Any) -> Schedule:
    """With other fields of its collective."""
    there = collective(schedule)
    launches = (replace(x, **fields) if x is there else x for x in schedule.launches)
    return replace(schedule, launches=tuple(launches))


@pytest.mark.parametrize(
    ("fields", "bug"),
    [
        ({"programs": 9}, BugClass.RESIDENCY),
        ({"programs": 0}, BugClass.WRONG_PLACE),
        ({"words": 64}, BugClass.WRONG_PLACE),
        ({"block": 96}, BugClass.WRONG_PLACE),
        ({"function": "reduce_scatter"}, BugClass.WRONG_PLACE),
        ({"operand": "w"}, BugClass.WRONG_PLACE),
    ],
    ids=str,
)
def test_what_the_proof_refutes(fields: dict[str, object], bug: BugClass) -> None:
    schedule = planned(*CASES["gather"])
    assert verify(schedule).proved
    assert bug in [finding.bug for finding in verify(changed(schedule, **fields)).findings]


def test_programs_share_sms_where_there_are_more_blocks() -> None:
    """So that all blocks travel at once; a program moves several where even those are too few."""
    few, shared, most = (collective(planned(*CASES[name])) for name in ("gather", *list(CASES)[2:4]))
    assert (few.programs, few.per_sm, few.sms) == (1, 1, 1)
    assert (shared.programs, shared.per_sm, shared.sms) == (16, 2, 8)
    assert (most.programs, most.per_sm, most.sms) == (32, 4, 8) and most.words > 32 * most.block
    alone = verify(changed(planned(*CASES["several programs an SM"]), per_sm=1))
    assert [finding.bug for finding in alone.findings] == [BugClass.RESIDENCY]


@pytest.mark.slow
@pytest.mark.parametrize("operator", [AG_GEMM, GEMM_RS, GEMM_AR], ids=lambda operator: operator.name)
def test_as_many_programs_fit_an_sm(operator: Overlap, tmp_path: Path) -> None:
    """By the registers that ptxas gives them, as the fabric asks the driver where there is one."""
    machine = topologies.load("h200-nvswitch", 4)
    schedule = operator.plan_for(machine, {"M": 256, "K": 4096, "N": 4096}, "bf16", {"algorithm": "ll"})
    assert collective(schedule).per_sm > 1
    launch = next(one for one in record(load_source(lowering.emit(schedule), "ll"), 4) if "ll_" in str(one.kernel))
    kernel = compile_launch(launch, "sm_90")
    (tmp_path / "ll.ptx").write_text(kernel.asm["ptx"])
    ptxas = knobs.nvidia.ptxas.path
    told = [ptxas, "-v", "-arch=sm_90a", str(tmp_path / "ll.ptx"), "-o", str(tmp_path / "ll.cubin")]
    registers = re.search(
        r"Used (\d+) registers", subprocess.run(told, capture_output=True, text=True, check=True).stderr
    )
    assert registers is not None
    threads = 32 * kernel.metadata.num_warps
    assert 4 * threads * int(registers[1]) <= 65536 and 4 * threads <= 2048


def test_the_library_does_not_carry_out_what_is_ll() -> None:
    schedule = planned(*CASES["gather"])
    there = collective(schedule)
    library = LibraryCollective(there.function, there.out, there.operand)
    launches = tuple(library if x is there else x for x in schedule.launches)
    proof = verify(replace(schedule, launches=launches))
    assert any("LibraryCollective carries out what" in finding.fact for finding in proof.findings)


PLANTED = {
    "one set of words": ("turn = (call & 1) * NUM_RANKS * size", "turn = 0 * NUM_RANKS * size"),
    "nobody waits": ("!= call).to(tl.int32)", "!= call).to(tl.int32) * 0"),
    "the number of the call stays": ("tl.store(calls + program, call)", "tl.store(calls + program, call - 1)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_mistakes_in_the_kernel_are_found(name: str) -> None:
    """Where ranks are late, and one begins the next call before another one has read the words of this one."""
    source = lowering.emit(planned(AG_GEMM, {"M": 32, "K": 64, "N": 64}))
    assert not verdict(source).refuted
    found = verdict(edited(source, PLANTED[name]))
    assert found.refuted, name


def test_where_it_is_legal() -> None:
    """On links that carry atomics, for few whole words."""
    assert Algorithm.LL in dict(collectives(bind(AG_GEMM.spec, {"M": 32, "K": 64, "N": 64}, 4, "bf16")))["x_full"]
    rows = 4 * (LL_MOST_BYTES // 2 // 64)
    for m, k in ((rows, 64), (rows + 4, 64), (4, 33)):
        legal = dict(collectives(bind(AG_GEMM.spec, {"M": m, "K": k, "N": 64}, 4, "bf16")))["x_full"]
        assert (Algorithm.LL in legal) is (m == rows)
    with pytest.raises(NoLegalSchedule, match="algorithm"):
        AG_GEMM.plan_for(topologies.load("l20-pcie", 4), {"M": 32, "K": 64, "N": 64}, "bf16", {"algorithm": "ll"})


@pytest.mark.parametrize(("rows", "algorithm"), [(16, "ll"), (64, "ll"), (2048, "direct")])
def test_it_is_planned_where_it_was_fastest(rows: int, algorithm: str) -> None:
    """As measured on 2 x H200 (`sweep_2xh200.json`)."""
    machine = topologies.load("h200-nvswitch", 2)
    schedule = AG_GEMM.plan_for(machine, {"M": rows, "K": 4096, "N": 14336}, "bf16", {})
    assert dict(schedule.choices)["x_full.algorithm"] == algorithm


def test_calls_are_replayed() -> None:
    """NCCL must not be captured by one rank alone; a kernel may be."""
    sizes = {"M": 32, "K": 64, "N": 64}
    assert "self.fabric.run(self.enqueue, main" in lowering.emit(planned(AG_GEMM, sizes))
