"""Outlines of kernels: what is left of IR, and of which kind a line is."""

from __future__ import annotations

from tests.replay.outline import KINDS, kind, outline
from tests.replay.outlines import differences, kinds_of
from tests.replay.side import Facts

IR = """
module {
  tt.func public @f0(%arg0: !tt.ptr<bf16>, %arg1: !tt.ptr<i32>) {
    scf.for %arg2 = %0 to %c8_i32 step %c1_i32  : i32 {
      %1 = arith.muli %arg2, %c64_i32 : i32
      %2 = scf.for %arg3 = %c0 to %c4 step %c1 iter_args(%arg4 = %cst) -> (tensor<16x16xf32>)  : i32 {
        %3 = tt.load %4, %5, %6 : tensor<16x16x!tt.ptr<bf16>>
        %7 = tt.dot %3, %3, %arg4 : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
        scf.yield %7 : tensor<16x16xf32>
      }
      scf.if %8 {
        tt.store %9, %10 : tensor<16x16x!tt.ptr<bf16>>
      }
      scf.if %8 {
        %11 = arith.addi %1, %1 : i32
      }
      %12 = tt.elementwise_inline_asm "bar.sync 0; mov.u32 $0, 0;" {pure = false} -> i32
      %13 = tt.atomic_rmw add, release, sys, %arg1, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32
    } {tt.flatten, tt.num_stages = 1 : i32}
    tt.return
  }
}
"""
LINES = """\
for  [tt.flatten, tt.num_stages = 1 : i32]
  for
    load masked 16x16x*bf16
    dot 16x16xbf16
  if
    store 16x16x*bf16
  barrier
  atomic add, release, sys *i32""".splitlines()


def facts(text: str, **choices: str) -> Facts:
    kernels = {"0": text}
    return Facts(
        key="",
        seconds={},
        choices=choices,
        predicted_us=1.0,
        kernels=kernels,
        names={"0": "f"},
        host={},
        beside="",
        errors={},
    )


def test_arithmetic_and_empty_branches_are_left_out() -> None:
    assert [line[4:] for line in outline(IR)] == LINES


def test_every_line_is_of_a_kind() -> None:
    kinds = [kind(line) for line in LINES]
    assert kinds == [
        "loops",
        "loops",
        "loads and stores",
        "dots",
        "branches",
        "loads and stores",
        "barriers",
        "atomics",
    ]
    assert set(kinds) <= set(KINDS)


def test_a_lost_mask_is_a_difference_of_loads() -> None:
    texts = {"old": IR, "new": IR.replace("%4, %5, %6 :", "%4 :")}
    found = differences(facts("old"), facts("new"), texts)
    assert list(found) == ["f -> f"]
    assert kinds_of(found) == ("loads and stores",)


def test_other_indices_are_none() -> None:
    texts = {"old": IR, "new": IR.replace("arith.muli", "arith.addi")}
    assert differences(facts("old"), facts("new"), texts) == {}


def test_kernels_of_other_choices_are_not_compared() -> None:
    assert kinds_of(differences(facts("old", tile="16"), facts("old", tile="32"), {"old": IR})) == ("choices",)
