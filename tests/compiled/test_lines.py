"""Lines of 128 bytes as the compiler makes them, for sm_90: a warp stores and loads each by one instruction."""

from __future__ import annotations

import re

import pytest

import lowering
import topologies
from tests.adversary.bugs import edited
from tests.pipeline.operators import AG_GEMM, GEMM_AR
from tests.pipeline.test_packet_rails import GATHER, NVSHMEM
from tilelink.compiled import check_compiled
from tilelink.compiled.assembly import assembly_guard, assembly_kind
from tilelink.compiled.events import Kind
from tilelink.compiled.launches import Launches
from tilelink.compiled.lines import PIECE, torn
from tilelink.runtime.load import load_source

CASES = {
    "a gather": (AG_GEMM, {"M": 64, "K": 4096, "N": 14336}, "bf16", {}),
    "one row": (AG_GEMM, {"M": 4, "K": 8192, "N": 14336}, "fp16", {}),
    "less than a line": (AG_GEMM, {"M": 44, "K": 34, "N": 52}, "bf16", {}),
    "summands": (GEMM_AR, {"M": 6, "K": 64, "N": 66}, "bf16", {"shots": "1"}),
    "sums": (GEMM_AR, {"M": 64, "K": 4096, "N": 4096}, "bf16", {"shots": "2"}),
    "of fp32": (GEMM_AR, {"M": 12, "K": 64, "N": 1000}, "fp32", {"shots": "2"}),
    "over nodes": (GATHER, {"M": 64, "N": 4096}, "bf16", {}),
}


def source_of(name: str) -> str:
    operator, sizes, dtype, pins = CASES[name]
    machine = topologies.load("h200-nvswitch", 4, 2 if name == "over nodes" else None)
    schedule = operator.plan_for(machine, dict(sizes), dtype, {"protocol": "ll128", "mover": "OwnKernel()", **pins})
    return lowering.emit(schedule, NVSHMEM if name == "over nodes" else "triton")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_lines_are_whole_and_in_order(name: str) -> None:
    report = check_compiled(load_source(source_of(name), "lines"), 4, "sm_90")
    assert report.events and not report.findings and not report.unknown, report.lines()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_thread_has_16_bytes(name: str) -> None:
    launches = [one.prepare() for one in Launches(load_source(source_of(name), "lines"), 4, 3, "sm_90")]
    (kernel,) = (one for one in launches if PIECE in one.assembly)
    accesses = re.findall(r"(ld|st)\.relaxed\.sys\.global\.(v2\.)?b64", kernel.assembly)
    assert {kind for kind, _ in accesses} == {"ld", "st"}
    assert all(wide for _, wide in accesses) or name == "over nodes"  # packets of rails are words


@pytest.mark.slow
def test_a_thread_with_pieces_of_several_lines() -> None:
    source = edited(source_of("a gather"), ("num_warps=16,", "num_warps=4,"))
    assert not check_compiled(load_source(source, "lines"), 4, "sm_90").findings


_BLOCKED = "#ttg.blocked<{{sizePerThread = {}, threadsPerWarp = {}, warpsPerCTA = [4, 1], order = {}}}>"
_LINEAR = "#ttg.linear<{{register = {}, lane = {}, warp = [[0, 32], [1, 0]], block = []}}>"
LAYOUTS = {
    _BLOCKED.format([1, 1], [1, 32], [1, 0]): True,
    _BLOCKED.format([1, 1], [4, 8], [1, 0]): True,
    _BLOCKED.format([2, 1], [4, 8], [1, 0]): True,
    _BLOCKED.format([1, 1], [8, 4], [1, 0]): False,
    _BLOCKED.format([1, 2], [1, 32], [1, 0]): False,
    _BLOCKED.format([1, 1], [4, 8], [0, 1]): False,
    _LINEAR.format([[4, 0]], [[0, 1], [0, 2], [0, 4], [0, 8], [0, 16]]): True,
    _LINEAR.format([[0, 1]], [[0, 2], [0, 4], [0, 8], [0, 16], [2, 0]]): False,
    _LINEAR.format([[0, 4]], [[0, 1], [0, 2], [0, 8], [0, 16], [2, 0]]): False,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_that_tear_a_line(layout: str) -> None:
    text = '%3 = tt.elementwise_inline_asm "st.relaxed.sys.global.v2.b64 [$1], {$2, $3};" {a = 1} %0, %1, %2 : '
    ttgir = f"#l = {layout}\n{text}tensor<8x64xi64, #l>, tensor<8x64xi64, #l> -> tensor<8x64xi32, #l>"
    assert (not list(torn(ttgir))) is LAYOUTS[layout]


def test_what_its_text_says() -> None:
    text = "{ .reg .pred there; setp.ne.s32 there, $3, 0; @there ld.relaxed.sys.global.v2.b64 {$0, $1}, [$2]; }"
    assert assembly_kind(text) == (Kind.WORD, True) and assembly_guard(text, 2) == 1
