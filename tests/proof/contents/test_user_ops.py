"""A user's op that reads all of an axis along which it writes: only the numbers that it is given say which elements it makes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl

import tilelink
from tilelink import Schedule as Planned
from tilelink import Shard, Tensor, dims, matmul, overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.proof.contents.check import contents
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Compute, Step
from tilelink.schedule.walk import mapped, with_bodies

M, N, K = dims("M N K")
m, n = tilelink.axes("m n")
PARAMETERS = ("x", "m", "n", "num_m", "num_n", "TILE_M", "TILE_N")


@tilelink.op(reads={"x": (m, n)}, writes=(m, n), whole=(n,), reference=lambda x: torch.softmax(x, 1))
@triton.jit  # type: ignore[untyped-decorator]
def softmax(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, cols = m + tl.arange(0, TILE_M), n + tl.arange(0, TILE_N)
    return tl.load(x + rows[:, None] * num_n + cols[None, :])  # what it computes is nothing to the proof


rows, visit = tilelink.axes("rows visit")


@tilelink.op(reads={"x": (rows, visit)}, writes=(rows, visit), reference=lambda x: x + x)
@triton.jit  # type: ignore[untyped-decorator]
def doubled(x, rows, visit, num_rows, num_visit, TILE_ROWS: tl.constexpr, TILE_VISIT: tl.constexpr):  # type: ignore[no-untyped-def]
    at, cols = rows + tl.arange(0, TILE_ROWS), visit + tl.arange(0, TILE_VISIT)
    found = tl.load(
        x + at[:, None] * num_visit + cols[None, :], mask=(at < num_rows)[:, None] & (cols < num_visit)[None, :]
    )
    return found + found


@pytest.fixture(scope="module")
def planned() -> Planned:
    @overlap
    def spec(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N)):  # type: ignore[valid-type,no-untyped-def]
        return matmul(softmax(x), w)

    return spec.plan("laptop-switch", 2, M=64, K=40, N=32)


def with_another(steps: Schedule, parameter: str, by: int) -> Schedule:
    """The steps in which the op gets another number."""
    at, done = PARAMETERS.index(parameter), []

    def changed(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Compute) or step.op != "softmax":
            return (step,)
        done.append(step)
        operands = list(step.operands)
        operands[at] = operands[at] + by  # type: ignore[operator]
        return (replace(step, operands=tuple(operands)),)

    found = with_bodies(steps, lambda body: mapped(body, changed))
    assert done, "the op is among the steps"
    return found


def test_all_that_it_makes_is_found(planned: Planned) -> None:
    assert list(contents(instantiated(elaborated(planned)), planned.spec)) == []


@pytest.mark.parametrize("by", [-16, -1, 1, 16])
@pytest.mark.parametrize("parameter", ["m", "n", "num_n"])
def test_another_place_or_end_is_refuted(planned: Planned, parameter: str, by: int) -> None:
    wrong = with_another(instantiated(elaborated(planned)), parameter, by)
    assert list(contents(wrong, planned.spec))


def test_a_tile_that_ends_before_its_rows_do_is_refuted(planned: Planned) -> None:
    assert list(contents(with_another(instantiated(elaborated(planned)), "num_m", -1), planned.spec))


def test_axes_may_be_called_as_what_orders_count() -> None:
    """Names that orders make up begin with that of an axis, so that `rows` and `visit` are the user's."""

    @overlap
    def spec(x: Tensor(M, K, placement=Shard(0))):  # type: ignore[valid-type,no-untyped-def]
        return doubled(tilelink.all_gather(x, 0))

    pin = {"tile": "16x16x0/4w1s", "group": "2"}
    schedule = spec.plan("laptop-switch", 2, M=2 * 3 * 16, K=40, pin=pin)
    assert list(contents(instantiated(elaborated(schedule)), schedule.spec)) == []
