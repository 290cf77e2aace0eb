"""Mistakes in the body of a function: operations on tensors that do not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pytest

import tilelink
from tests.errors.blame import blamed_line
from tilelink import Partial, Replicate, Shard, Tensor, dims
from tilelink.errors import (
    BadDim,
    BadShape,
    ElementwiseMismatch,
    ElementwisePlacement,
    MatmulMismatch,
    MatmulPlacement,
    MixedDtypes,
    NotATensor,
    NothingToGather,
    NothingToReduce,
    TransposedOperand,
    UnknownOp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilelink.ir.placement import Placement

M, N, K = dims("M N K")


def _apply(function: Callable[..., Tensor], *operands: Tensor) -> None:
    """Trace `function` of these operands (a, b); what it makes is reduced where it is Partial."""

    def one(a: Annotated[Tensor, (M, K)]) -> object:
        return function(a)

    def two(a: Annotated[Tensor, (M, K)], b: Annotated[Tensor, (M, K)]) -> object:
        return function(a, b)

    wanted = two if len(operands) == 2 else one
    wanted.__annotations__ = dict(zip("ab", operands, strict=False))
    tilelink.overlap(wanted)


def test_unknown_operation() -> None:
    with pytest.raises(UnknownOp) as caught:
        tilelink.matmull  # type: ignore[attr-defined]  # noqa: B018
    error = caught.value
    assert error.facts["name"] == "matmull"
    assert error.facts["hint"] == " Did you mean 'matmul'?"
    assert blamed_line(error, __file__).startswith("tilelink.matmull")
    for name in ("matmul", "all_gather", "reduce_scatter", "all_reduce", "tilelink.op"):
        assert name in str(error)
    assert not hasattr(tilelink, "nosuch")  # as for every missing attribute
    with pytest.raises(ImportError):
        exec("from tilelink import nosuch")


@pytest.mark.parametrize(
    ("sign", "wrong"),
    [
        ("**", lambda a: a**2),
        ("//", lambda a: a // 2),
    ],
)
def test_unknown_operator(sign: str, wrong: Callable[[Any], Tensor]) -> None:
    with pytest.raises(UnknownOp) as caught:
        _apply(wrong, Tensor(M, K))
    assert caught.value.facts["name"] == sign
    assert "Known operations: +, -, *, /, @, slices, chunk, split and the functions of tilelink" in str(caught.value)
    assert "lambda a:" in blamed_line(caught.value, __file__)


def test_matmul_dimensions() -> None:
    with pytest.raises(MatmulMismatch) as caught:
        _apply(lambda a, b: tilelink.matmul(a, b), Tensor(M, K), Tensor(N, K))
    assert caught.value.facts == {
        "left": "a",
        "left_shape": "M, K",
        "right": "b",
        "right_shape": "N, K",
        "left_k": K,
        "right_k": N,
    }
    assert "tilelink.matmul(a, b)" in blamed_line(caught.value, __file__)
    assert "Legal: the last dimension of the left operand equals the first of the right one" in str(caught.value)


def test_matmul_of_a_vector() -> None:
    with pytest.raises(BadShape) as caught:
        _apply(lambda a, b: a @ b, Tensor(M, K), Tensor(K))
    assert caught.value.facts == {"what": "matmul operand b", "rank": 1, "shape": "K", "legal": "2"}
    assert "a @ b" in blamed_line(caught.value, __file__)


_LEGAL_MATMULS = {
    (Replicate(), Replicate()),
    (Shard(0), Replicate()),
    (Replicate(), Shard(1)),
    (Shard(1), Shard(0)),
    (Partial(), Replicate()),
    (Replicate(), Partial()),
}
_PLACEMENTS = (Replicate(), Shard(0), Shard(1), Partial())


@pytest.mark.parametrize(
    ("left", "right"),
    [(a, b) for a in _PLACEMENTS for b in _PLACEMENTS if (a, b) not in _LEGAL_MATMULS],
    ids=str,
)
def test_matmul_placements(left: Placement, right: Placement) -> None:
    with pytest.raises(MatmulPlacement) as caught:
        _apply(lambda a, b: tilelink.matmul(a, b), Tensor(M, K, placement=left), Tensor(K, N, placement=right))
    assert (caught.value.facts["left_placement"], caught.value.facts["right_placement"]) == (left, right)
    assert caught.value.facts["reason"]
    for a, b in _LEGAL_MATMULS:
        assert f"{a} @ {b} ->" in str(caught.value)
    assert "tilelink.matmul(a, b)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize("collective", ["reduce_scatter", "all_reduce"])
@pytest.mark.parametrize("placement", [Replicate(), Shard(0), Shard(1)], ids=str)
def test_nothing_to_reduce(collective: str, placement: Placement) -> None:
    reduce: dict[str, Callable[[Tensor], Tensor]] = {
        "reduce_scatter": lambda a: tilelink.reduce_scatter(a, dim=0),
        "all_reduce": lambda a: tilelink.all_reduce(a),
    }
    with pytest.raises(NothingToReduce) as caught:
        _apply(reduce[collective], Tensor(M, K, placement=placement))
    assert caught.value.facts["collective"] == collective
    assert caught.value.facts["placement"] == placement
    assert f"tilelink.{collective}(a" in blamed_line(caught.value, __file__)
    advice = "all_gather" if isinstance(placement, Shard) else "use it as it is"
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("placement", "dim", "legal"),
    [
        (Replicate(), 0, "nothing, it is not sharded"),
        (Partial(), 0, "nothing, it is not sharded"),
        (Shard(1), 0, "dim=1"),
        (Shard(0), 1, "dim=0"),
    ],
    ids=str,
)
def test_nothing_to_gather(placement: Placement, dim: int, legal: str) -> None:
    with pytest.raises(NothingToGather) as caught:
        _apply(lambda a: tilelink.all_gather(a, dim=dim), Tensor(M, K, placement=placement))
    assert caught.value.facts == {"dim": dim, "tensor": "a", "placement": placement, "legal": legal}
    assert f"Legal here: {legal}." in str(caught.value)
    assert "tilelink.all_gather(a, dim=dim)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize("dim", [2, -3, "0", None])
def test_collective_along_no_dimension(dim: Any) -> None:
    with pytest.raises(BadDim) as caught:
        _apply(lambda a: tilelink.all_gather(a, dim=dim), Tensor(M, K, placement=Shard(0)))
    assert caught.value.facts["dim"] == dim
    assert "Legal dims: 0, 1." in str(caught.value)
    with pytest.raises(BadDim) as caught:
        _apply(lambda a: tilelink.reduce_scatter(a, dim=dim), Tensor(M, K, placement=Partial()))
    assert caught.value.facts["collective"] == "reduce_scatter"
    assert "tilelink.reduce_scatter(a, dim=dim)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize("right", [(N, K), (M,), (N, 1), (1, M), (M, N)], ids=str)
def test_elementwise_shapes(right: tuple[Any, ...]) -> None:
    with pytest.raises(ElementwiseMismatch) as caught:
        _apply(lambda a, b: a + b, Tensor(M, K), Tensor(*right))
    assert caught.value.facts["left_shape"] == "M, K"
    assert "equal shapes, or (M, N) with a row, (N,) or (1, N), or with a column (M, 1)" in str(caught.value)
    assert "a + b" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize(
    ("left", "right"), [(Shard(0), Shard(1)), (Replicate(), Shard(0)), (Shard(1), Replicate())], ids=str
)
def test_elementwise_placements(left: Placement, right: Placement) -> None:
    with pytest.raises(ElementwisePlacement) as caught:
        _apply(lambda a, b: tilelink.add(a, b), Tensor(M, K, placement=left), Tensor(M, K, placement=right))
    assert caught.value.facts["placements"] == f"a ({left}) and b ({right})"
    assert "Legal: equal placements" in str(caught.value)
    assert "tilelink.add(a, b)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize("function", ["silu", "gelu", "relu"])
def test_nonlinear_functions_of_summands(function: str) -> None:
    with pytest.raises(ElementwisePlacement) as caught:
        _apply(lambda a: getattr(tilelink, function)(a), Tensor(M, K, placement=Partial()))
    assert caught.value.facts["function"] == function
    assert "reduce_scatter(…, dim) or all_reduce(…)" in str(caught.value)
    assert "getattr(tilelink, function)(a)" in blamed_line(caught.value, __file__)


_OUTSIDE = Tensor(M, K)
_no_tensor: Any = 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: tilelink.relu(_no_tensor),
        lambda a: tilelink.matmul(a, _no_tensor),
        lambda a: tilelink.add(a, _OUTSIDE),
        lambda a: a + "1",
        lambda a: None + a,
        lambda a: True * a,
        lambda a: a / 1j,
        lambda a: [1.0] @ a,
        lambda a: a @ _OUTSIDE,
    ],
)
def test_operands_that_are_no_tensors_of_the_function(wrong: Callable[[Any], Tensor]) -> None:
    with pytest.raises(NotATensor) as caught:
        _apply(wrong, Tensor(M, K))
    assert blamed_line(caught.value, __file__).startswith("lambda a:")
    assert "parameters of the @tilelink.overlap function or results of tilelink operations" in str(caught.value)


def test_operations_outside_of_a_function() -> None:
    with pytest.raises(NotATensor) as caught:
        tilelink.relu(_OUTSIDE)
    assert caught.value.facts == {"what": "relu", "value": "Tensor(M, K, placement=Replicate())"}
    assert blamed_line(caught.value, __file__) == "tilelink.relu(_OUTSIDE)"


def test_tensors_of_two_functions() -> None:
    kept: list[Tensor] = []
    _apply(lambda a: kept.append(a) or tilelink.relu(a), Tensor(M, K))  # type: ignore[func-returns-value]
    with pytest.raises(NotATensor) as caught:
        _apply(lambda a: a + kept[0], Tensor(M, K))
    assert "a + kept[0]" in blamed_line(caught.value, __file__)


def test_mixed_dtypes() -> None:
    with pytest.raises(MixedDtypes) as caught:
        _apply(lambda a, b: tilelink.matmul(a, b), Tensor(M, K, dtype="bf16"), Tensor(K, N))
    assert caught.value.facts == {
        "op": "matmul",
        "left": "a",
        "left_dtype": "bf16",
        "right": "b",
        "right_dtype": "dtype of plan",
    }
    assert "Legal: equal dtypes" in str(caught.value)
    assert "tilelink.matmul(a, b)" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda a, b: a.T @ b, "@"),
        (lambda a, b: tilelink.matmul(a.T, b), "matmul"),
        (lambda a, b: a + b.T, "+"),
        (lambda a, b: b.T * a, "*"),
        (lambda a, _: tilelink.silu(a.T), "silu"),
        (lambda a, _: tilelink.reduce_scatter(a.T, 0), "reduce_scatter"),
    ],
)
def test_a_transposed_tensor_where_none_goes(function: Callable[..., Tensor], what: str) -> None:
    def two(a: Annotated[Tensor, (M, M)], b: Annotated[Tensor, (M, M)]) -> object:
        return function(a, b)

    with pytest.raises(TransposedOperand) as caught:
        tilelink.overlap(two)
    assert caught.value.facts["what"] == what
    assert "only the right operand" in str(caught.value)


def test_transposed_operands_of_other_shapes() -> None:
    def differ(a: Annotated[Tensor, (M, K)], b: Annotated[Tensor, (K, N)]) -> object:
        return a @ b.T

    def sharded(a: Annotated[Tensor, (M, K)], b: Annotated[Tensor, (N, K), Shard(1)]) -> object:
        return a @ b.T

    def row(a: Annotated[Tensor, (M, K)], b: Annotated[Tensor, (K,)]) -> object:
        return a @ b.T

    with pytest.raises(MatmulMismatch, match=r"matmul of a \[M, K\] and b.T \[N, K\]"):
        tilelink.overlap(differ)
    with pytest.raises(MatmulPlacement, match=r"b.T \(Shard\(0\)\)"):
        tilelink.overlap(sharded)
    with pytest.raises(BadShape, match="transposed tensor b"):
        tilelink.overlap(row)
