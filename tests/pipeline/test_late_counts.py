"""Tiles that are counted when the next one is computed: emulated for both targets, planned where it pays, and what the
proof takes them for."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
from tests.pipeline.features import of
from tests.pipeline.features import planned as row
from tests.pipeline.operators import AG_GEMM
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IdlePin
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.loops import widened
from tilelink.proof.happens_before.ranks import alone
from tilelink.proof.happens_before.rows import Kind
from tilelink.proof.verify import verify
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Prefetch
from tilelink.schedule.walk import phases


def planned(name: str) -> Schedule:
    return row(f"late counts: {name}")


def role_of(schedule: Schedule) -> ComputeRole:
    role = schedule.kernels()[0].compute
    assert role is not None
    return role


def with_role(schedule: Schedule, role: ComputeRole) -> Schedule:
    """The schedule with another role in its first kernel."""
    kernel = schedule.kernels()[0]
    changed = replace(kernel, compute=role)
    launches = tuple(changed if launch is kernel else launch for launch in schedule.launches)
    return replace(schedule, launches=launches)


def test_a_tile_is_counted_before_the_next_one_is_stored_and_the_last_behind_the_loop() -> None:
    schedule = planned("more tiles than programs")
    lines = [line.strip() for line in lowering.emit(schedule).splitlines()]
    counted = [at for at, line in enumerate(lines) if line.startswith("notify_of_y_tiles(")]
    loops = [at for at, line in enumerate(lines) if line.startswith("for tile in tl.range(")]
    stored = next(
        at for at, line in enumerate(lines) if line.startswith("y_staged + ") and lines[at - 1] == "tl.store("
    )
    assert loops[0] < counted[0] < stored < counted[1] < loops[1]
    assert "prefetched, counted behind the next one" in str(schedule)


def test_what_is_not_counted_cannot_be_counted_late() -> None:
    with pytest.raises(IdlePin, match="matmuls whose tiles are sent"):
        AG_GEMM.plan("laptop-switch", 2, M=64, K=32, N=64, pin={"count": "late", "algorithm": "direct"})


def test_a_loop_without_prefetch_does_not_count_late() -> None:
    schedule = planned("more tiles than programs")
    other = with_role(schedule, replace(role_of(schedule), prefetch=False))
    late, at_once = (
        [one.pipelining.defer for _, _, one in phases(elaborated(each)) if isinstance(one.pipelining, Prefetch)]
        for each in (schedule, other)
    )
    assert any(late) and not any(at_once)
    assert verify(other).proved


def test_the_proof_takes_counts_for_late_and_those_of_the_last_tile_for_earlier_than_own_tiles() -> None:
    schedule = planned("more tiles than programs")
    role, steps = role_of(schedule), widened(instantiated(elaborated(schedule)))
    rows = expanded(steps, {}, 1, alone(steps)).rows
    others = role.num_tiles // 2

    def orders(*kinds: Kind, name: str = "") -> dict[int, int]:
        """Where what each tile of rank 0 does of this kind stands in the order of its program."""
        mine = [one for one in rows if one.kind in kinds and one.name == name]
        return {
            int(tile): int(order)
            for one in mine
            for tile, order, rank in zip(one.tile, one.order, one.rank, strict=True)
            if rank == 0
        }

    counted, stored = orders(Kind.ADD, name="y_parts_count"), orders(Kind.WRITE, name="y_staged")
    own = orders(Kind.WAIT, name="y_parts_arrived")
    assert set(counted) == set(stored) == set(range(others))
    for tile, order in counted.items():
        assert order > stored[tile]
        assert all(order < later for one, later in own.items() if one % role.programs == tile % role.programs)
        if tile + role.programs < others:  # the next tile has begun, and is not stored yet
            assert order < stored[tile + role.programs]


def test_kernels_know_nothing_of_it_where_tiles_are_counted_at_once() -> None:
    schedule = of("late counts")["more tiles than programs"].plan(pins={"count": "at once"})
    assert isinstance(schedule.kernels()[0], Kernel) and "count_y" not in lowering.emit(schedule)
