"""Ten operators through one printer: right on emulated ranks under the race detector, captured or not, and compiled in order."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from lowering.steps import pieces
from lowering.steps.file import lower
from tests.schedule.judged import emulated, judged, printed_module
from tests.schedule.operators import (
    OPERATORS,
    Operator,
    ag_gemm,
    gemm_rs,
    moe,
    moe_grouped,
    queue,
    ring_attention,
    two_level_rs,
)
from tests.schedule.small import SMALL, first_and_named, in_place_rounds
from tests.schedule.variants import by_descriptor, in_dtype, in_two_phases, with_streams, without_join
from tilelink.compiled.check import check_compiled

Cases = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]  # numbers of ranks, and seeds for them
MAKERS = pytest.mark.parametrize("make", OPERATORS.values(), ids=OPERATORS)
VARIANTS: dict[str, Callable[[], Operator]] = {
    "gemm_rs_described": lambda: by_descriptor(gemm_rs(), "x", "w", "out"),
    "ag_gemm_described": lambda: by_descriptor(ag_gemm(), "x", "x_full"),
    "queue_described": lambda: by_descriptor(queue(), "ring"),
    "ag_gemm_streams": lambda: with_streams(ag_gemm(), 2),
    "ag_gemm_in_two_phases": lambda: with_streams(in_two_phases(ag_gemm()), 2),
    "gemm_rs_in_two_phases": lambda: in_two_phases(gemm_rs()),
    "ag_gemm_unjoined": lambda: without_join(ag_gemm()),
    "gemm_rs_bf16": lambda: in_dtype(gemm_rs(), "bfloat16"),
    "moe_ragged": lambda: moe_grouped(2, 19),
    **SMALL,
}


@pytest.mark.slow
def test_one_kernel() -> None:
    assert judged(gemm_rs(2), seeds=(0, 7)) == "right"


@pytest.mark.slow
def test_a_copy_engine_and_ragged_columns_captured() -> None:
    operator = ag_gemm(2)
    assert not emulated(operator, printed_module(operator.schedule), seed=1, calls=2, captured=True)


def test_tables_and_counts() -> None:
    assert judged(moe(2), seeds=(5,)) == "right"


@pytest.mark.slow
@MAKERS
@pytest.mark.parametrize("captured", [False, True], ids=["eager", "captured"])
def test_right_on_emulated_ranks(make: Callable[..., Operator], captured: bool) -> None:
    """Any ranks, three calls with other inputs each; odd seeds starve a rank, or run the newest or the oldest first."""
    flat: Cases = (((2,), (0, 5)), ((3,), (1, 3, 7)), ((4,), (2, 7)))
    levels: Cases = (((2, 2), (0, 1, 5)), ((4, 2), (3, 7)))
    for sizes, seeds in levels if make is two_level_rs else flat:
        operator = make(*sizes)
        module = printed_module(operator.schedule)
        for seed in seeds[: 1 if captured else None]:
            assert not emulated(operator, module, seed, captured=captured), (sizes, seed)


@pytest.mark.slow
@pytest.mark.parametrize("make", VARIANTS.values(), ids=VARIANTS)
def test_variants_are_right(make: Callable[[], Operator]) -> None:
    operator = make()
    assert judged(operator, seeds=(0, 1, 7)) == "right"
    assert not emulated(operator, printed_module(operator.schedule), seed=2, captured=True)


@pytest.mark.slow
@pytest.mark.parametrize("make", [*OPERATORS.values(), *VARIANTS.values()], ids=[*OPERATORS, *VARIANTS])
def test_compiled_kernels_keep_the_order_of_the_source(make: Callable[..., Operator]) -> None:
    """Compiled for sm_90 by stock Triton. The check takes integers of inputs for 6, so that tables need so many tokens."""
    operator = moe(3, 7) if make is moe else make()
    report = check_compiled(printed_module(operator.schedule), operator.schedule.num_ranks, "sm_90")
    assert report.kernels
    assert not report.findings, report.lines()
    assert not report.unknown, report.lines()


@MAKERS
def test_a_loop_that_waits_is_not_pipelined(make: Callable[..., Operator]) -> None:
    for node in ast.walk(ast.parse(lower(make().schedule))):
        if isinstance(node, ast.For) and re.search(r"\b(wait_until|take_packets)\(", ast.unparse(node.body[0])):
            assert "num_stages=1" in ast.unparse(node.iter)


def test_masks_stand_only_where_an_access_can_stick_out() -> None:
    assert "mask=cols" not in lower(gemm_rs().schedule)
    text = lower(ag_gemm().schedule)  # 27 columns of 32
    assert text.count("< W_COLS") == 1 and text.count("< OUT_COLS") == 1 and "< X_COLS" not in text


@pytest.mark.parametrize("described", [False, True])
def test_where_a_tile_is_loaded_from_is_chosen_in_front_of_the_loop(described: bool) -> None:
    operator = by_descriptor(ag_gemm(), "x", "x_full") if described else ag_gemm()
    tree = ast.parse(lower(operator.schedule))
    (loop,) = [node for node in ast.walk(tree) if isinstance(node, ast.For) and "K_COUNT" in ast.unparse(node.iter)]
    assert not any(isinstance(node, ast.If) for node in ast.walk(loop))
    assert "a_from" in ast.unparse(loop)


def test_the_same_text_for_the_same_schedule() -> None:
    assert lower(queue().schedule) == lower(queue().schedule)
    other = replace(queue().schedule, name="another_queue")
    assert "class AnotherQueue:" in lower(other)


def test_sizes_have_their_names_and_what_sticks_out_is_masked_on_both_sides() -> None:
    operator = first_and_named()
    text = lower(operator.schedule)
    assert "rows_from(tile * TILE_M, TILE_M) * COLS" in text
    assert "other=7.0" in text and ">= 0" in text and "< COLS" in text and "< ROWS" not in text
    assert judged(operator, seeds=(0,)) == "right"


@pytest.mark.slow
@pytest.mark.parametrize("make", [queue, moe, two_level_rs, ring_attention])
def test_what_programs_move_goes_in_pieces(make: Callable[..., Operator], monkeypatch: pytest.MonkeyPatch) -> None:
    operator = make()
    for most in (16, 8):
        with monkeypatch.context() as small:
            small.setattr(pieces, "ELEMENTS", most)
            small.setattr(pieces, "is_flat", lambda scope, step, packets: False)  # runs are cut as well
            cut = replace(operator, schedule=pieces.in_pieces(operator.schedule))
        assert cut.schedule != operator.schedule
        assert judged(cut, seeds=(0,)) == "right"


def test_a_barrier_a_round() -> None:
    text = lower(in_place_rounds().schedule)
    loop = next(
        node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.For) and "R_COUNT" in ast.unparse(node.iter)
    )
    assert "program_barrier()" in ast.unparse(loop) and "num_stages=1" in ast.unparse(loop.iter)
