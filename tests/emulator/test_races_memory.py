"""What the race detector remembers: as much as it needs, and of memory that is used again nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.emulator import race_kernels as kernels
from tests.emulator.ag_gemm_source import AgGemm
from tests.emulator.race_scenarios import symmetric, zeros
from tilelink.emulator import Race, World
from tilelink.emulator.races import RaceDetector, checker

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The detector compacts its shadow as soon as it has so many states."""
    bound = 40
    monkeypatch.setattr(checker, "_LEAST_BOUND", bound)
    yield bound


class Exchange:
    """Rank 0 pushes to rank 1, which reads and frees the buffer."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.buffers, self.words = symmetric(world, 64, 2)
        self.calls = 0

    def call(self, waits: bool = True) -> None:
        """Without `waits` rank 0 does not wait until the buffer is free."""
        self.calls += 1
        there, done = (self.buffers[1], self.words[1], self.calls), self.words[0][1:]
        main = self.world.fabrics[0].main()
        if waits:
            main.launch(kernels.wait_and_push, (1,), *there, done)
        else:
            main.launch(kernels.push, (1,), *there)
        self.world.fabrics[1].main().launch(kernels.take_and_free, (1,), *there, zeros(), done)


@pytest.mark.parametrize("bound", [40, 1 << 14])
def test_states_and_slots_stay_bounded_over_many_calls(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_LEAST_BOUND", bound)
    detector = RaceDetector(2)
    world = World(2, seed=1, observers=[detector])
    exchange = Exchange(world)
    for _ in range(120):
        exchange.call()
    world.run()
    assert detector.slots <= 8
    if bound == 40:
        assert detector.states < 5 * bound
    else:
        assert detector.states > 500, "so many states come about: the small bound tests something"


@pytest.mark.slow
def test_a_race_is_found_after_many_compactions(small_bound: int) -> None:
    for seed in range(4):
        world = World(2, seed=seed, observers=[RaceDetector(2)])
        exchange = Exchange(world)
        for call in range(64):
            exchange.call(waits=call < 60)
        with pytest.raises(Race) as caught:
            world.run()
        assert caught.value.first.what.startswith("buffer[")


def test_no_false_race_after_compactions(small_bound: int) -> None:
    for by in ("copy engine", "SMs"):
        world = World(3, seed=2, num_sms=8, observers=[RaceDetector(3)])
        operators = [AgGemm(fabric, by) for fabric in world.fabrics]
        for _ in range(2):
            for operator in operators:
                operator(torch.ones(80, 64, dtype=torch.bfloat16), torch.ones(64, 64, dtype=torch.bfloat16))
        world.run()


def test_freed_outputs_are_no_race_with_what_lies_there_later() -> None:
    """Between two runs the host frees tensors and makes others at the same addresses, in which other streams and ranks
    write."""
    places = [bytearray(64 * 4) for _ in range(4)]
    world = World(2, observers=[RaceDetector(2)])
    addresses = set()
    for call in range(6):
        for rank, fabric in enumerate(world.fabrics):
            # each is a storage of its own, as an allocator hands it out
            first, second = (2 * rank + 2 * call) % 4, (2 * rank + 2 * call + 1) % 4
            out, half = (torch.frombuffer(places[place], dtype=torch.int32) for place in (first, second))
            addresses |= {out.data_ptr(), half.data_ptr()}
            fabric.stream(f"{call + rank}").launch(kernels.fill, (1,), out, 1)
            fabric.stream(f"{call + rank + 1}").copy(half, zeros(64))
        world.run()
        del out, half
    assert len(addresses) == 4


def test_tensors_that_two_launches_share_are_checked_while_either_runs() -> None:
    """A tensor is lent by each launch; between them nothing has it."""
    world = World(1, observers=[RaceDetector(1)])
    main, side, x, counts = world.fabrics[0].main(), world.fabrics[0].stream("side"), zeros(), zeros(2)
    main.launch(kernels.fill, (1,), x, 1)
    main.copy(zeros(), zeros())
    side.launch(kernels.push, (1,), zeros(), counts, 1, SEM="relaxed")
    side.wait_at_least(counts[:1], 1)
    side.launch(kernels.fill, (1,), x, 2)
    with pytest.raises(Race):
        world.run()


def test_views_and_chunks_of_one_tensor_share_a_shadow() -> None:
    """Chunks are copied one by one and then read whole by a kernel, which knows the tensor under its name."""
    world = World(1, observers=[RaceDetector(1)])
    main, side, x = world.fabrics[0].main(), world.fabrics[0].stream("side"), zeros(64)
    for start in range(0, 64, 16):
        side.copy(x[start : start + 16], zeros(16))
    main.after(side)
    main.launch(kernels.read, (1,), x, zeros())
    side.copy(x[16:24], zeros(8))
    with pytest.raises(Race) as caught:
        world.run()
    first, second = caught.value.first, caught.value.second
    assert {first.what, second.what} == {"x[16] of rank 0"}
