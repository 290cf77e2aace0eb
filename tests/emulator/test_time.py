"""Time of the emulation: to wait for it costs a few steps however long it takes, and no deadline passes while others work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.emulator import clock_kernels as kernels
from tilelink.emulator import Deadlock, World
from tilelink.emulator.policies import policy_by_name

PAUSES = ("in_test", "in_body", "by_sum", "in_microseconds", "by_pauses")
POLICIES = ("random:1", "pct:1:3", "oldest", "newest", "producers-last")


def clocks(count: int = 1) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int64)


def word() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32)


def launched(world: World, kernel: Any, *arguments: object, stream: str = "main", **options: object) -> None:
    world.fabrics[0].stream(stream).launch(kernel, (1,), *arguments, **options)


@pytest.mark.parametrize("form", PAUSES)
@pytest.mark.parametrize("asked", [1, 700, 1_000_000, 30_000_000_000])
def test_a_pause_takes_few_steps_and_not_twice_as_long(form: str, asked: int) -> None:
    world, out = World(1, num_sms=1), clocks()
    launched(world, getattr(kernels, f"pause_{form}"), out, CLOCKS=asked)
    world.run()
    assert asked <= out.item() <= 2 * asked + 4000
    assert world.steps < 1500


def test_a_pause_that_counts_takes_more_steps() -> None:
    world, out = World(1, num_sms=1), clocks()
    launched(world, kernels.pause_and_count, out, CLOCKS=1_000_000)
    world.run()
    assert out.item() >= 1_000_000
    assert world.steps < 2000


@pytest.mark.parametrize("policy", POLICIES)
def test_no_deadline_passes_while_another_task_can_go_on(policy: str) -> None:
    """The word is raised after 10 ms of the emulation; the deadline is later by half as much again, or sooner."""
    found = []
    for deadline in (1 << 30, 1_000):
        world, signal, out = World(1, num_sms=2, policy=policy_by_name(policy)), word(), word()
        launched(world, kernels.await_until, signal, out, CLOCKS=deadline)
        launched(world, kernels.raise_late, signal, CLOCKS=10_000_000, stream="side")
        world.run()
        found.append(out.item())
        assert world.steps < 500
    assert found == [1, 2]


def test_a_deadline_passes_where_nobody_comes() -> None:
    world, out = World(1, num_sms=1), word()
    launched(world, kernels.await_until, word(), out, CLOCKS=1 << 34)
    world.run()
    assert out.item() == 2
    assert world.steps < 500


def test_who_looks_at_the_clock_and_has_no_deadline_hangs() -> None:
    world = World(1, num_sms=1)
    launched(world, kernels.await_and_look, word(), clocks())
    with pytest.raises(Deadlock, match=r"a change of word\[0\]"):
        world.run()
    assert world.steps < 1000


def test_rounds_of_work_take_the_time_of_their_steps() -> None:
    world, out = World(1, num_sms=1), clocks()
    launched(world, kernels.work_by_the_clock, torch.randn(16), out, ROUNDS=60)
    world.run()
    assert 0 < out.item() < 2000


def test_time_goes_on_from_run_to_run() -> None:
    world, out = World(1, num_sms=1), clocks()
    launched(world, kernels.pause_in_test, out, CLOCKS=1_000_000)
    world.run()
    before = world.machine.scheduler.time
    launched(world, kernels.pause_in_test, out, CLOCKS=1)
    world.run()
    assert world.machine.scheduler.time > before >= 1_000_000
