"""Waiting: across ranks, within a launch, on streams; what hangs is reported, what does not is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.emulator import kernels
from tilelink.emulator import Deadlock, StepLimit, Task, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelink.emulator.report import TaskState


def states(error: Deadlock | StepLimit) -> tuple[TaskState, ...]:
    tasks = error.facts["tasks"]
    assert isinstance(tasks, tuple)
    return tasks


def words(count: int = 1) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.int32)


@pytest.mark.parametrize("seed", range(4))
def test_ping_pong_across_ranks(seed: int) -> None:
    world = World(2, num_sms=1, seed=seed)
    logs = [words(5), words(5)]
    for fabric in world.fabrics:
        signal = fabric.symmetric((1,), torch.int32)
        peer = 1 - fabric.rank
        first = 1 - fabric.rank
        arguments = signal.local, signal.pointers, logs[fabric.rank], peer, first, 5
        fabric.main().launch(kernels.ping_pong, (1,), *arguments)
    world.run()
    assert [log.tolist() for log in logs] == [[1, 2, 3, 4, 5]] * 2


@pytest.mark.parametrize("seed", range(4))
def test_consumers_first_hang_when_they_fill_the_sms(seed: int) -> None:
    world = World(1, num_sms=4, seed=seed)
    signal, out = words(), words(4)
    world.fabrics[0].main().launch(kernels.half_wait, (8,), signal, 4, out)
    with pytest.raises(Deadlock) as caught:
        world.run()
    programs = [state for state in states(caught.value) if state.kernel]
    assert [state.program[0] for state in programs] == [0, 1, 2, 3]
    assert {state.place.function for state in programs} == {"wait"}
    assert all("signal[0] of rank 0 (value 0)" in state.waits_for for state in programs)
    stream = next(state for state in states(caught.value) if not state.kernel)
    assert "a free SM of rank 0 for program (4, 0, 0) of half_wait" in stream.waits_for
    assert "4 programs" in str(caught.value)


@pytest.mark.parametrize("any_order", [False, True])
def test_programs_that_share_an_sm_are_all_resident(any_order: bool) -> None:
    """8 programs of which 4 wait for the others fill 4 SMs if two share one."""
    world = World(1, num_sms=4, seed=1, any_residency_order=any_order)
    signal, out = words(), words(4)
    world.fabrics[0].main().launch(kernels.half_wait, (8,), signal, 4, out, per_sm=2)
    world.run()
    assert signal.item() == 4


def test_an_sm_is_not_shared_by_two_launches() -> None:
    world = World(1, num_sms=1, seed=1)
    signal, out = words(), words(2)
    fabric = world.fabrics[0]
    fabric.main().launch(kernels.wait_and_notify, (1,), signal, out, 1, per_sm=2)
    fabric.stream("side").launch(kernels.wait_and_notify, (1,), out, signal, 0)
    with pytest.raises(Deadlock):
        world.run()


@pytest.mark.parametrize("kernel", ["half_wait", "half_notify"])
def test_the_same_launch_passes_when_producers_find_sms(kernel: str) -> None:
    num_sms = 5 if kernel == "half_wait" else 1
    world = World(1, num_sms=num_sms)
    signal, out = words(), words(4)
    world.fabrics[0].main().launch(getattr(kernels, kernel), (8,), signal, 4, out)
    world.run()
    assert out.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("producer_first", [True, False])
def test_kernels_of_two_streams_share_the_sms_of_a_rank(producer_first: bool) -> None:
    class InOrder:
        def choose(self, ready: Sequence[Task]) -> int:
            return min(range(len(ready)), key=lambda index: ready[index].identity.number)

    world = World(1, num_sms=1, policy=InOrder())
    fabric, signal, out = world.fabrics[0], words(), words()
    consumer, producer = ("b", "a") if producer_first else ("a", "b")
    for name in ("a", "b"):
        if name == consumer:
            fabric.stream(name).launch(kernels.wait_twice, (1,), signal, out, 1)
        else:
            fabric.stream(producer).launch(kernels.notify, (1,), signal, 1)
    if producer_first:
        world.run()
        assert out.item() == 1
    else:
        with pytest.raises(Deadlock, match="a free SM"):
            world.run()


def test_a_successful_wait_may_be_repeated() -> None:
    world = World(1, num_sms=1)
    signal, out = torch.ones(1, dtype=torch.int32), words()
    world.fabrics[0].main().launch(kernels.wait_twice, (1,), signal, out, 5)
    world.run()
    assert out.item() == 5


@pytest.mark.parametrize("seed", range(4))
def test_a_loop_that_polls_two_words(seed: int) -> None:
    world = World(1, num_sms=4, seed=seed)
    signal, out, fabric = words(2), words(), world.fabrics[0]
    fabric.stream("poll").launch(kernels.wait_for_both, (1,), signal, out)
    fabric.stream("one").write(signal[0:1], 1)
    fabric.stream("two").launch(kernels.notify, (1,), signal[1:2], 1)
    world.run()
    assert out.item() == 1


def test_a_loop_that_polls_two_words_hangs_for_both() -> None:
    world = World(1, num_sms=4)
    signal = words(2)
    world.fabrics[0].stream("poll").launch(kernels.wait_for_both, (1,), signal, words())
    world.fabrics[0].stream("one").write(signal[0:1], 1)
    with pytest.raises(Deadlock, match=r"signal\[0\] of rank 0 \(value 1\), signal\[1\] of rank 0 \(value 0\)"):
        world.run()


@pytest.mark.parametrize("seed", range(4))
def test_lanes_that_poll_words_of_their_own(seed: int) -> None:
    world = World(1, num_sms=4, seed=seed)
    signal, out, fabric = words(3), words(), world.fabrics[0]
    fabric.stream("poll").launch(kernels.poll_words, (1,), signal, out, NUM=3, LANES=4)
    for number in range(3):
        fabric.stream(f"word {number}").write(signal[number : number + 1], 1)
    world.run()
    assert out.item() == 1


def test_lanes_that_poll_words_of_their_own_hang_for_all() -> None:
    """They sleep until one of their words is written: what the lane beyond them finds is no change."""
    world = World(1, num_sms=4)
    signal = words(4)
    world.fabrics[0].stream("poll").launch(kernels.poll_words, (1,), signal, words(), NUM=3, LANES=4)
    world.fabrics[0].stream("one").write(signal[0:1], 1)
    shown = r"words\[0\] of rank 0 \(value 1\), words\[1\] of rank 0 \(value 0\), words\[2\] of rank 0 \(value 0\)$"
    with pytest.raises(Deadlock, match=f"(?m){shown}"):
        world.run()


def test_a_capped_spin_runs_to_its_cap() -> None:
    world = World(1, num_sms=1)
    out = words()
    world.fabrics[0].main().launch(kernels.capped_spin, (1,), words(), out, 50)
    world.run()
    assert out.item() == 50


@pytest.mark.parametrize("seed", range(3))
def test_lock_and_work_queue(seed: int) -> None:
    world = World(1, num_sms=4, seed=seed, switch_every=1)
    lock, counter, tiles, taken = words(), words(2), words(), words(10)
    world.fabrics[0].main().launch(kernels.take_lock, (6,), lock, counter)
    world.fabrics[0].main().launch(kernels.take_tiles, (3,), tiles, taken, 10)
    world.run()
    assert counter.tolist() == [6, 6]
    assert tiles.item() == 13
    assert bool((taken > 0).all())


def test_a_spin_on_plain_loads_is_seen_as_well() -> None:
    world = World(1, num_sms=1)
    world.fabrics[0].main().launch(kernels.plain_spin, (1,), words(), words())
    with pytest.raises(Deadlock, match=r"flag\[0\]"):
        world.run()


@pytest.mark.parametrize("seed", range(4))
def test_loops_that_end_are_not_taken_for_spins(seed: int) -> None:
    world = World(1, num_sms=4, seed=seed)
    main, side = world.fabrics[0].main(), world.fabrics[0].stream("side")
    signal, outs = words(), words(2)
    main.launch(kernels.spin_until_own_write, (1,), words(), outs[0:1])
    main.launch(kernels.wait_in_a_work_loop, (1,), signal, outs[1:2], 5)
    side.launch(kernels.notify, (1,), signal, 1)
    world.run()
    assert outs.tolist() == [1, 5]


def test_a_loop_that_reads_nothing_is_reported() -> None:
    world = World(1, num_sms=1, step_limit=300)
    world.fabrics[0].main().launch(kernels.stuck, (1,), 1)
    with pytest.raises(Deadlock, match="reads no memory"):
        world.run()


def test_a_loop_that_only_counts_ends_at_the_step_limit() -> None:
    world = World(1, num_sms=1, step_limit=300)
    world.fabrics[0].main().launch(kernels.counts_for_ever, (1,), 1)
    with pytest.raises(StepLimit):
        world.run()


def test_a_livelock_ends_at_the_step_limit() -> None:
    world = World(1, num_sms=1, step_limit=500)
    world.fabrics[0].main().launch(kernels.endless, (1,), words())
    with pytest.raises(StepLimit) as caught:
        world.run()
    assert caught.value.facts["limit"] == 500
    assert any(state.place.function == "endless" for state in states(caught.value))


@pytest.mark.parametrize("seed", range(4))
def test_stream_operations_need_no_sm(seed: int) -> None:
    """A spinning program holds the only SM of rank 0; a write, a wait and a copy to and from a peer still run."""
    world = World(2, num_sms=1, seed=seed)
    fabric = world.fabrics[0]
    signal = fabric.symmetric((4,), torch.int32)
    out = words()
    fabric.main().launch(kernels.wait_twice, (1,), signal.local[3:4], out, 1)
    side = fabric.stream("side")
    side.write(signal.local[0:1], 1)
    side.wait_at_least(signal.local[0:1], 1)
    side.copy(signal.peers[1][0:1], signal.local[0:1])
    side.copy(signal.local[3:4], signal.peers[1][0:1])
    world.run()
    assert out.item() == 1


@pytest.mark.parametrize("busy", ["copy", "matmul", "all_reduce"])
def test_local_copies_and_library_calls_need_an_sm(busy: str) -> None:
    assert {outcome(busy, seed) for seed in range(6)} == {"passed", "hung"}


def outcome(busy: str, seed: int) -> str:
    """A spin on the only SM against a library call that its notify waits for: who comes first decides."""
    world = World(1, num_sms=1, seed=seed)
    fabric, signal, x = world.fabrics[0], words(), torch.ones(4, 4)
    side = fabric.stream("side")
    fabric.main().launch(kernels.wait_twice, (1,), signal, words(), 1)
    match busy:
        case "copy":
            side.copy(x, x.clone())
        case "matmul":
            side.matmul(torch.zeros(4, 4), x, x)
        case _:
            side.all_reduce(x)
    side.write(signal, 1)
    try:
        world.run()
    except Deadlock as hang:
        assert "a free SM of rank 0" in str(hang)
        return "hung"
    return "passed"


@pytest.mark.parametrize("seed", range(4))
def test_after_orders_streams_and_outlives_a_run(seed: int) -> None:
    world = World(1, num_sms=2, seed=seed)
    fabric, out = world.fabrics[0], words(64)
    main, side = fabric.main(), fabric.stream("side")
    for value in (3, 4):
        main.launch(kernels.fill, (1,), out, value, 64, GUARD=True)
        side.after(main)
        side.launch(kernels.count_up, (64,), out)
        main.after(side)
        main.launch(kernels.count_up, (64,), out)
        world.run()
        assert out.tolist() == [value + 2] * 64


def test_a_stream_that_waits_for_ever_is_named() -> None:
    world = World(2, num_sms=1)
    signal = [fabric.symmetric((2, 3), torch.int32) for fabric in world.fabrics]
    world.fabrics[1].stream("gather").wait_at_least(signal[1].local[1, 2:3], 7)
    with pytest.raises(Deadlock) as caught:
        world.run()
    (state,) = states(caught.value)
    assert (state.rank, state.name) == (1, "stream gather")
    assert ".wait_at_least(" in state.place.text
    assert state.waits_for == "signal[1, 2] of rank 1 (value 0) >= 7"
