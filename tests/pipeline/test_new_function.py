"""A new elementwise function by the recipe of docs/design.md: a row, and the name that users call it by."""

from __future__ import annotations

import pytest
import torch

import lowering
from tilelink import Shard, Tensor, dims, matmul, overlap, reduce_scatter
from tilelink.declaration import Overlap
from tilelink.errors import ElementwisePlacement
from tilelink.ir.ops.elementwise import FUNCTIONS, Elementwise, Function
from tilelink.ir.tensor import record
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
ABS = Function("tl.abs({0})", lambda x: x.abs(), "torch.abs({0})")
LARGER = Function("tl.maximum({0}, {1})", lambda x, y: x.maximum(y), "torch.maximum({0}, {1})")


def absolute(x: Tensor) -> Tensor:
    """What a line of `tilelink.ir.functions` is."""
    return record(Elementwise("abs"), (x,), "abs")


def larger(x: Tensor, y: Tensor) -> Tensor:
    return x.elementwise("larger", y, "larger")


def spec() -> Overlap:
    @overlap
    def distances(
        x: Tensor(M, K, placement=Shard(1)),  # type: ignore[valid-type]
        w: Tensor(K, N, placement=Shard(0)),  # type: ignore[valid-type]
        least: Tensor(N),  # type: ignore[valid-type]
    ) -> object:
        y = reduce_scatter(matmul(x, w), dim=0)
        return larger(absolute(y), least)

    return distances


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "abs", ABS)
    monkeypatch.setitem(FUNCTIONS, "larger", LARGER)


def test_a_row_is_planned_printed_and_run() -> None:
    schedule = spec().plan("laptop-switch", 2, M=32, K=32, N=32)
    source = lowering.emit(schedule)
    assert "tl.abs(" in source and "torch.abs(x0)" in source and "torch.maximum(x0, x1)" in source
    assert run_emulated(schedule, source, calls=2).equal


def test_torch_calls_it_so_too() -> None:
    @overlap
    def distances(x: Tensor(M, N, placement=Shard(0))) -> object:  # type: ignore[valid-type]
        return torch.abs(x)

    assert [node.operation for node in distances.spec.nodes] == [Elementwise("abs")]


def test_summands_do_not_pass_what_is_not_declared_linear() -> None:
    with pytest.raises(ElementwisePlacement, match="not linear"):

        @overlap
        def wrong(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))) -> object:  # type: ignore[valid-type]
            return reduce_scatter(absolute(matmul(x, w)), dim=0)

        assert wrong.spec


def test_a_wrong_text_is_not_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FUNCTIONS, "abs", Function("tl.maximum({0}, 0.0)", ABS.meaning, "torch.relu({0})"))
    schedule = spec().plan("laptop-switch", 2, M=32, K=32, N=32)
    assert not run_emulated(schedule, lowering.emit(schedule)).equal
