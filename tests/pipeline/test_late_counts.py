"""Tiles that are counted when the next one is computed: emulated for both targets, planned where it pays, and what the
proof takes them for."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.workloads import STOCK_FIRST, load
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IdlePin
from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.schedule import Schedule
from tilelink.planner.cost import predict_us
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.loops import widened
from tilelink.proof.happens_before.rows import Kind
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Prefetch
from tilelink.schedule.walk import phases

GEMM_RS, GEMM_AR, AG_GEMM = load("03_gemm_rs.py:gemm_rs"), load("04_gemm_ar.py:gemm_ar"), load("02_ag_gemm.py:ag_gemm")
LATE = {"compute": "triton", "tile": "16x16x16/4w2s", "count": "late", "chunks": "2"}
RS = {**LATE, "algorithm": "direct", "transfer": "push"}
CASES = {  # on 8 SMs
    "more tiles than programs": (GEMM_RS, {**RS, "mover": "CopyEngine()"}, {"M": 128, "K": 64, "N": 48}),
    "fewer tiles than programs": (GEMM_RS, {**RS, "mover": "CopyEngine()"}, {"M": 64, "K": 32, "N": 16}),
    "programs that send": (GEMM_RS, {**RS, "mover": "CommSms(2)"}, {"M": 128, "K": 64, "N": 48}),
    "a sum behind": (GEMM_RS, {**RS, "mover": "CopyEngine()", "sum": "kernel"}, {"M": 128, "K": 64, "N": 48}),
    "all_reduce": (
        GEMM_AR,
        {**LATE, "algorithm": "two-shot", "transfer": "push", "mover": "CopyEngine()", "sum": "kernel"},
        {"M": 128, "K": 64, "N": 48},
    ),
}


def planned(name: str) -> Schedule:
    operator, pins, sizes = CASES[name]
    return operator.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", pins)


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


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick(2)
def test_chunks_are_complete_all_the_same(name: str, target: str) -> None:
    schedule = planned(name)
    assert role_of(schedule).counts_late
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=3)
    assert outcome.equal, f"{schedule}\n{outcome}"


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


@pytest.mark.slow
def test_the_planner_takes_it_where_a_program_has_several_tiles_to_count() -> None:
    topology = topologies.load("h200-nvswitch", 4)
    sizes = {"M": 8192, "K": 11008, "N": 4096}
    one_group = {"y.tile": "128x256x64/8w3s"}  # of two, one counts while the other one multiplies
    pick = GEMM_RS.plan_for(topology, sizes, "bf16", one_group)
    at_once = GEMM_RS.plan_for(topology, sizes, "bf16", {**one_group, "count": "at once"})
    assert role_of(pick).counts_late and not role_of(at_once).counts_late
    assert predict_us(pick, topology) < predict_us(at_once, topology)


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
    role, ranks = role_of(schedule), schedule.num_ranks
    rows = expanded(widened(instantiated(elaborated(schedule))), {}, 1, ranks, {}).rows
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
    operator, pins, sizes = CASES["more tiles than programs"]
    schedule = operator.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {**pins, "count": "at once"})
    assert isinstance(schedule.kernels()[0], Kernel) and "count_y" not in lowering.emit(schedule)
