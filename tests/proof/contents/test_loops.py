"""Loops that multiply are looked at as one round: what such a round cannot show is refuted all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import tilelink
from tilelink import Replicate, Tensor, dims, matmul, overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.contents.check import contents
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Compute, For, Load, Step
from tilelink.schedule.walk import mapped, with_bodies

M, N, K = dims("M N K")


@overlap
def spec(x: Tensor(M, K, placement=Replicate()), w: Tensor(K, N)):  # type: ignore[valid-type,no-untyped-def]
    return tilelink.relu(matmul(x, w))


def planned(k: int) -> Planned:
    pin = {"compute": "triton", "tile": "16x16x16/4w1s", "prefetch": "no"}
    return spec.plan("laptop-switch", 2, M=32, K=k, N=32, pin=pin)


def changed(steps: Schedule, change: Callable[[Step], tuple[Step, ...]]) -> Schedule:
    found = with_bodies(steps, lambda body: mapped(body, change))
    assert found != steps
    return found


def multiplies(step: Step) -> bool:
    return isinstance(step, For) and any(isinstance(one, Compute) and one.op == "dot" for one in step.body)


def the_same_round_twice(step: Step) -> tuple[Step, ...]:
    if not multiplies(step):
        return (step,)
    assert isinstance(step, For)
    return (replace(step, count=2, let=tuple((name, 0) for name, _ in step.let)),)


def nothing_multiplied(step: Step) -> tuple[Step, ...]:
    """Loads of the loop have no elements along k."""
    if not isinstance(step, Load) or step.result not in ("left", "right"):
        return (step,)
    none = step.region.extent[0], 0
    return (replace(step, region=replace(step.region, extent=none if step.result == "left" else none[::-1])),)


def in_each_round(step: Step) -> tuple[Step, ...]:
    """What comes behind the product is done behind each piece of it."""
    if isinstance(step, Compute) and step.op == "relu":
        return ()
    if not multiplies(step):
        return (step,)
    assert isinstance(step, For)
    product = next(one.results[0] for one in step.body if isinstance(one, Compute) and one.op == "dot")
    within = replace(step, body=(*step.body, Compute((product,), "relu", (product,))))
    return (within, Compute(("relu_out",), "copy", (product,)))


@pytest.mark.parametrize("k", [16, 48])
def test_a_right_loop_is_right(k: int) -> None:
    plan = planned(k)
    assert list(contents(instantiated(elaborated(plan)), plan.spec)) == []


@pytest.mark.parametrize(
    ("k", "change"),
    [(16, the_same_round_twice), (48, the_same_round_twice), (16, nothing_multiplied), (48, in_each_round)],
)
def test_a_wrong_loop_is_refuted(k: int, change: Callable[[Step], tuple[Step, ...]]) -> None:
    plan = planned(k)
    steps = instantiated(elaborated(plan))
    assert list(contents(changed(steps, change), plan.spec))
