"""The operators in the language of steps compute what torch computes on whole tensors, in whatever order programs run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.schedule.operators import OPERATORS, Operator
from tilelink.schedule.interpreter import Interpreter, NeverEnds
from tilelink.schedule.memory import Memory
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Notify, Step, Store, Wait
from tilelink.schedule.walk import mapped, with_bodies

Array = NDArray[np.float64]


def softmax_step(top: Array, total: Array, acc: Array, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    scores = q @ k.T
    new = np.maximum(top, scores.max(1, keepdims=True))
    weights, old = np.exp(scores - new), np.exp(top - new)
    return new, total * old + weights.sum(1, keepdims=True), acc * old + weights @ v


def softmax_merge(top: Array, total: Array, acc: Array, top2: Array, total2: Array, acc2: Array) -> tuple[Array, ...]:
    new = np.maximum(top, top2)
    old, other = np.exp(top - new), np.exp(top2 - new)
    return new, total * old + total2 * other, acc * old + acc2 * other


OPS: dict[str, Callable[..., Array | tuple[Array, ...]]] = {
    "expert_fold": lambda x, w: np.maximum(x @ w, 0) ** 2,
    "squared_relu": lambda x: np.maximum(x, 0) ** 2,
    "divided": lambda x, y: x / y,
    "softmax_step": softmax_step,
    "softmax_merge": softmax_merge,
}


def inputs_of(operator: Operator, seed: int) -> dict[str, list[torch.Tensor]]:
    """Random inputs by name, one a rank."""
    generator = torch.Generator().manual_seed(seed)
    schedule, found = operator.schedule, dict[str, list[torch.Tensor]]()
    for buffer in schedule.buffers:
        if buffer.memory is Memory.INPUT:
            shape = schedule.shapes[buffer.name]
            each = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(schedule.num_ranks)]
            found[buffer.name] = [each[0]] * len(each) if buffer.name in operator.replicated else each
    return found


def differs(operator: Operator, schedule: Schedule, calls: int, seed: int, late: Collection[str] = ()) -> bool:
    """Whether an output of a rank is not what torch gives, in one of `calls` calls with inputs of their own."""
    tables = {name: table.numpy() for name, table in operator.tables().items()}
    run = Interpreter(schedule, OPS, tables, seed, late)
    for call in range(calls):
        inputs = inputs_of(operator, seed * 100 + call)
        of_rank = [{name: each[rank].numpy() for name, each in inputs.items()} for rank in range(schedule.num_ranks)]
        names = list(inspect.signature(operator.reference).parameters)
        expected = operator.reference(*(inputs[name] for name in names))
        for outputs, right in zip(run.call(of_rank), expected, strict=True):
            (found,) = outputs.values()
            if not np.allclose(found, right.numpy().reshape(found.shape), rtol=1e-9, atol=1e-9):
                return True
    return False


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.quick(10)
def test_operators(name: str, seed: int) -> None:
    operator = OPERATORS[name]()
    assert not differs(operator, operator.schedule, 3, seed)


@pytest.mark.parametrize("ranks", [2, 4, 5])
@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "two_level_rs"])
@pytest.mark.slow
def test_any_number_of_ranks(name: str, ranks: int) -> None:
    operator = OPERATORS[name](ranks)
    assert not differs(operator, operator.schedule, 3, ranks)


def without(schedule: Schedule, kind: type, number: int) -> Schedule:
    """`schedule` without the step of a kind that stands at place `number` of them."""
    seen = [-1]

    def change(step: Step) -> tuple[Step, ...]:
        seen[0] += isinstance(step, kind)
        return () if isinstance(step, kind) and seen[0] == number else (step,)

    return with_bodies(schedule, lambda body: mapped(body, change))


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "all_reduce_ll", "ring_attention"])
def test_a_store_that_is_missing_is_seen(name: str) -> None:
    operator = OPERATORS[name]()
    schedule = without(operator.schedule, Store, 0)
    try:
        assert differs(operator, schedule, 1, 0)
    except NeverEnds:
        assert name == "all_reduce_ll"  # what is awaited there is the store itself


def test_a_notify_that_is_missing_is_a_circle() -> None:
    operator = OPERATORS["gemm_rs"]()
    with pytest.raises(NeverEnds):
        differs(operator, without(operator.schedule, Notify, 0), 1, 0)


def test_orders_show_what_a_missing_wait_allows() -> None:
    """Without the wait for parts of peers, some order of programs adds what is not there yet."""
    operator = OPERATORS["gemm_rs"]()
    schedule = without(operator.schedule, Wait, 1)
    assert any(differs(operator, schedule, 1, seed) for seed in range(5))


def test_an_index_outside_is_refused() -> None:
    operator = OPERATORS["gemm_rs"]()
    buffers = tuple(
        replace(one, shape=(2, *one.shape[1:])) if one.name == "parts" else one for one in operator.schedule.buffers
    )
    with pytest.raises(IndexError):
        differs(operator, replace(operator.schedule, buffers=buffers), 1, 0)
