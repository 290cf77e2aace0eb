"""What the text of loops says to the compiler, and what is done in front of them or at once."""

from __future__ import annotations

import re
from functools import cache

import pytest

import topologies
from lowering.steps.planned import lower_planned
from tests.pipeline.workloads import load

TRITON = {"algorithm": "direct", "compute": "triton", "tile": "16x16x16/4w2s"}
SIZES = {"M": 128, "K": 128, "N": 128}
WIDE = SIZES | {"N": 512}


@cache
def kernels(workload: str, sizes: str = "", **pins: str | None) -> str:
    """The text of the kernels."""
    name = f"{workload}.py:{workload[3:]}"
    given = {pin: value for pin, value in (TRITON | pins).items() if value is not None}
    planned = load(name).plan_for(topologies.load("h200-nvswitch", 4), WIDE if sizes else SIZES, "bf16", given)
    text = lower_planned(planned)
    return text[text.index("# ---- kernels") : text.index("# ---- the operator")]


def copies(**pins: str) -> str:
    return kernels("02_ag_gemm", mover="CopyEngine()", transfer="push", **pins)


def test_tiles_that_are_prefetched_are_one_loop_with_their_products() -> None:
    assert re.search(r"for tile in tl\.range\(program, \w+, \w+, flatten=True\):", copies(prefetch="yes"))


def test_a_loop_around_another_one_has_no_flags() -> None:
    assert re.search(r"for tile in tl\.range\(program, \w+, \w+\):", copies(prefetch="no"))


def test_tiles_that_wait_and_have_no_loop_are_not_pipelined() -> None:
    text = kernels("03_gemm_rs", mover="Fused()", transfer="push", sum="kernel")
    out = text[text.index("def out_kernel") :]
    assert re.search(r"for tile in tl\.range\(program, \w+, \w+, num_stages=1\):", out)
    assert "for step in tl.static_range(NUM_RANKS):" in out  # all parts are on their way at once


def test_peers_are_told_at_once() -> None:
    text = kernels("03_gemm_rs", mover="Fused()", transfer="pull", compute="library", tile=None)
    assert re.search(r"notify_peers\(signal_peers, \w+_READY \+ rank, call, rank, NUM_RANKS=NUM_RANKS\)", text)
    assert "notify(on_peer(" not in text


def test_addresses_at_peers_are_looked_up_in_front_of_loops() -> None:
    text = kernels("02_ag_gemm", mover="Fused()", transfer="pull")
    before, after = text.split("for k_tile in", 1)
    assert "on_peer(" in before
    assert "on_peer(" not in after.split("tl.store(")[0]


def test_all_roles_wait_for_the_last_call_once() -> None:
    text = kernels("02_ag_gemm", mover="CommSms(2)", transfer="push")
    assert len(re.findall(r"wait_until\(signals \+ DONE", text)) == 1
    assert '"""Move the chunks of x_full, on 2 programs."""' in text
    assert "    else:\n        out_tiles(" in text


def test_slices_of_a_tile_have_one_function() -> None:
    """Four slices of 64 columns, each from its own column on."""
    text = kernels("03_gemm_rs", mover="Fused()", transfer="push", sum="epilogue", tile="16x256x16/4w2s", sizes="wide")
    assert len(re.findall(r"^def out_slice\(y, m, n, ", text, re.MULTILINE)) == 1
    calls = re.findall(r"out_slice\((y_\w+), m, (n[^,]*), ", text)
    quarter = "(TILE_N // 4)"
    starts = ["n", "n + TILE_N // 4", f"n + 2 * {quarter}", f"n + 3 * {quarter}"]
    assert calls == list(zip(["y_0_64", "y_64_128", "y_128_192", "y_192_256"], starts, strict=True))


def test_values_say_where_the_user_makes_them() -> None:
    assert re.search(r"# src\[02_ag_gemm\.py:\d+\] out\n +out_tile = tl\.zeros", copies(prefetch="no"))


@pytest.mark.parametrize("mover", ["CommSms(2)", "CopyEngine()"])
def test_lines_are_not_much_wider_than_the_file(mover: str) -> None:
    text = kernels("03_gemm_rs", mover=mover, transfer="push")
    assert max(map(len, text.splitlines())) <= 120
