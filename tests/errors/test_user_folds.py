"""Folds that are declared wrongly, or whose results are read before they are whole: the fact, and what is legal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import triton
import triton.language as tl

import tilelink
from lowering.steps.ops import _TEXTS
from tilelink import Shard, Tensor, dims
from tilelink.errors import BadUserOp, MixedDtypes, UnreducedOutput
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import bind
from tilelink.ir.user_op import STEPS

M, N = dims("M N")
m, n, k = tilelink.axes("m n k")
block, _other = tilelink.axes("block other")


@triton.jit
def plus(total, more):
    return total + more


@triton.jit
def add(total, more):
    return total + more


@triton.jit
def three(total, more, most):
    return total + more + most


@triton.jit
def two(total, more):
    return total, more


@triton.jit
def halved(half):
    return half / 2


@triton.jit
def summed(x, m, n, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    row, col = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    return tl.sum(tl.load(x + row[:, None] * num_n + col[None, :], mask=(col < num_n)[None, :], other=0.0), axis=1)


@triton.jit
def pairs(x, m, n, TILE_M: tl.constexpr):
    return tl.load(x + m + tl.arange(0, TILE_M)), tl.load(x + m + tl.arange(0, TILE_M))


@triton.jit
def longer(x, m, n, last_n, TILE_M: tl.constexpr):
    return tl.load(x + m + tl.arange(0, TILE_M))


@triton.jit
def by_block(x, block, n, TILE_BLOCK: tl.constexpr):
    return tl.load(x + block + tl.arange(0, TILE_BLOCK))


def declared(function: object = summed, **changes: object) -> Callable[..., Tensor]:
    given: dict[str, object] = {"reads": {"x": (m, n)}, "over": n, "state": {"total": 0.0}, "merge": plus} | changes
    decorate: Any = tilelink.fold(**given)  # type: ignore[call-overload]
    found: Callable[..., Tensor] = decorate(function)
    return found


@pytest.mark.parametrize(
    ("changes", "says", "legal"),
    [
        ({"function": len}, "its body is not a @triton.jit function", "Put @triton.jit below @tilelink.fold"),
        ({"over": k}, "over=k, and its tensors have the axes m, n", "Legal: k, and one more"),
        ({"reads": {"x": (m, n), "y": (k, n)}}, "its tensors have the axes k, m, n", "one more, which the result has"),
        ({"state": {}}, "state has the parts none", "one to 8 parts"),
        ({"state": {"x": 0.0}}, "state has the parts x", "names that no tensor and no axis has"),
        ({"state": {"total": "0"}}, "part total of a state begins with '0'", "a number each"),
        ({"merge": len}, "merge=<built-in function len> is not a @triton.jit function", "Put @triton.jit above it"),
        ({"merge": three}, "three has the parameters (total, more, most)", "Legal: 2, the parts total of one state"),
        ({"merge": two}, "two returns 2 tensors", "Legal: 1, of [TILE_M] each"),
        ({"finish": halved}, "halved has the parameters (half)", "Legal parameters: total, all_n"),
        ({"state": {"total": 0.0, "more": 0.0}}, "plus has the parameters (total, more)", "Legal: 4"),
        ({"merge": add}, "a function is called add, as a step of kernels is", "another name"),
        ({"function": pairs}, "pairs returns 2 tensors", "Legal: 1"),
        ({"function": longer}, "its body has the parameters (x, m, n, last_n, TILE_M)", "first_n, all_n"),
        ({"function": by_block, "reads": {"x": (block, n)}}, "an axis is called block", "any name but split, block, state"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_says_what_is_legal(changes: dict[str, object], says: str, legal: str) -> None:
    with pytest.raises(BadUserOp) as caught:
        declared(**changes)
    assert says in str(caught.value) and legal in str(caught.value)
    assert "test_user_folds.py" in str(caught.value)


@triton.jit
def merge_two(one, other, more, most):
    return one + more, other + most


def test_several_parts_need_a_finish() -> None:
    with pytest.raises(BadUserOp, match="it has no finish, and a state of 2 parts"):
        declared(pairs, state={"one": 0.0, "other": 0.0}, merge=merge_two)


def test_it_takes_as_many_tensors_as_it_reads() -> None:
    fold = declared()
    with pytest.raises(BadUserOp, match="called with 2 tensors"):

        @tilelink.overlap
        def twice(x: Tensor(M, N)):
            return fold(x, x)


def test_a_state_is_no_result_before_it_is_reduced() -> None:
    fold = declared()
    with pytest.raises(UnreducedOutput):

        @tilelink.overlap
        def unreduced(x: Tensor(M, N, placement=Shard(1))):
            return fold(x)

    @tilelink.overlap
    def halved_states(x: Tensor(M, N, placement=Shard(1))):
        return tilelink.all_reduce(fold(x) * 2)

    bound = bind(halved_states.spec, {"M": 4, "N": 8}, 2, "bf16")
    with pytest.raises(BadUserOp, match=r"mul takes .* of which ranks have a state each"):
        as_computed(bound)


def test_summands_and_two_cuts_are_refused() -> None:
    fold = declared()
    with pytest.raises(BadUserOp, match="which is Partial"):

        @tilelink.overlap
        def of_summands(x: Tensor(M, N, placement=tilelink.Partial())):
            return fold(x)

    @triton.jit
    def diagonal(x, y, m, n, TILE_M: tl.constexpr):
        return tl.load(x + m + tl.arange(0, TILE_M))

    two_cuts = declared(diagonal, reads={"x": (m, n), "y": (m, n)})
    with pytest.raises(BadUserOp, match="axis m is sharded in one tensor and whole in"):

        @tilelink.overlap
        def cut_twice(x: Tensor(M, N, placement=Shard(1)), y: Tensor(M, N, placement=Shard(0))):
            return two_cuts(x, y)


def test_beside_other_dtypes_a_tile_op_takes_fp32() -> None:
    @tilelink.op(reads={"x": (m,), "y": (m,)}, writes=(m,), reference=lambda x, y: x + y)
    @triton.jit
    def both(x, y, m, TILE_M: tl.constexpr):
        return tl.load(x + m + tl.arange(0, TILE_M)) + tl.load(y + m + tl.arange(0, TILE_M))

    @tilelink.overlap
    def mixed(x: Tensor(M, dtype="bf16", placement=Shard(0)), y: Tensor(M, dtype="fp32", placement=Shard(0))):
        return both(x, y)

    assert bind(mixed.spec, {"M": 8}, 2, "bf16").nodes[0].output.dtype == "bf16"
    with pytest.raises(MixedDtypes):

        @tilelink.overlap
        def others(x: Tensor(M, dtype="bf16", placement=Shard(0)), y: Tensor(M, dtype="fp16", placement=Shard(0))):
            return both(x, y)


def test_all_steps_of_kernels_are_known_by_name() -> None:
    assert set(_TEXTS) <= STEPS
