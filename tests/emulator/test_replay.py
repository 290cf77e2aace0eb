"""CUDA graphs: a recording runs again with the same arguments, right for emitted operators, wrong for baked numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import lowering
import topologies
from tests.emulator import hazards
from tests.pipeline.workloads import load
from tilelink.emulator import IllegalCapture, World
from tilelink.runtime.compare import compare_call
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

PINS = [
    ("02_ag_gemm.py:ag_gemm", {"mover": "CopyEngine()", "transfer": "push"}),
    ("02_ag_gemm.py:ag_gemm", {"mover": "CommSms(2)", "transfer": "pull"}),
    ("03_gemm_rs.py:gemm_rs", {"mover": "CopyEngine()", "transfer": "pull"}),
    ("03_gemm_rs.py:gemm_rs", {"algorithm": "library", "compute": "library"}),
]


@pytest.mark.parametrize(("name", "pins"), PINS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.quick(2)
def test_an_emitted_operator_replays(name: str, pins: dict[str, str], seed: int) -> None:
    """One eager call, a capture of another, and three replays with new inputs in the captured tensors."""
    direct = {} if "algorithm" in pins else {"algorithm": "direct", "compute": "triton"}
    sizes = {"M": 96, "K": 48, "N": 96}
    schedule = load(name).plan_for(topologies.load("laptop-switch", 3), sizes, "bf16", direct | pins)
    build = operator_class(load_source(lowering.emit(schedule), schedule.name))
    world = World(3, num_sms=schedule.machine.num_sms, seed=seed)
    operators = [build(fabric) for fabric in world.fabrics]
    held = make_inputs(schedule.spec, 1)
    eager = [operator(*parts.values()) for operator, parts in zip(operators, held, strict=True)]
    world.run()
    with world.capture() as recording:
        results = [operator(*parts.values()) for operator, parts in zip(operators, held, strict=True)]
    assert not compare_call(schedule, held, [(result,) for result in eager]).differences
    for number in range(3):
        fresh = make_inputs(schedule.spec, 10 + number)
        for parts, values in zip(held, fresh, strict=True):
            for key, tensor in parts.items():
                tensor.copy_(values[key])
        for result in results:
            result.fill_(float("nan"))
        world.replay(recording)
        world.run()
        assert not compare_call(schedule, fresh, [(result,) for result in results]).differences


def replays_of_a_baked_epoch(seed: int, replays: int) -> list[list[int]]:
    """What `out` holds after each replay of x = 1; out = 2 * x + 1 with the number of the call as an argument."""
    world = World(1, num_sms=2, seed=seed)
    operator = hazards.BakedEpoch(world.fabrics[0])
    x, out = torch.ones(hazards.SIZE, dtype=torch.int32), torch.zeros(hazards.SIZE, dtype=torch.int32)
    operator(x, out)
    world.run()
    with world.capture() as recording:
        operator(x, out)
    values = []
    for _ in range(replays):
        x.fill_(1)
        world.replay(recording)
        world.run()
        values.append(sorted(set(out.tolist())))
    return values


def test_a_baked_epoch_waits_in_the_first_replay_only() -> None:
    """The second replay finds the epoch of the first, and reads before the doubling in some schedules."""
    outcomes = [replays_of_a_baked_epoch(seed, 2) for seed in range(12)]
    assert [first for first, _ in outcomes] == [[3]] * 12
    assert [2] in [second for _, second in outcomes]


def test_replays_follow_the_main_stream_and_each_other() -> None:
    """Recorded side streams begin behind what the main stream holds and end before what follows the replay."""
    for seed in range(6):
        world = World(1, num_sms=4, seed=seed)
        main, side = world.fabrics[0].main(), world.fabrics[0].stream("side")
        source, middle, target = (torch.zeros(4) for _ in range(3))
        side.copy(middle, middle)  # an eager operation shifts every position of the stream
        with world.capture() as recording:
            side.copy(middle, source)
            main.after(side)
            main.after(world.fabrics[0].stream("eager"))
        assert len(recording.operations) == 2
        for value in (1.0, 2.0):
            main.copy(source, torch.full((4,), value))
            world.replay(recording)
            main.copy(target, middle)
            world.run()
            assert target.tolist() == [value] * 4


def capture_twice(world: World) -> None:
    with world.capture(), world.capture():
        pass


def run_inside(world: World) -> None:
    with world.capture():
        world.run()


def replay_inside(world: World) -> None:
    with world.capture() as recording:
        world.replay(recording)


def replay_elsewhere(world: World) -> None:
    with World(1).capture() as recording:
        pass
    world.replay(recording)


def allocate_inside(world: World) -> None:
    with world.capture():
        world.fabrics[0].symmetric((1,), torch.int32)


def leave_a_stream(world: World) -> None:
    """Its work would run after the replay has ended; a CUDA graph refuses to be made of it."""
    word = world.fabrics[0].symmetric((1,), torch.int32).local
    with world.capture():
        main, side = world.fabrics[0].main(), world.fabrics[0].stream("side")
        side.after(main)
        side.write(word, 1)
        main.after(side)
        side.write(word, 2)


MISTAKES = [capture_twice, run_inside, replay_inside, replay_elsewhere, allocate_inside, leave_a_stream]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_illegal_captures(mistake: Callable[[World], None]) -> None:
    world = World(1)
    with pytest.raises(IllegalCapture, match="capture"):
        mistake(world)
    with world.capture():  # and a refused one leaves none open
        pass
