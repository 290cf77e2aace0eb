"""Mistakes in the declaration and the use of a tile op of the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
import torch
import triton
import triton.language as tl

import tilelink
from tests.errors.blame import blamed_line
from tilelink import Partial, Replicate, Shard, Tensor, axes, dims
from tilelink.errors import BadUserOp

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilelink.ir.placement import Placement

M, N, K = dims("M N K")
m, n, k = axes("m n k")
(step,) = axes("step")


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
        ({"x": (step, k), "w": (k, n)}, (step, n), "an axis is called step", "any name but call"),
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


def test_an_axis_for_each_dimension() -> None:
    with pytest.raises(BadUserOp) as caught:
        tilelink.op(reads={"x": (m, m), "w": (m, n)}, writes=(m, n))(body)
    assert "both dimensions of 'x' are the axis m" in str(caught.value)


@pytest.mark.parametrize(
    ("claims", "reason", "legal"),
    [
        ({"tiled": k}, "tiled names k, which is no written axis of it", "Legal: m, n."),
        ({"sums": (m,)}, "sums names m, which is no reduced axis of it", "Legal: k."),
        ({"linear": "y"}, "linear names y, which is no tensor of it", "Legal: x, w."),
        ({"whole": axes("z")}, "whole names z, which is no axis of it", "Legal: m, n, k."),
        ({"whole": n, "tiled": (m, n)}, "its axis n is declared whole and tiled", "one of both"),
        ({"whole": k, "sums": k}, "its axis k is declared whole and a sum", "one of both"),
        ({"sums": k}, "sums=k does not hold for its reference: the results for the parts of k do not", "Leave k out"),
        ({"linear": ("w", "x")}, "linear=w does not hold for its reference", "Leave w out, or correct the reference"),
    ],
)
def test_claims(claims: dict[str, Any], reason: str, legal: str) -> None:
    with pytest.raises(BadUserOp) as caught:
        tilelink.op(reads=READS, writes=(m, n), reference=lambda x, w: torch.relu(x @ w), **claims)(body)
    assert reason in str(caught.value.facts["reason"])
    assert legal in str(caught.value.facts["legal"])
    assert "writes=(m, n), reference=lambda" in blamed_line(caught.value, __file__)


@triton.jit  # type: ignore[untyped-decorator]
def pointwise(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.zeros((TILE_M, TILE_N), tl.float32)


@pytest.mark.parametrize(
    ("reference", "kept"),
    [
        (lambda x: x * 2, True),
        (lambda x: torch.softmax(x, 1), False),
        (lambda x: x * torch.arange(x.shape[1], device=x.device), False),  # by place
        (lambda x: x.view(x.shape[0], -1, 2).flip(2).flatten(1), False),  # in pairs
        (lambda x: x.roll(1, 1), False),
        (lambda x: x.view(x.shape[0], -1, 128).softmax(2).flatten(1), False),  # in blocks
    ],
)
def test_tiles_that_read_more_than_they_write(reference: Any, kept: bool) -> None:
    """A claim that the reference contradicts; without a claim the axis is whole, and may not be sharded."""
    if not kept:
        with pytest.raises(BadUserOp) as caught:
            tilelink.op(reads={"x": (m, n)}, writes=(m, n), reference=reference, tiled=n)(pointwise)
        assert "tiled=n does not hold for its reference: a part of n gives another" in str(caught.value)
    call = tilelink.op(reads={"x": (m, n)}, writes=(m, n), reference=reference)(pointwise)
    _use_one(call, Tensor(M, N, placement=Shard(0)))
    if kept:
        _use_one(call, Tensor(M, N, placement=Shard(1)))
        return
    with pytest.raises(BadUserOp) as caught:
        _use_one(call, Tensor(M, N, placement=Shard(1)))
    assert caught.value.facts["reason"] == "axis n is sharded, and a tile may need all of it"
    assert "Gather it first: all_gather(x, dim=1). If a tile reads along n only" in str(caught.value.facts["legal"])
    assert blamed_line(caught.value, __file__) == "return call(x)"


def test_without_a_reference_nothing_is_tiled() -> None:
    declare: dict[str, Any] = {"reads": {"x": (m, n)}, "writes": (m, n)}
    with pytest.raises(BadUserOp):
        _use_one(tilelink.op(**declare)(pointwise), Tensor(M, N, placement=Shard(0)))
    _use_one(tilelink.op(**declare, tiled=(m, n))(pointwise), Tensor(M, N, placement=Shard(0)))
    with pytest.raises(BadUserOp):
        _use_one(tilelink.op(**declare, tiled=m)(pointwise), Tensor(M, N, placement=Shard(1)))


def _use_one(call: Callable[..., Tensor], x: Tensor) -> None:
    def f(x: Annotated[Tensor, (M, N)]) -> object:
        return call(x)

    f.__annotations__ = {"x": x}
    tilelink.overlap(f)


squared = tilelink.op(reads=READS, writes=(m, n), reference=lambda x, w: torch.relu(x @ w) ** 2)(body)
linear = tilelink.op(reads=READS, writes=(m, n), reference=lambda x, w: x @ w, sums=k, linear=("x", "w"))(body)


@pytest.mark.parametrize(
    ("call", "x", "w", "reason", "legal"),
    [
        (
            squared,
            Shard(1),
            Shard(0),
            "axis k is sharded, and a tile reduces over all of it",
            "Gather it first: all_gather(x, dim=1), all_gather(w, dim=0). If the result is a sum over k",
        ),
        (squared, Partial(), Replicate(), "'x' got x, which is Partial, and it is not declared linear", "Resolve x"),
        (linear, Partial(), Partial(), "which is Partial, and so is w: the result would lack", "Resolve x first"),
        (linear, Replicate(), Partial(), "", ""),
        (linear, Partial(), Shard(1), "which is Partial, and its axis n is sharded", "Resolve x first"),
    ],
)
def test_axes_and_summands_on_several_ranks(
    call: Callable[..., Tensor], x: Placement, w: Placement, reason: str, legal: str
) -> None:
    try:
        _use(lambda x, w: tilelink.all_reduce(call(x, w)), Tensor(M, K, placement=x), Tensor(K, N, placement=w))
    except BadUserOp as error:
        assert reason and reason in str(error.facts["reason"])
        assert legal in str(error.facts["legal"])
    else:
        assert not reason


def test_functions_of_one_name() -> None:
    """An emitted file had only the last one of them."""
    first = tilelink.op(reads={"x": (m, n)}, writes=(m, n), reference=lambda x: x)(pointwise)

    def other() -> Callable[..., Tensor]:
        @tilelink.op(reads={"x": (m, n)}, writes=(m, n), reference=lambda x: 2 * x)
        @triton.jit  # type: ignore[untyped-decorator]
        def pointwise(x, m, n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
            return tl.full((TILE_M, TILE_N), 1.0, tl.float32)

        return pointwise

    _use_one(lambda x: first(first(x)), Tensor(M, N))
    with pytest.raises(BadUserOp) as caught:
        _use_one(lambda x: other()(first(x)), Tensor(M, N))
    assert "another one of it is called pointwise, too" in str(caught.value)
