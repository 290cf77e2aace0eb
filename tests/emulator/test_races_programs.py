"""Inside of one program, between its bytes and its lanes: what is a race there and what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.emulator import race_kernels as kernels
from tests.emulator.race_scenarios import INT, clean, racy, zeros

if TYPE_CHECKING:
    from tests.emulator.race_scenarios import Scenario
    from tilelink.emulator import World


def test_program_order_of_one_agent_is_no_race() -> None:
    def scenario(world: World) -> None:
        world.fabrics[0].main().launch(kernels.use_scratch, (1,), zeros(1), zeros())

    clean(scenario)


@pytest.mark.parametrize("barrier", [True, False])
def test_threads_of_a_program_are_ordered_by_barriers(barrier: bool) -> None:
    def scenario(world: World) -> None:
        args = zeros(), zeros()
        world.fabrics[0].main().launch(kernels.store_then_read_back, (1,), *args, BARRIER=barrier)

    if barrier:
        clean(scenario)
    else:
        racy(scenario, "cta_barriers")


def test_a_block_of_one_element_is_no_scalar() -> None:
    def store(first: bool, second: bool) -> Scenario:
        def scenario(world: World) -> None:
            args = zeros(1), first, second
            world.fabrics[0].main().launch(kernels.store_twice, (1,), *args)

        return scenario

    clean(store(True, False))
    clean(store(False, True))
    racy(store(True, True), "cta_barriers")


def test_neighbouring_bytes_are_no_race() -> None:
    """Cells get as small as what is accessed."""

    def scenario(world: World, same: bool = False) -> None:
        x = zeros(64)
        for stream in ("even", "odd"):
            offset = 1 if stream == "odd" or same else 0
            world.fabrics[0].stream(stream).launch(kernels.narrow, (1,), x, offset)

    clean(scenario)
    racy(lambda world: scenario(world, same=True))


def test_lanes_release_into_the_buffers_of_several_ranks() -> None:
    def scenario(world: World, wait_for: int = 7) -> None:
        fabrics = world.fabrics
        signals = [fabric.symmetric((1,), INT) for fabric in fabrics]
        buffers = [fabric.symmetric((64,), INT) for fabric in fabrics]
        main = fabrics[0].main()
        main.launch(kernels.fill, (1,), buffers[1].local, 3)
        main.launch(kernels.raise_lanes, (1,), signals[0].pointers, 7, COUNT=2)
        there = buffers[1].local, signals[1].local
        fabrics[1].main().launch(kernels.take, (1,), *there, wait_for, zeros())

    clean(scenario)
    race = racy(lambda world: scenario(world, wait_for=0))
    assert race.first.what == "buffers[0] of rank 1"
