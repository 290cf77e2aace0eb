"""Packets that several warps hold: each would send them."""

from __future__ import annotations

import re

import pytest

import lowering
import topologies
from tests.compiled.planted import checked, named
from tests.pipeline.expert_specs import SPECS
from tilelink.compiled.check import SENT_TWICE
from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.launches import Launches
from tilelink.compiled.replicas import replicated
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import TileShape
from tilelink.planner.fields import pin_text
from tilelink.planner.tiles import MATMUL_TILES
from tilelink.runtime.load import load_source

GEMM_AR, AG_GEMM = named("04_gemm_ar.py:gemm_ar"), named("02_ag_gemm.py:ag_gemm")


def blocked(held: str, lanes: str, warps: str) -> str:
    return f"#ttg.blocked<{{sizePerThread = [{held}], threadsPerWarp = [{lanes}], warpsPerCTA = [{warps}], order = [1, 0]}}>"


def linear(warp: str) -> str:
    lane = "[[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]]"
    return f"#ttg.linear<{{register = [[8, 0]], lane = {lane}, warp = [{warp}], block = []}}>"


def accumulators(warps: str) -> str:
    return f"#ttg.nvidia_mma<{{versionMajor = 2, versionMinor = 0, warpsPerCTA = [{warps}], instrShape = [16, 8]}}>"


_LOAD, _STORE = "ld.relaxed.sys.global.b64 $0, [$1];", "st.relaxed.sys.global.b64 [$1], $2;"


@pytest.mark.parametrize(
    ("shape", "layout", "several"),
    [
        ("16x4", blocked("1, 1", "8, 4", "4, 1"), True),
        ("16x8", blocked("1, 1", "4, 8", "4, 1"), False),
        ("16x8", blocked("1, 2", "8, 4", "2, 2"), True),
        ("8x2", blocked("1, 1", "8, 4", "1, 1"), False),  # lanes of one warp store by one instruction
        ("16x8", linear("[0, 4], [0, 0]"), True),
        ("16x16", linear("[0, 4], [0, 8]"), False),
        ("16x16", accumulators("1, 4"), True),
        ("16x32", accumulators("1, 4"), False),
    ],
)
def test_layouts(shape: str, layout: str, several: bool) -> None:
    types = f"tensor<{shape}xi64, #layout>"
    load = f'%2 = tt.elementwise_inline_asm "{_LOAD}" {{pure = false}} %0 : {types} -> {types}'
    store = f'%3 = tt.elementwise_inline_asm "{_STORE}" {{pure = false}} %0, %1 : {types}, {types} -> {types}'
    wanted = [layout] if several else []
    for lines, times in (([store], 1), ([load, store], 2), ([load], 0)):  # what is loaded is emptied, or left as it is
        text = "\n".join([f"#layout = {layout}", *lines])
        assert [one.layout for one in replicated(text)] == wanted * times
        assert not list(replicated(text.replace(".relaxed.sys", "")))


@pytest.mark.parametrize(
    ("lines", "numbered"),
    [
        (["%n = arith.shli %call, %c32 : X", "%1 = arith.ori %n, %data : X"], True),
        (["%n = arith.shli %call, %c32 : i64", "%m = tt.splat %n : i64 -> X", "%1 = arith.ori %data, %m : X"], True),
        (["%n = arith.shli %call, %c32 : X", "%o = arith.ori %n, %d : X", "%1 = ttg.convert_layout %o : X -> X"], True),
        (["%n = arith.shli %call, %c32 : X", "%1 = arith.addi %n, %data : X"], False),
        (["%1 = arith.ori %a, %b : X"], False),
        (["%1 = arith.xori %data, %ones : X"], False),
    ],
)
def test_packets_that_say_the_number_of_the_call_may_be_sent_twice(lines: list[str], numbered: bool) -> None:
    types = "tensor<16x1xi64, #layout>"
    store = f'%3 = tt.elementwise_inline_asm "{_STORE}" {{pure = false}} %0, %1 : {types}, {types} -> {types}'
    text = "\n".join([f"#layout = {accumulators('1, 4')}", *(one.replace("X", types) for one in lines), store])
    assert bool(list(replicated(text))) is not numbered


def test_a_layout_that_nobody_knows() -> None:
    types = "tensor<8xi64, #other>"
    line = f'%1 = tt.elementwise_inline_asm "st.relaxed.sys" {{pure = false}} %0, %2 : {types}, {types} -> tensor<8xi32, #other>'
    with pytest.raises(CannotFollow):
        list(replicated(f"#other = #ttg.new<{{}}>\n{line}"))


@pytest.mark.slow
def test_a_kernel_of_too_many_warps_is_found() -> None:
    sizes = {"T": 64, "F": 256, "H": 256, "E": 8, "K": 3}
    pins = {"out.protocol": "lamport", "out.mover": "Fused()"}
    schedule = SPECS["moe_ar"].plan_for(topologies.load("h100-nvswitch", 2), sizes, "bf16", pins)
    source = lowering.emit(schedule)
    assert not checked(schedule, source).findings
    kernel = re.compile(r"(combine_out_kernel,.*?num_warps=)\d+", re.DOTALL)
    found = checked(schedule, kernel.sub(r"\g<1>32", source)).findings
    assert SENT_TWICE in {one.rule for one in found}


_SMALL = [tile for tile in MATMUL_TILES if tile.warpgroups == 1 and tile.m * tile.n <= 2048]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("protocol", ["ll", "lamport"])
@pytest.mark.parametrize("tile", _SMALL, ids=pin_text)
def test_tiles_that_are_planned_give_no_packet_to_two_warps(tile: TileShape, protocol: str, ranks: int) -> None:
    pins = {"protocol": protocol, "mover": "Fused()", "tile": pin_text(tile)}
    machine = topologies.load("h100-nvswitch", ranks)
    try:
        schedule = GEMM_AR.plan_for(machine, {"M": 512, "K": 512, "N": 512}, "bf16", pins)
    except NoLegalSchedule as error:
        assert "two for each thread" in str(error)
        return
    kernels = [one.prepare() for one in Launches(load_source(lowering.emit(schedule), "y"), ranks, 0, "sm_90")]
    assert not [found for one in kernels for found in replicated(one.ttgir)]


@pytest.mark.parametrize("rows", [1, 2, 4, 16])
def test_few_packets_get_few_warps(rows: int) -> None:
    pins = {"protocol": "lamport", "mover": "OwnKernel()"}
    machine = topologies.load("h100-nvswitch", 2)
    schedule = AG_GEMM.plan_for(machine, {"M": rows * 2, "K": 128, "N": 256}, "bf16", pins)
    assert f"num_warps={rows}," in lowering.emit(schedule)  # 32 packets of 8 bytes in a row
