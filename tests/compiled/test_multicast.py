"""Stores at all ranks at once as the compiler makes them, for sm_90: one instruction, in the order of the source."""

from __future__ import annotations

import re

import pytest

import lowering
import topologies
from tests.adversary.bugs import edited
from tests.pipeline.operators import AG_GEMM, GEMM_AR
from tilelink.compiled import check_compiled
from tilelink.compiled.assembly import assembly_guard, assembly_kind
from tilelink.compiled.check import SENT_TWICE
from tilelink.compiled.events import Kind
from tilelink.compiled.launches import Launches
from tilelink.declaration import Overlap
from tilelink.runtime.load import load_source

CASES = {
    "whole blocks": (AG_GEMM, {"M": 64, "K": 4096, "N": 14336}, "lamport", False),
    "ragged": (AG_GEMM, {"M": 44, "K": 34, "N": 52}, "ll", True),
    "summands": (GEMM_AR, {"M": 6, "K": 64, "N": 66}, "lamport", True),
    "sums": (GEMM_AR, {"M": 5, "K": 64, "N": 64}, "lamport-two-shot", True),
}


def source_of(name: str) -> str:
    operator, sizes, algorithm, _ = CASES[name]
    pins = {"algorithm": algorithm, "multicast": "yes", "compute": "triton"}
    machine = topologies.load("h200-nvswitch", 4)
    overlap: Overlap = operator
    return lowering.emit(overlap.plan_for(machine, dict(sizes), "bf16", pins))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_order_is_that_of_the_source(name: str) -> None:
    report = check_compiled(load_source(source_of(name), "multicast"), 4, "sm_90")
    assert report.events and not report.findings and not report.unknown, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_one_instruction(name: str) -> None:
    """A scalar of 64 bits: of a vector, PTX promises its elements alone."""
    launches = {one.name: one.prepare() for one in Launches(load_source(source_of(name), "multicast"), 4, 3, "sm_90")}
    masked = CASES[name][3]
    (kernel,) = (one for one in launches.values() if "multimem" in one.assembly)
    stores = re.findall(r"(@\w+ )?(multimem\.[\w.]+) \[%\w+\], (\{?)", kernel.assembly)
    assert {text for _, text, _ in stores} == {"multimem.st.relaxed.sys.global.b64"}
    assert all(bool(guard) is masked and not vector for guard, _, vector in stores)


@pytest.mark.slow
def test_packets_that_several_warps_hold_are_found() -> None:
    """As those of a store to a peer: each warp would send them."""
    source = edited(source_of("whole blocks"), ("num_warps=16,", "num_warps=32,"))
    report = check_compiled(load_source(source, "multicast"), 4, "sm_90")
    assert any(one.rule == SENT_TWICE and "multimem.st" in one.early for one in report.findings), report.lines()


def test_what_its_text_says() -> None:
    text = "{ .reg .pred there; setp.ne.s32 there, $3, 0; @there multimem.st.relaxed.sys.global.b64 [$1], $2; }"
    assert assembly_kind(text) == (Kind.WORD, True) and assembly_guard(text) == 2
    assert assembly_kind(text.replace("relaxed", "release")) == (Kind.RAISE, True)
    assert assembly_guard(text.replace("@there ", "")) is None
