"""Steps in the language of Triton-distributed, and on AMD GPUs: the same results as today's files for NVIDIA on stock Triton."""

from __future__ import annotations

import ast
import re

import pytest
import torch

import topologies
from lowering.emit import emit
from lowering.steps.errors import NotOneByOne
from lowering.steps.file import lower
from lowering.steps.planned import lower_planned
from lowering.steps.renaming import with_own_names
from tests.pipeline.test_targets import CASES, DISTRIBUTED, QUICK, planned
from tests.pipeline.workloads import load
from tests.schedule.operators import matrix
from tests.schedule.test_lowering_planned import PACKETS, SMALL, results
from tests.schedule.variants import waiting_one_by_one
from tilelink.dialect_api import Vendor, check_source
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import Race
from tilelink.errors import UnknownTarget
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.happens_before.check import check
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source
from tilelink.schedule.index import Index, call, rank
from tilelink.schedule.memory import Memory, Region, Signal
from tilelink.schedule.roles import Launch, MeshAxis, Phase, PingPong, Role, Schedule, Sms
from tilelink.schedule.steps import Compute, If, Load, Notify, Store, Wait


def alike(one: Planned, seeds: tuple[int, ...] = (7,), text: str = "") -> str:
    text = text or lower_planned(one, DISTRIBUTED)
    found, today = load_source(text, f"steps_of_{one.name}"), load_source(emit(one), one.name)
    for seed in seeds:
        pairs = zip(results(found, one.num_ranks, seed, 2), results(today, one.num_ranks, seed, 2), strict=True)
        assert all(torch.equal(here, there) for here, there in pairs)
    return text


def gathered(pins: dict[str, object]) -> Planned:
    return load("02_ag_gemm.py:ag_gemm").plan_for(topologies.load("laptop-switch", 4), SMALL, "bf16", pins)


COPIES: dict[str, object] = {"algorithm": "direct", "compute": "triton", "mover": "CopyEngine()", "transfer": "push"}


def test_tokens_follow_from_what_waits_cover() -> None:
    text = alike(gathered(COPIES))
    assert not check_source(text).findings
    assert "x_full_awaited = dl.consume_token(" in text and "wait_equal(" in text
    for line in text.splitlines():
        assert "on_peer(" not in line and "@triton.jit" not in line and "torch.int32" not in line


def test_a_token_that_no_load_takes_is_a_race() -> None:
    text = lower_planned(gathered(COPIES), DISTRIBUTED)
    taken = re.compile(r"x_full\w*_awaited = dl\.consume_token\(\s*\w+,\s*(wait_until\([^()]*\)),?\s*\)")
    lost = taken.sub(r"\1", text)
    assert lost != text
    with pytest.raises(Race):
        for seed in range(4):
            results(load_source(lost, "lost"), 4, seed, 1)


def test_a_word_that_may_pass_a_value_is_compared_by_order() -> None:
    """Streams of several peers wait for one word, which those that have been served raise further."""
    planned = gathered({**COPIES, "tile": "64x64x64/4w2s", "streams": "peer"})
    together = alike(planned)  # they share a wait
    assert "wait_equal(self.signals.local[DONE" in together and "wait_at_least(signals + DONE" not in together
    text = alike(planned, text=lower(waiting_one_by_one(with_own_names(elaborated(planned))), target=DISTRIBUTED))
    assert "wait_equal(" not in text and "wait_at_least(signals + DONE" in text


def test_tokens_of_one_phase_reach_the_next() -> None:
    alike(gathered({"algorithm": "lamport-tiles"}))


@pytest.mark.slow
@pytest.mark.parametrize("case", PACKETS.values(), ids=PACKETS)
def test_packets(case: tuple[str, int, dict[str, int], str]) -> None:
    workload, ranks, sizes, algorithm = case
    one = load(workload).plan_for(topologies.load("laptop-switch", ranks), sizes, "bf16", {"algorithm": algorithm})
    assert not check_source(alike(one, seeds=(0, 7))).findings


@pytest.mark.slow
@pytest.mark.parametrize("pins", [{"sum": "epilogue"}, {"compute": "library"}], ids=["one kernel", "library"])
def test_outputs_in_pools(pins: dict[str, object]) -> None:
    one = load("04_gemm_ar.py:gemm_ar").plan_for(
        topologies.load("laptop-switch", 2), SMALL, "bf16", {"algorithm": "pooled", **pins}
    )
    assert not check_source(alike(one)).findings


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_mover(name: str, number: int) -> None:
    text = alike(planned(name, number))
    assert not check_source(text).findings


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), sorted(QUICK))
def test_it_compiles_for_hopper_through_the_shim(name: str, number: int) -> None:
    text = lower_planned(planned(name, number, "h200-nvswitch", 4), DISTRIBUTED)
    for launch in record(load_source(text, "steps"), 4):
        assert "cubin" in compile_launch(launch, "sm_90").asm


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), sorted(QUICK))
def test_amd(name: str, number: int) -> None:
    """On stock Triton it compiles; in the language of Triton-distributed, which is not here for AMD, its API allows it."""
    one = planned(name, number, "mi300x-full-mesh", 4)
    text = lower_planned(one)
    assert "AmdFabric" in text and "inline_asm" not in text
    for launch in record(load_source(text, "steps"), 4):
        assert "hsaco" in compile_launch(launch, "gfx942").asm
    distributed = lower_planned(one, DISTRIBUTED)
    report = check_source(distributed, vendor=Vendor.ROCSHMEM)
    assert not report.findings
    assert "dl.notify" not in distributed


def test_an_unknown_target() -> None:
    with pytest.raises(UnknownTarget):
        lower_planned(gathered(COPIES), "triton-distribted")


def in_turns() -> Schedule:
    """Two tiles of one program in ping-pong; the first one waits, behind its product, for a word that the second one raises."""
    tile, side = Index("tile"), 64
    names = ("x", Memory.INPUT), ("w", Memory.INPUT), ("out", Memory.OUTPUT)
    buffers = tuple(matrix(name, memory, 2 * side, side) for name, memory in names)
    rows = (tile * side, 0), (side, side)
    last = If(tile, 0, (Wait("w_done", (0,), call),), (Notify("w_done", (0,), rank, call),))
    body = (
        Load("left", Region("x", *rows)),
        Load("right", Region("w", (0, 0), (side, side))),
        Compute(("acc",), "zeros", shape=(side, side)),
        Compute(("acc",), "dot", ("left", "right", "acc")),
        last,
        Store("acc", Region("out", *rows)),
    )
    launch = Launch("main", (Role("tiles", Sms(1), (Phase(2, body, pipelining=PingPong(4, 2)),)),))
    return Schedule("in_turns", (MeshAxis("ranks", 1),), buffers, (Signal("w_done", (1,)),), (launch,))


def test_what_is_right_in_ping_pong_only_is_refused() -> None:
    one = in_turns()
    assert check(one) is None
    for arch, target in (("gfx942", "triton"), ("sm_90", DISTRIBUTED)):
        with pytest.raises(NotOneByOne, match="wait for each other"):
            lower(one, arch, target=target)


def test_names_of_files() -> None:
    """Kernels have one name each in both languages."""
    one = gathered(COPIES)
    texts = [lower_planned(one, target) for target in ("triton", DISTRIBUTED)]
    kernels = [text[text.index("# ---- kernels of") : text.index("# ---- the operator")] for text in texts]
    names = [[node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] for text in kernels]
    assert names[0] == names[1]
