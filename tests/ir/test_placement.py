"""The placement algebra as a table: what each operation makes of each placement (errors are in tests/errors)."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Any

import pytest
import torch
import torch.distributed.tensor as dtensor

import tilelink
from tilelink import Partial, Replicate, Shard, Tensor, dims
from tilelink.errors import ElementwisePlacement

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


@pytest.mark.parametrize(
    ("matrix", "column", "result"),
    [(R, R, R), (S0, S0, S0), (S0, R, None), (S1, R, S1), (S1, S0, None), (R, S0, None)],
    ids=str,
)
def test_columns(matrix: Placement, column: Placement, result: Placement | None) -> None:
    a, b = Tensor(M, K, placement=matrix), Tensor(M, 1, placement=column)
    for operands in ((a, b), (b, a)):
        if result is None:
            with pytest.raises(ElementwisePlacement):
                _placed(tilelink.div, *operands)
        else:
            out = _placed(tilelink.div, *operands)
            assert (out.shape, out.placement) == ((M, K), result)


def test_a_column_and_a_row() -> None:
    out = _placed(tilelink.mul, Tensor(M, 1, placement=S0), Tensor(1, K))
    assert (out.shape, out.placement) == ((M, K), S0)


@pytest.mark.parametrize(
    "linear",
    [
        lambda a: -a,
        lambda a: a * 2,
        lambda a: 2 * a,
        lambda a: a / 3,
        lambda a: a - a,
        lambda a: a + a / M,
        tilelink.neg,
    ],
)
def test_what_summands_stay_summands_of(linear: Callable[..., Tensor]) -> None:
    assert _placed(linear, Tensor(M, K, placement=P)).placement == P


@pytest.mark.parametrize("scale", [(M, K), (M, 1), (K,), (1, 1)])
def test_summands_and_what_every_rank_has(scale: tuple[Any, ...]) -> None:
    for function in (tilelink.mul, tilelink.div):
        assert _placed(function, Tensor(M, K, placement=P), Tensor(*scale)).placement == P


def test_slices_keep_placements() -> None:
    for placement, dim in ((R, 0), (R, 1), (S0, 1), (S1, 0), (P, 0), (P, 1)):
        shape = (M / 2, K) if dim == 0 else (M, K / 2)
        out = _placed(lambda a, dim=dim: a.chunk(2, dim)[1], Tensor(M, K, placement=placement))
        assert (out.shape, out.placement) == (shape, placement)
    whole = _placed(lambda a: a[:, : a.shape[1]], Tensor(M, K, placement=S1))
    assert (whole.name, whole.placement) == ("a", S1)  # all of it is nothing new


def test_dimensions_from_the_last_one_on() -> None:
    assert Tensor(M, K, placement=Shard(-1)).placement == S1
    assert Tensor(K, placement=Shard(-1)).placement == S0
    assert _placed(lambda a: tilelink.all_gather(a, dim=-1), Tensor(M, K, placement=S1)).placement == R
    assert _placed(lambda a: tilelink.reduce_scatter(a, dim=-2), Tensor(M, K, placement=P)).placement == S0


def test_placements_and_dtypes_of_torch() -> None:
    for theirs, ours in (
        (dtensor.Replicate(), R),
        (dtensor.Shard(0), S0),
        (dtensor.Shard(-1), S1),
        (dtensor.Partial(), P),
        ([dtensor.Shard(1)], S1),  # as of a mesh with one dimension
    ):
        assert Tensor(M, K, placement=theirs).placement == ours
    for theirs_too, named in (
        (torch.bfloat16, "bf16"),
        (torch.float16, "fp16"),
        (torch.float32, "fp32"),
        ("float32", "fp32"),
    ):
        assert Tensor(M, K, dtype=theirs_too).dtype == named

    def ours_(a: Annotated[Tensor, (M, K), Shard(0), "bf16"], b: Tensor(M, 1, placement=Shard(0), dtype="bf16")):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.relu(a) * b

    def theirs_(  # type: ignore[no-untyped-def]
        a: Annotated[Tensor, (M, K), dtensor.Shard(0), torch.bfloat16],
        b: Tensor(M, 1, placement=dtensor.Shard(-2), dtype=torch.bfloat16),  # type: ignore[valid-type]
    ):
        return torch.relu(a) * b  # type: ignore[arg-type]

    plans = [
        tilelink.overlap(function).plan("laptop-switch", 2, dtype=dtype, M=16, K=16)
        for function, dtype in ((ours_, "bf16"), (theirs_, torch.bfloat16))
    ]
    assert [x.buffers for x in plans[:1]] == [x.buffers for x in plans[1:]]
    assert plans[0].spec.inputs == plans[1].spec.inputs


@pytest.mark.slow
def test_who_imports_tilelink_imports_no_distributed_tensors() -> None:
    code = (
        "import sys, tilelink; assert not [name for name in sys.modules if name.startswith('torch.distributed.tensor')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
