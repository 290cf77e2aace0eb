"""Mistakes in the declaration and the use of a tile op of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
import triton
import triton.language as tl

import tilelink
from tests.errors.blame import blamed_line
from tilelink import Partial, Shard, Tensor, axes, dims
from tilelink.errors import BadUserOp

if TYPE_CHECKING:
    from collections.abc import Callable

M, N, K = dims("M N K")
m, n, k = axes("m n k")


@triton.jit  # type: ignore[untyped-decorator]
def body(x, w, m, n, num_k, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.zeros((TILE_M, TILE_N), tl.float32)


READS = {"x": (m, k), "w": (k, n)}


@pytest.mark.parametrize(
    ("reads", "writes", "reason", "legal"),
    [
        (READS, (), "writes=()", "one or two different axes"),
        (READS, (m, m), "writes=(m, m)", "one or two different axes"),
        (READS, (m, n, k), "writes=(m, n, k)", "one or two different axes"),
        ({"x": (m, k, n), "w": (k, n)}, (m, n), "'x' has 3 dimensions", "one or two"),
        ({"x": (), "w": (k, n)}, (m, n), "'x' has 0 dimensions", "one or two"),
        ({"x": (m, k), "w": (k, m)}, (m, n), "no tensor has the axis n", "every written axis"),
        ({}, (m, n), "no tensor has the axis m, n", "every written axis"),
        ({"x": (m, k), "b": (k, n)}, (m, n), "its body has the parameters (x, w,", "Legal parameters: x, b, m, n,"),
        (
            {"x": (m, n)},
            (m, n),
            "its body has the parameters (x, w,",
            "Legal parameters: x, m, n, num_m, num_n, TILE_M",
        ),
    ],
)
def test_declarations(reads: dict[str, Any], writes: tuple[Any, ...], reason: str, legal: str) -> None:
    with pytest.raises(BadUserOp) as caught:
        tilelink.op(reads=reads, writes=writes)(body)
    assert caught.value.facts["name"] == "body"
    assert reason in str(caught.value.facts["reason"])
    assert legal in str(caught.value.facts["legal"])
    assert blamed_line(caught.value, __file__) == "tilelink.op(reads=reads, writes=writes)(body)"


@pytest.mark.parametrize("function", [lambda x: x, 3, "body"])
def test_a_body_that_triton_does_not_compile(function: object) -> None:
    with pytest.raises(BadUserOp) as caught:
        tilelink.op(reads=READS, writes=(m, n))(function)
    assert caught.value.facts["reason"] == "its body is not a @triton.jit function"
    assert "Put @triton.jit below @tilelink.op." in str(caught.value)
    assert blamed_line(caught.value, __file__) == "tilelink.op(reads=READS, writes=(m, n))(function)"


@pytest.mark.parametrize("reference", [max, 3])
def test_a_reference_without_source(reference: Any) -> None:
    with pytest.raises(BadUserOp) as caught:
        tilelink.op(reads=READS, writes=(m, n), reference=reference)(body)
    assert "reference" in str(caught.value.facts["reason"])
    assert "Define it in a file." in str(caught.value)


product = tilelink.op(reads=READS, writes=(m, n))(body)


def _use(call: Callable[..., Tensor], x: Tensor, w: Tensor) -> None:
    def f(x: Annotated[Tensor, (M, K)], w: Annotated[Tensor, (M, K)]) -> object:
        return call(x, w)

    f.__annotations__ = {"x": x, "w": w}
    tilelink.overlap(f)


@pytest.mark.parametrize(
    ("x", "w", "reason", "legal"),
    [
        (Tensor(M), Tensor(K, N), "'x' is declared with 2 dimensions and got [M]", "that many dimensions"),
        (Tensor(M, K), Tensor(M, N), "axis k is K in one tensor and M in 'w'", "An axis has one extent"),
        (Tensor(M, K, placement=Partial()), Tensor(K, N), "which is Partial", "reduce_scatter or all_reduce"),
        (Tensor(M, K, placement=Shard(1)), Tensor(K, N), "axis k is sharded in one tensor", "alike"),
        (
            Tensor(M, K, placement=Shard(0)),
            Tensor(K, N, placement=Shard(1)),
            "its axes m, n are all sharded",
            "At most one axis may be sharded",
        ),
    ],
)
def test_uses(x: Tensor, w: Tensor, reason: str, legal: str) -> None:
    with pytest.raises(BadUserOp) as caught:
        _use(product, x, w)
    assert reason in str(caught.value.facts["reason"])
    assert legal in str(caught.value.facts["legal"])
    assert blamed_line(caught.value, __file__) == "return call(x, w)"


def test_number_of_operands() -> None:
    with pytest.raises(BadUserOp) as caught:
        _use(lambda x, w: product(x), Tensor(M, K), Tensor(K, N))
    assert caught.value.facts["reason"] == "called with 1 tensors"
    assert caught.value.facts["legal"] == "It reads: x, w."
    assert "product(x)" in blamed_line(caught.value, __file__)


def test_an_index_of_one_axis_needs_no_tuple() -> None:
    @triton.jit  # type: ignore[untyped-decorator]
    def row(b, m, TILE_M: tl.constexpr):  # type: ignore[no-untyped-def]
        return tl.load(b + m + tl.arange(0, TILE_M))

    assert tilelink.op(reads={"b": m}, writes=m)(row) is not None
