"""Relaxed signals and the ends of launches: what a kernel raises first, and what it waits for last, is ordered by its stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.emulator import gluon_kernels
from tests.emulator import race_kernels as kernels
from tests.emulator.race_scenarios import clean, find, racy, symmetric, zeros
from tilelink.emulator import NarrowScope

if TYPE_CHECKING:
    from tests.emulator.race_scenarios import Scenario
    from tilelink.emulator import World


def told_by_the_next_kernel(before: str, scope: str = "sys") -> Scenario:
    """Rank 0 fills its buffer, and raises a relaxed signal in the kernel behind that; rank 1 acquires it and reads."""

    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64, 2)
        main = world.fabrics[0].main()
        if before == "copy":
            main.copy(buffers[0], zeros())
        elif before == "kernel":
            main.launch(kernels.fill, (1,), buffers[0], 1)
        elif before == "event":
            world.fabrics[0].stream("side").launch(kernels.fill, (1,), buffers[0], 1)
            main.after(world.fabrics[0].stream("side"))
        else:
            world.fabrics[0].stream("side").launch(kernels.fill, (1,), buffers[0], 1)
        main.launch(kernels.count, (1,), words[0], 1, SCOPE=scope)
        world.fabrics[1].main().launch(kernels.take, (1,), buffers[0], words[0], 1, zeros(), SCOPE=scope)

    return scenario


@pytest.mark.parametrize("before", ["copy", "kernel", "event"])
def test_a_relaxed_signal_tells_of_what_its_stream_did_before_the_launch(before: str) -> None:
    clean(told_by_the_next_kernel(before))


def test_but_not_of_another_stream() -> None:
    assert find(told_by_the_next_kernel("beside")) is not None


def test_nor_at_a_scope_that_ends_before_the_reader() -> None:
    assert isinstance(find(told_by_the_next_kernel("kernel", scope="gpu")), NarrowScope)


@pytest.mark.parametrize("launches", [1, 2])
def test_nor_of_what_the_same_kernel_stored(launches: int) -> None:
    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64, 2)
        for launch in range(launches):
            world.fabrics[0].main().launch(kernels.push, (1,), buffers[0], words[0], launch + 1, SEM="relaxed")
        world.fabrics[1].main().launch(kernels.take, (1,), buffers[0], words[0], launches, zeros())

    racy(scenario, "semantics")


def taken_by_the_kernel_before(behind: str) -> Scenario:
    """Rank 1 waits for a relaxed signal in one kernel, and reads what it tells of in what its stream does next."""

    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64, 2)
        world.fabrics[0].main().launch(kernels.push, (1,), buffers[0], words[0], 1)
        main, side = world.fabrics[1].main(), world.fabrics[1].stream("side")
        main.launch(kernels.await_relaxed, (1,), words[0], 1)
        match behind:
            case "kernel":
                main.launch(kernels.read, (1,), buffers[0], zeros())
            case "copy":
                main.copy(zeros(), buffers[0])
            case "event":
                side.after(main)
                side.launch(kernels.read, (1,), buffers[0], zeros())
            case _:
                side.launch(kernels.read, (1,), buffers[0], zeros())

    return scenario


@pytest.mark.parametrize("behind", ["kernel", "copy", "event"])
def test_a_relaxed_wait_orders_what_follows_the_end_of_its_kernel(behind: str) -> None:
    clean(taken_by_the_kernel_before(behind))


def test_but_not_another_stream() -> None:
    assert find(taken_by_the_kernel_before("beside")) is not None


def test_nor_what_the_same_kernel_does_next() -> None:
    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64, 2)
        world.fabrics[0].main().launch(kernels.push, (1,), buffers[0], words[0], 1)
        world.fabrics[1].main().launch(kernels.take, (1,), buffers[0], words[0], 1, zeros(), SEM="relaxed")

    racy(scenario, "semantics")


def test_groups_of_warps_are_parts_of_their_launch() -> None:
    """Each rank fills a buffer, meets the other in groups of a kernel, and reads the other's buffer in the next one."""

    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64, 2)
        for rank, fabric in enumerate(world.fabrics):
            peer = 1 - rank
            signals = words[peer][rank:], words[rank][peer:]
            fabric.main().launch(kernels.fill, (1,), buffers[rank], 1)
            fabric.main().launch(gluon_kernels.relaxed_in_groups, (1,), *signals, num_warps=4)
            fabric.main().launch(kernels.read, (1,), buffers[peer], zeros())

    clean(scenario)
