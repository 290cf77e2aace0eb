"""Pieces of a spec: what shares no decision, and what they add up to."""

from __future__ import annotations

from typing import Annotated

import pytest

import tilelink
import topologies
from benchmarks.planning import stack
from tests.planner.grid import chain, head
from tests.planner.operators import ag_gemm, gemm_ar, mlp
from tilelink import Overlap, Shard, Tensor, dims
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.collectives import collective_names
from tilelink.planner.pieces import pieces

M, H, F, N, K = dims("M H F N K")
SIZES = {"M": 512, "H": 256, "F": 384, "N": 512, "K": 256}


@tilelink.overlap
def with_residual(
    x: Annotated[Tensor, (M, H), Shard(0)],
    up: Annotated[Tensor, (H, F), Shard(1)],
    down: Annotated[Tensor, (F, H), Shard(0)],
) -> Tensor:
    """The sum runs in the loop that adds parts, and reads an input."""
    hidden = tilelink.matmul(tilelink.all_gather(x, dim=0), up)
    return tilelink.reduce_scatter(tilelink.matmul(hidden, down), dim=0) + x


def parts(operator: Overlap) -> tuple[BoundSpec, ...]:
    return pieces(bind(operator.spec, {name: SIZES[name] for name in operator.spec.symbols()}, 4, "bf16"))


def test_one_piece() -> None:
    """A collective joins the tiles that make what it sends and those that read what it brings."""
    for operator in (ag_gemm, gemm_ar, chain, head):
        (whole,) = parts(operator)
        assert whole.name == operator.name and len(whole.nodes) == len(operator.spec.nodes)


def test_between_matmuls() -> None:
    first, second = parts(mlp)
    assert [value.name for value in first.inputs] == ["x", "w_gate", "w_up"] and len(first.outputs) == 1
    assert first.outputs[0] in [value.name for value in second.inputs]
    assert [len(collective_names(part)) for part in (first, second)] == [1, 1]
    assert [len(collective_names(part)) for part in parts(stack)] == [1, 2, 1]
    assert [len(part.nodes) for part in parts(with_residual)] == [2, 3]


def test_each_value_is_made_once() -> None:
    for operator in (mlp, stack, with_residual):
        (whole, found) = (operator.spec, parts(operator))
        made = [node.output.name for part in found for node in part.nodes]
        assert sorted(made) == sorted(node.output.name for node in whole.nodes)
        given = {value.name for value in whole.inputs}
        for part in found:
            assert {value.name for value in part.inputs} <= given
            given |= set(part.outputs)
        assert set(whole.outputs) <= given


@pytest.mark.slow
def test_the_whole_has_the_choices_of_its_pieces() -> None:
    """Where no kind of mover changes how calls end."""
    machine = topologies.load("h200-nvswitch", 4)
    pins = {"mover": "CopyEngine()", "transfer": "push", "algorithm": "direct", "compute": "triton"}
    schedule = stack.plan_for(machine, {"M": 8192, "H": 4096, "F": 14336}, pin=pins)
    assert {type(exchange.mover).__name__ for exchange in schedule.exchanges} == {"CopyEngine"}
    assert len(schedule.exchanges) == 4
