"""What of torch's own ways is refused in specs, and what the message offers instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest
import torch.distributed.tensor as dtensor

import tilelink
from tests.errors.blame import blamed_line
from tilelink import Partial, Shard, Tensor, dims
from tilelink.errors import (
    BadDim,
    BadScalar,
    BadSlice,
    ElementwisePlacement,
    IllegalSize,
    SliceOfShards,
    SliceOutOfRange,
    TransposedOperand,
    UnknownPlacement,
    UnknownReduction,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilelink import Overlap
    from tilelink.ir.placement import Placement

M, N, K, F = dims("M N K F")


def _apply(function: Callable[..., Any], *operands: Tensor) -> Overlap:
    """Trace `function` of these operands (a, b), the first of which is reduced if it is not all that is made."""

    def one(a: Annotated[Tensor, (M, K)]) -> object:
        return function(a)

    def two(a: Annotated[Tensor, (M, K)], b: Annotated[Tensor, (M, K)]) -> object:
        return function(a, b)

    wanted = two if len(operands) == 2 else one
    wanted.__annotations__ = dict(zip("ab", operands, strict=False))
    return tilelink.overlap(wanted)


@pytest.mark.parametrize("reduction", ["avg", "max"])
def test_summands_that_are_to_be_reduced_otherwise(reduction: str) -> None:
    with pytest.raises(UnknownReduction) as caught:
        Tensor(M, K, placement=dtensor.Partial(reduction))
    assert caught.value.facts["reduction"] == reduction
    assert "the average is the sum divided by the number of ranks" in str(caught.value)
    assert blamed_line(caught.value, __file__) == "Tensor(M, K, placement=dtensor.Partial(reduction))"


def test_several_mesh_dimensions() -> None:
    with pytest.raises(UnknownPlacement):
        Tensor(M, K, placement=[dtensor.Shard(0), dtensor.Replicate()])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: a * float("inf"),
        lambda a: float("nan") + a,
        lambda a: a - 1e39,
        lambda a: a / 0,
        lambda a: tilelink.div(a, 0.0),
    ],
)
def test_numbers_that_are_none(wrong: Callable[[Any], Tensor]) -> None:
    with pytest.raises(BadScalar) as caught:
        _apply(wrong, Tensor(M, K))
    assert "Legal: finite real numbers" in str(caught.value)
    assert "lambda a:" in blamed_line(caught.value, __file__)


def test_a_number_that_the_sizes_make_zero() -> None:
    operator = _apply(lambda a: a / (M - K), Tensor(M, K))
    operator.plan("laptop-switch", 2, M=32, K=16)
    with pytest.raises(BadScalar, match="div with -K \\+ M"):
        operator.plan("laptop-switch", 2, M=16, K=16)


@pytest.mark.parametrize(
    ("wrong", "cure"),
    [
        (lambda a, _: a + 1, "Resolve the summands first"),
        (lambda a, _: 1 - a, "Resolve the summands first"),
        (lambda a, b: a + b, "or add two Partial tensors"),
        (lambda a, b: a - b, "or add two Partial tensors"),
        (lambda a, b: b / a, "Resolve the operand first"),
        (lambda a, _: 1 / a, "Resolve the operand first"),
        (lambda a, _: a * a, "Resolve the operand first"),
        (lambda a, _: a / a, "Resolve the operand first"),
    ],
)
def test_summands(wrong: Callable[[Any, Any], Tensor], cure: str) -> None:
    with pytest.raises(ElementwisePlacement) as caught:
        _apply(wrong, Tensor(M, K, placement=Partial()), Tensor(M, K))
    assert cure in str(caught.value)
    assert "a (Partial())" in str(caught.value)
    assert "lambda a," in blamed_line(caught.value, __file__)


def test_summands_and_parts() -> None:
    with pytest.raises(ElementwisePlacement, match="Gather the other operand first"):
        _apply(lambda a, b: a * b, Tensor(M, K, placement=Partial()), Tensor(M, 1, placement=Shard(0)))


@pytest.mark.parametrize(("placement", "shape"), [(Shard(0), (M, 1)), (Shard(1), (1, K)), (Shard(0), (K,))], ids=str)
def test_parts_of_a_row_or_column_over_the_whole(placement: Placement, shape: tuple[Any, ...]) -> None:
    with pytest.raises(ElementwisePlacement, match="a column that is Shard\\(0\\)"):
        _apply(lambda a, b: a * b, Tensor(M, K), Tensor(*shape, placement=placement))


@pytest.mark.parametrize(
    ("wrong", "dim"),
    [
        (lambda a: a.chunk(2, dim=-1)[0], 1),
        (lambda a: a[:, :F], 1),
        (lambda a: a.split(K / 2, 1)[1], 1),
    ],
)
def test_slices_across_ranks(wrong: Callable[[Any], Tensor], dim: int) -> None:
    with pytest.raises(SliceOfShards) as caught:
        _apply(wrong, Tensor(M, K, placement=Shard(dim)))
    assert caught.value.facts == {"tensor": "a", "shape": "M, K", "dim": dim}
    for cure in ("all_gather(a, dim=1) first", "a parameter for each matrix", "contiguous"):
        assert cure in str(caught.value)
    assert "lambda a:" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (lambda a: a[0], "takes a dimension away"),
        (lambda a: a[:, None], "takes a dimension away"),
        (lambda a: a[a], "takes a dimension away"),
        (lambda a: a[::2], "gaps between them"),
        (lambda a: a[:, ::-1], "gaps between them"),
        (lambda a: a[:1, :1, :1], "more places"),
        (lambda a: a[..., ...], "more places"),
        (lambda a: a[: 2 * M], "dimension 0 has M elements"),
        (lambda a: a[-2 * M :], "dimension 0 has M elements"),
        (lambda a: a[5:5], "no elements"),
        (lambda a: a[:, K:], "no elements"),
        (lambda a: a[:1.5], "1.5 is no position"),
        (lambda a: a.chunk(0)[0], "positive integer"),
        (lambda a: a.chunk("2")[0], "positive integer"),
        (lambda a: a.split(F)[0], "no known number of pieces"),
        (lambda a: a.split([F, F])[0], "2*F elements in all, not M"),
        (lambda a: a.split([M, 0])[1], "no elements"),
    ],
)
def test_slices_that_are_none(wrong: Callable[[Any], Tensor], reason: str) -> None:
    with pytest.raises(BadSlice) as caught:
        _apply(wrong, Tensor(M, K))
    assert reason in str(caught.value)
    assert "Legal: slices with a step of 1, such as a[:, :n]" in str(caught.value)
    assert "lambda a:" in blamed_line(caught.value, __file__)


def test_pieces_that_are_not_equal() -> None:
    with pytest.raises(BadSlice, match="8 elements are not 3 equal pieces"):
        _apply(lambda a: a.chunk(3)[0], Tensor(8, K))
    operator = _apply(lambda a: a.chunk(2)[0], Tensor(M, K))
    with pytest.raises(IllegalSize, match="M/2=15/2"):
        operator.plan("laptop-switch", 2, M=15, K=16)


@pytest.mark.parametrize("function", ["chunk", "split"])
def test_pieces_along_no_dimension(function: str) -> None:
    with pytest.raises(BadDim) as caught:
        _apply(lambda a: getattr(a, function)(2, dim=2)[0], Tensor(M, K))
    assert caught.value.facts["collective"] == function


def test_bounds_that_only_sizes_tell() -> None:
    operator = _apply(lambda a: tilelink.relu(a[:, F:]), Tensor(M, K))
    assert operator.spec.symbols() == ("M", "K", "F")
    operator.plan("laptop-switch", 2, M=16, K=16, F=4)
    with pytest.raises(IllegalSize):
        operator.plan("laptop-switch", 2, M=16, K=16, F=16)
    operator = _apply(lambda a: tilelink.relu(a[:, :F]), Tensor(M, K))
    with pytest.raises(SliceOutOfRange) as caught:
        operator.plan("laptop-switch", 2, M=16, K=16, F=17)
    assert (caught.value.facts["stop"], caught.value.facts["extent"]) == (17, 16)
    assert "lambda a:" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: a.T - 1,
        lambda a: a.t() / 2,
        lambda a: -a.T,
        lambda a: 2 * a.t(),
        lambda a: a.T[:, :F],
        lambda a: a.T.chunk(2)[0],
    ],
)
def test_of_a_transposed_tensor(wrong: Callable[[Any], Tensor]) -> None:
    with pytest.raises(TransposedOperand):
        _apply(wrong, Tensor(M, K))
