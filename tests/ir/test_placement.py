"""The placement algebra as a table: what each operation makes of each placement (errors are in tests/errors)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import pytest

import tilelink
from tilelink import Partial, Replicate, Shard, Tensor, dims

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilelink.ir.placement import Placement

M, N, K = dims("M N K")
R, S0, S1, P = Replicate(), Shard(0), Shard(1), Partial()


def _placed(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """What `function` returns for parameters like `operands`."""
    found: list[Tensor] = []
    left, right = operands[0], operands[-1]

    def f(a: Annotated[Tensor, (M, K)], b: Annotated[Tensor, (M, K)]) -> object:
        found.append(function(*(a, b)[: len(operands)]))
        # an operator returns no summands
        return tilelink.all_reduce(b) if b.placement == P else tilelink.relu(b)

    f.__annotations__ = {"a": left, "b": right}
    tilelink.overlap(f)
    return found[0]


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [(R, R, R), (S0, R, S0), (R, S1, S1), (S1, S0, P), (P, R, P), (R, P, P)],
    ids=str,
)
def test_matmul(left: Placement, right: Placement, result: Placement) -> None:
    for function in (tilelink.matmul, lambda a, b: a @ b):
        out = _placed(function, Tensor(M, K, placement=left), Tensor(K, N, placement=right))
        assert (out.shape, out.placement) == ((M, N), result)


@pytest.mark.parametrize("function", [tilelink.relu, tilelink.silu, tilelink.gelu])
@pytest.mark.parametrize("placement", [R, S0, S1], ids=str)
def test_functions_of_one_tensor(function: Callable[..., Tensor], placement: Placement) -> None:
    assert _placed(function, Tensor(M, K, placement=placement)).placement == placement


@pytest.mark.parametrize("placement", [R, S0, S1], ids=str)
def test_equal_placements(placement: Placement) -> None:
    for function in (tilelink.add, tilelink.mul):
        operands = Tensor(M, K, placement=placement), Tensor(M, K, placement=placement)
        assert _placed(function, *operands).placement == placement


@pytest.mark.parametrize(
    ("matrix", "row", "row_shape", "result"),
    [
        (R, R, (K,), R),
        (S0, R, (K,), S0),
        (S1, S0, (K,), S1),  # the only dimension of the row lies under the columns
        (R, R, (1, K), R),
        (S0, R, (1, K), S0),
        (S1, S1, (1, K), S1),
    ],
    ids=str,
)
def test_rows(matrix: Placement, row: Placement, row_shape: tuple[object, ...], result: Placement) -> None:
    a, b = Tensor(M, K, placement=matrix), Tensor(*row_shape, placement=row)
    for operands in ((a, b), (b, a)):  # on either side
        out = _placed(tilelink.mul, *operands)
        assert (out.shape, out.placement) == ((M, K), result)


def test_summands() -> None:
    assert _placed(tilelink.add, Tensor(M, K, placement=P), Tensor(M, K, placement=P)).placement == P
    assert _placed(tilelink.mul, Tensor(M, K, placement=P), Tensor(M, K)).placement == P
    assert _placed(tilelink.mul, Tensor(M, K), Tensor(M, K, placement=P)).placement == P


@pytest.mark.parametrize("dim", [0, 1])
def test_collectives(dim: int) -> None:
    assert _placed(lambda a: tilelink.all_gather(a, dim=dim), Tensor(M, K, placement=Shard(dim))).placement == R
    assert _placed(lambda a: tilelink.reduce_scatter(a, dim=dim), Tensor(M, K, placement=P)).placement == Shard(dim)
    assert _placed(tilelink.all_reduce, Tensor(M, K, placement=P)).placement == R


def test_placements_print_as_they_are_written() -> None:
    for placement in (R, S0, S1, P):
        assert eval(str(placement)) == placement
        assert eval(repr(placement)) == placement
