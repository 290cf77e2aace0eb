"""Matmuls by the library, chunk by chunk, of slices: each call takes rows and columns of the window that is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import tilelink
import topologies
from tests.proof.planted import refuted
from tilelink import Partial, Shard, Tensor, dims
from tilelink.declaration import Overlap
from tilelink.ir.calls import LibraryOp
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.steps import Call, Step

M, K, N = dims("M K N")


@tilelink.overlap
def of_rows(x: Tensor(2 * M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))) -> Tensor:  # type: ignore[valid-type]
    return tilelink.reduce_scatter(x[M:] @ w, dim=0)


@tilelink.overlap
def of_columns(x: Tensor(M, 2 * K, placement=Partial()), w: Tensor(K, N)) -> Tensor:  # type: ignore[valid-type]
    return tilelink.reduce_scatter(x[:, K:] @ w, dim=0)


def planned(spec: Overlap, **pins: str) -> Schedule:
    sizes = {"M": 24, "K": 16, "N": 32}
    chosen = {"compute": "library", "mover": "CopyEngine()", "chunks": "2", **pins}
    return spec.plan_for(topologies.load("laptop-switch", 2), sizes, "fp32", chosen)


@pytest.mark.parametrize("spec", [of_rows, of_columns], ids=lambda spec: spec.spec.name)
def test_chunks_of_a_slice(spec: Overlap) -> None:
    schedule = planned(spec)
    assert any(isinstance(one, LibraryOp) and one.split for one in schedule.launches)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=3).equal


@pytest.mark.parametrize("dim", [0, 1])
def test_those_of_the_whole_are_refuted(dim: int) -> None:
    """As if the slice began where the tensor does."""

    def from_the_first(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Call) and step.function == "matmul":
            left, *others = step.operands
            start = tuple(one - (24, 16)[dim] if place == dim else one for place, one in enumerate(left.start))
            return (replace(step, operands=(replace(left, start=start), *others)),)
        return (step,)

    assert refuted(planned((of_rows, of_columns)[dim]), from_the_first)
