"""A whole overlapped operator, as emitted: right, deterministic, fast enough, and hanging visibly when broken."""

from __future__ import annotations

import time

import pytest
import torch

from tests.emulator.ag_gemm_source import AgGemm
from tests.machine_speed import limit
from tilelink.emulator import Deadlock, Event, World
from tilelink.emulator.events import Access, Fence
from tilelink.emulator.report import TaskState

M, N, K = 256, 64, 64


class Trace:
    """An observer that keeps the order of accesses, without the addresses, which differ between runs."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def observe(self, event: Event) -> None:
        if isinstance(event, Access):
            self.lines.append(f"{event.task.rank} {event.task.name} {event.kind} {event.addresses.size}")
        elif not isinstance(event, Fence):
            self.lines.append(f"{event.task.rank} {event.task.name} {type(event).__name__}")


def emulate(world: World, by: str, calls: int = 1, **options: bool) -> None:
    """Run `calls` calls on fresh integer data, whose products are exact, and compare with torch."""
    num_ranks = len(world.fabrics)
    rows = M // num_ranks // 16 * 16
    operators = [AgGemm(fabric, by, **options) for fabric in world.fabrics]
    generator = torch.Generator().manual_seed(5)
    pairs = []
    for _ in range(calls):
        x = torch.randint(-4, 5, (num_ranks * rows, K), generator=generator).bfloat16()
        weights = [torch.randint(-4, 5, (K, N), generator=generator).bfloat16() for _ in range(num_ranks)]
        shards = torch.split(x, rows)
        for operator, shard, w in zip(operators, shards, weights, strict=True):
            pairs.append((operator(shard.contiguous(), w), (x.float() @ w.float()).bfloat16()))
    world.run()
    for out, wanted in pairs:
        assert torch.equal(out, wanted)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("by", ["copy engine", "SMs"])
@pytest.mark.quick(3)
def test_equal_to_torch_over_several_calls(num_ranks: int, by: str, seed: int) -> None:
    emulate(World(num_ranks, num_sms=5, seed=seed), by, calls=2)


@pytest.mark.parametrize("by", ["copy engine", "SMs"])
def test_switching_at_every_access_changes_nothing(by: str) -> None:
    emulate(World(2, num_sms=5, seed=3, switch_every=1), by)


def test_equal_seeds_give_equal_runs() -> None:
    traces = []
    for seed in (7, 7, 8):
        trace = Trace()
        emulate(World(2, num_sms=5, seed=seed, observers=[trace]), "SMs")
        traces.append(trace.lines)
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]
    assert len(traces[0]) > 100


def test_a_dropped_notify_is_reported_with_rank_and_line() -> None:
    with pytest.raises(Deadlock) as caught:
        emulate(World(2, num_sms=5), "SMs", drop_notify=True)
    tasks = caught.value.facts["tasks"]
    assert isinstance(tasks, tuple)
    waiting = [task for task in tasks if isinstance(task, TaskState) and task.kernel == "gemm"]
    assert {task.rank for task in waiting} == {0, 1}
    for task in waiting:
        assert f"signal[{1 - task.rank}] of rank {task.rank} (value 0)" in task.waits_for
        assert "while tl.atomic_add(signal" in task.place.text
        assert task.place.caller is not None
        assert task.place.caller.text == "wait(signal + source, current)"
    assert "ag_gemm_source.py" in str(caught.value)


@pytest.mark.slow
def test_the_spinning_gemm_may_starve_the_push() -> None:
    """With the GEMM on every SM the push kernel never starts: some order of events hangs, and is found."""
    outcomes = set()
    for seed in range(8):
        try:
            emulate(World(2, num_sms=4, seed=seed), "SMs")
            outcomes.add("passed")
        except Deadlock as hang:
            assert "a free SM" in str(hang)
            outcomes.add("hung")
    assert outcomes == {"passed", "hung"}
    emulate(World(2, num_sms=4), "copy engine")


def test_four_ranks_take_less_than_half_a_second() -> None:
    emulate(World(4, num_sms=5), "SMs")
    fastest = min(timed(seed) for seed in range(3))
    assert fastest < limit(0.5)


def timed(seed: int) -> float:
    start = time.process_time()
    emulate(World(4, num_sms=5, seed=seed), "SMs")
    return time.process_time() - start
