"""Gluon in the emulator: groups of warps, barriers by phase, loads that come later."""

from __future__ import annotations

import pytest
import torch
import triton.experimental.gluon.language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tests.emulator import gluon_kernels as kernels
from tests.emulator.race_scenarios import clean, find
from tilelink.emulator import World
from tilelink.emulator.errors import Deadlock, OutOfBounds
from tilelink.emulator.gluon.errors import IllegalBarrier, NotInGluon, SharedOverwritten, UnfencedSource

INT = torch.int32


def run(kernel: object, *args: object, seed: int = 0, **options: object) -> World:
    world = World(1, seed=seed)
    world.fabrics[0].main().launch(kernel, (1,), *args, num_warps=4, **options)
    world.run()
    return world


def two_groups(world: World, *, ordered: bool) -> None:
    memory, out = torch.zeros(1, dtype=INT), torch.zeros(1, dtype=INT)
    world.fabrics[0].main().launch(kernels.two_groups, (1,), memory, out, ORDERED=ordered, num_warps=4)


def test_a_barrier_orders_groups_of_warps() -> None:
    clean(lambda world: two_groups(world, ordered=True))
    assert find(lambda world: two_groups(world, ordered=False)) is not None


def test_groups_have_ended_behind_them() -> None:
    def scenario(world: World) -> None:
        memory, out = torch.zeros(2, dtype=INT), torch.zeros(1, dtype=INT)
        world.fabrics[0].main().launch(kernels.behind_groups, (1,), memory, out, num_warps=4)
        world.run()
        assert out.item() == 2

    clean(scenario)


@pytest.mark.parametrize("arrivals", range(4))
@pytest.mark.parametrize("parity", [0, 1])
def test_a_wait_passes_by_parity(arrivals: int, parity: int) -> None:
    """Also for a phase that is two behind: parity 1 passes before anything has arrived, as on the GPU."""
    out = torch.zeros(1, dtype=INT)
    if arrivals % 2 == parity:
        with pytest.raises(Deadlock, match=r"phase \d of barrier"):
            run(kernels.phases, out, ARRIVALS=arrivals, PARITY=parity)
    else:
        run(kernels.phases, out, ARRIVALS=arrivals, PARITY=parity)
        assert out.item() == 1


@pytest.mark.parametrize("waits", [True, False])
def test_a_load_comes_later(waits: bool) -> None:
    layout = gl.NVMMASharedLayout(64, 32)
    source = torch.randn(16, 16)
    seen = []
    for seed in range(6):
        out = torch.zeros(16, 16)
        try:
            run(kernels.load_tile, TensorDescriptor.from_tensor(source, [16, 16], layout), out, seed=seed, WAITS=waits)
        except OutOfBounds:  # it came when its kernel had ended
            seen.append(False)
        else:
            seen.append(torch.equal(out, source))
    assert all(seen) is waits


def test_a_barrier_that_was_not_initialised() -> None:
    with pytest.raises(IllegalBarrier, match="was not initialised"):
        run(kernels.not_initialised, torch.zeros(1, dtype=INT))


def test_a_load_onto_a_barrier_without_a_fence() -> None:
    described = TensorDescriptor.from_tensor(torch.randn(16, 16), [16, 16], gl.NVMMASharedLayout(64, 32))
    with pytest.raises(IllegalBarrier, match="without a fence"):
        run(kernels.load_tile, described, torch.zeros(16, 16), WAITS=True, FENCED=False)


def store_tiles(world: World, **left_out: bool) -> None:
    """One program stores two tiles, another one waits for its word and loads of the second."""
    memory, told = torch.zeros(32, 16), torch.zeros(1, dtype=INT)
    out = torch.zeros(1)
    layout = gl.NVMMASharedLayout(64, 32)
    flags = {"READ": True, "FREED": True, "FENCED": True, "MET": True, "PERFORMED": True, **left_out}
    world.fabrics[0].main().launch(
        kernels.store_tiles,
        (1,),
        TensorDescriptor.from_tensor(memory, [16, 16], layout),
        told=told,
        num_warps=4,
        **flags,
    )
    world.fabrics[0].stream("reads").launch(kernels.read_told, (1,), memory, told, out, num_warps=4)
    world.run()
    assert out.item() == 2
    assert memory[0].eq(1).all()


def test_stores_come_later_and_are_waited_for() -> None:
    clean(store_tiles)


def test_a_store_that_nobody_waits_for_is_a_race() -> None:
    assert find(lambda world: store_tiles(world, PERFORMED=False)) is not None


@pytest.mark.parametrize(
    ("left_out", "reason"), [("READ", "whose end nobody has waited for"), ("FREED", "the others for no barrier")]
)
def test_a_source_that_is_overwritten_too_early(left_out: str, reason: str) -> None:
    """In every run, whether the store comes late or not; one thread waits for it."""
    with pytest.raises(SharedOverwritten, match=reason):
        store_tiles(World(1, seed=0), **{left_out: False})


@pytest.mark.parametrize(
    ("left_out", "reason"), [("FENCED", "behind no fence"), ("MET", "behind a fence, but no barrier")]
)
def test_a_source_that_a_store_may_not_find(left_out: str, reason: str) -> None:
    with pytest.raises(UnfencedSource, match=reason):
        store_tiles(World(1, seed=0), **{left_out: False})


@pytest.mark.parametrize("clocks", [0, 50])
def test_who_waits_for_the_clock_is_in_no_spin(clocks: int) -> None:
    out = torch.zeros(1, dtype=INT)
    run(kernels.passes, out, CLOCKS=clocks)
    assert out.item() == 1


def test_what_is_not_emulated() -> None:
    with pytest.raises(NotInGluon, match=r"mbarrier\.invalidate"):
        run(kernels.invalidates, torch.zeros(1, dtype=INT))
