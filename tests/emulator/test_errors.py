"""One error class for each mistake; facts rather than prose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from tests.emulator import kernels, race_kernels
from tilelink import emulator
from tilelink.emulator import EmulationError, Event, World

if TYPE_CHECKING:
    from collections.abc import Callable

INT = torch.int32


def overrun(at: int, guard: bool = False) -> None:
    """Rank 1 fills 64 elements of a symmetric buffer of 40, from element `at`."""
    world = World(2)
    for fabric in world.fabrics:
        slots = fabric.symmetric((40,), INT)
        if fabric.rank == 1:
            fabric.main().launch(kernels.fill, (1,), slots.local[at:], 1, 40, GUARD=guard)
    world.run()


def mismatched_allocation() -> None:
    first, second = World(2).fabrics
    first.symmetric((4,), INT)
    second.symmetric((8,), INT)


def run(kernel: object, *args: object, **options: object) -> None:
    world = World(1, step_limit=300)
    world.fabrics[0].main().launch(kernel, (1,), *args, **options)
    world.run()


def mismatched_collectives() -> None:
    world = World(2)
    world.fabrics[0].main().all_reduce(torch.ones(2, 2))
    world.fabrics[1].main().all_gather(torch.ones(4, 2), torch.ones(2, 2))
    world.run()


def write_two_words() -> None:
    World(1).fabrics[0].main().write(torch.zeros(2, dtype=INT), 1)


def wait_for_another_rank() -> None:
    first, second = World(2).fabrics
    first.main().after(second.main())


def run_while_running() -> None:
    class Nested:
        def observe(self, event: Event) -> None:
            inner = World(1)
            inner.fabrics[0].main().all_reduce(torch.ones(1, 1))
            inner.run()

    world = World(1, observers=[Nested()])
    world.fabrics[0].main().launch(kernels.fill, (1,), torch.zeros(64, dtype=INT), 1, 64, GUARD=True)
    world.run()


def capture_twice() -> None:
    world = World(1)
    with world.capture(), world.capture():
        pass


def allocate_behind_work() -> None:
    fabric = World(1).fabrics[0]
    fabric.main().write(torch.zeros(1, dtype=INT), 1)
    fabric.symmetric((1,), INT)


def notify_over_a_link_without_atomics() -> None:
    world = World(2, peer_atomics=False)
    fabric = world.fabrics[0]
    fabric.main().launch(kernels.notify, (1,), fabric.symmetric((1,), INT).peers[1], 1)
    world.run()


def unordered_streams() -> None:
    world = World(1, observers=[emulator.RaceDetector(1)])
    x = torch.zeros(64, dtype=INT)
    for name in ("one", "other"):
        world.fabrics[0].stream(name).launch(kernels.fill, (1,), x, 1, 64, GUARD=False)
    world.run()


def count_at_gpu_scope_across_ranks() -> None:
    world = World(2, observers=[emulator.RaceDetector(2)])
    word = world.fabrics[0].symmetric((1,), INT)
    world.fabrics[1].symmetric((1,), INT)
    for fabric in world.fabrics:
        fabric.main().launch(race_kernels.count, (1,), word.local, 1, SCOPE="gpu")
    world.run()


def main_stream() -> emulator.EmulatedStream:
    return World(2, num_sms=4).fabrics[0].main()


def attend_to_parts_of_heads() -> None:
    x = torch.ones(4, 8)
    main_stream().attention(torch.ones(4, 8), x, x, x, sequences=1, width=3, scale=1.0)


MISTAKES: dict[str, Callable[[], object]] = {
    "OutOfBounds": lambda: overrun(0),
    "SymmetricMismatch": mismatched_allocation,
    "KernelError": lambda: run(kernels.fails, torch.zeros(64)),
    "UnknownInlineAsm": lambda: run(kernels.unknown_asm, torch.zeros(1, dtype=INT)),
    "Deadlock": lambda: run(kernels.wait, torch.zeros(1, dtype=INT), 1),
    "StepLimit": lambda: run(kernels.endless, torch.zeros(1, dtype=INT)),
    "CollectiveMismatch": mismatched_collectives,
    "BadCollective": lambda: main_stream().all_gather(torch.ones(3, 2), torch.ones(2, 2)),
    "IllegalCopy": lambda: main_stream().copy(torch.ones(4), torch.ones(5)),
    "IllegalWord": write_two_words,
    "IllegalAttention": attend_to_parts_of_heads,
    "IllegalMatmul": lambda: main_stream().matmul(torch.ones(2, 2), torch.ones(2, 3), torch.ones(2, 3)),
    "IllegalLaunch": lambda: main_stream().launch(kernels.notify, (1,), torch.ones(1), 1, num_warp=8),
    "IllegalWorld": lambda: World(2, num_sms=0),
    "ForeignStream": wait_for_another_rank,
    "IllegalCapture": capture_twice,
    "LateSetup": allocate_behind_work,
    "Race": unordered_streams,
    "NarrowScope": count_at_gpu_scope_across_ranks,
    "NoPeerAtomics": notify_over_a_link_without_atomics,
    "UnknownPolicy": lambda: emulator.policy_by_name("fair"),
    "WorldBusy": run_while_running,
}


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_has_its_class(name: str) -> None:
    with pytest.raises(EmulationError) as caught:
        MISTAKES[name]()
    assert type(caught.value).__name__ == name
    assert "{" not in type(caught.value)(**caught.value.facts).args[0].replace("{}", "")


def test_every_class_is_raised() -> None:
    classes = {
        name
        for name in emulator.__all__
        if isinstance(getattr(emulator, name), type) and issubclass(getattr(emulator, name), EmulationError)
    }
    assert classes - {"EmulationError"} == set(MISTAKES)


@pytest.mark.parametrize("at", [0, 8])
def test_out_of_bounds_names_buffer_rank_and_line(at: int) -> None:
    with pytest.raises(emulator.OutOfBounds) as caught:
        overrun(at)
    facts = caught.value.facts
    assert (facts["rank"], facts["task"], facts["access"]) == (1, "fill(0, 0, 0)", "plain store")
    assert "1 elements behind the last one of slots[40] of rank 1" in str(facts["nearest"])
    assert "kernels.py" in str(facts["place"])


def test_masked_lanes_may_lie_outside() -> None:
    overrun(0, guard=True)


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        (lambda stream: stream.launch(len, (1,)), "not a @triton.jit function"),
        (lambda stream: stream.launch(kernels.notify, (1,), torch.ones(1)), "missing a required argument"),
        (lambda stream: stream.launch(kernels.notify, (1, -1), torch.ones(1), 1), "not a grid"),
        (lambda stream: stream.launch(kernels.notify, (), torch.ones(1), 1), "not a grid"),
        (
            lambda stream: stream.launch(kernels.notify, (5,), torch.ones(1), 1, launch_cooperative_grid=True),
            "5 cooperative programs are never resident at once",
        ),
    ],
)
def test_illegal_launches(launch: Callable[[emulator.EmulatedStream], None], reason: str) -> None:
    with pytest.raises(emulator.IllegalLaunch) as caught:
        launch(main_stream())
    assert reason in str(caught.value.facts["reason"])


def test_a_kernel_error_keeps_its_cause_and_line() -> None:
    with pytest.raises(emulator.KernelError) as caught:
        run(kernels.fails, torch.zeros(64))
    assert caught.value.__cause__ is not None
    assert "tl.arange(0, HALF)" in caught.value.facts["place"].text  # type: ignore[attr-defined]


def test_a_world_that_failed_fails_again() -> None:
    world = World(1)
    world.fabrics[0].main().launch(kernels.wait, (1,), torch.zeros(1, dtype=INT), 1)
    for _ in range(2):
        with pytest.raises(emulator.Deadlock):
            world.run()
