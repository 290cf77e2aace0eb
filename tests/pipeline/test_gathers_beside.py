"""Gathers by packets that follow each other are one launch, in which each has programs of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.expert_specs import SPECS
from tests.pipeline.workloads import STOCK_FIRST
from tilelink import Shard, Tensor, all_gather, dims, matmul, overlap
from tilelink.elaborate.packets import Blocks
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.calls import PacketCollective, SortRows
from tilelink.ir.schedule import Schedule
from tilelink.planner.cost import predict_us
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated

M, N, K, L = dims("M N K L")
PACKETS = {f"{name}.protocol": "ll" for name in ("rows_value", "weights_full", "ids_full")}


@overlap
def three_gathers(
    x: Tensor(M, K, placement=Shard(0)),  # type: ignore[valid-type]
    y: Tensor(M, L, placement=Shard(0)),  # type: ignore[valid-type]
    v: Tensor(K, N),  # type: ignore[valid-type]
    w: Tensor(L, N),  # type: ignore[valid-type]
) -> Tensor:
    return matmul(all_gather(x, dim=0), v) + matmul(all_gather(y, dim=0), w)


@overlap
def gathered_again(
    x: Tensor(M, K, placement=Shard(0)),  # type: ignore[valid-type]
    w: Tensor(K, N, placement=Shard(1)),  # type: ignore[valid-type]
) -> Tensor:
    return all_gather(matmul(all_gather(x, dim=0), w), dim=1)


def layer(ranks: int, **sizes: int) -> Schedule:
    machine = topologies.load("laptop-switch", ranks)
    return SPECS["ep_layer"].plan_for(
        machine, {"H": 48, "F": 96, "E": 2 * ranks, "K": 3, **sizes}, "bf16", dict(PACKETS)
    )


def gathers(schedule: Schedule) -> list[PacketCollective]:
    return [one for one in schedule.launches if isinstance(one, PacketCollective)]


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize(
    ("ranks", "sizes"),
    [
        (2, {"T": 2}),
        (2, {"T": 24}),
        (3, {"T": 33, "K": 5}),
        (4, {"T": 64, "H": 40, "K": 1}),
        (4, {"T": 64, "H": 88, "K": 1}),
        (8, {"T": 40, "E": 13}),
    ],
    ids=str,
)
@pytest.mark.slow
def test_results_are_those_of_the_definition(ranks: int, sizes: dict[str, int], target: str) -> None:
    schedule = layer(ranks, **sizes)
    first, *others = gathers(schedule)
    assert not first.beside and len(others) == 2 and all(one.beside for one in others)
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=5)
    assert outcome.equal, "\n".join(outcome.lines())


def test_one_launch_has_a_role_for_each_and_the_index_program_comes_behind() -> None:
    schedule = layer(2, T=24)
    launch = next(one for one in elaborated(schedule).launches if one.roles[0].name == "rows_value")
    assert [role.name for role in launch.roles] == ["rows_value", "ids_full", "weights_full"]
    assert len({(role.engine.warps, role.engine.per_sm) for role in launch.roles}) == 1  # type: ignore[union-attr]
    kinds = [type(one) for one in schedule.launches]
    assert kinds.index(SortRows) == 3 and kinds[:3] == [PacketCollective] * 3


@pytest.mark.parametrize("sizes", [{"T": 2}, {"T": 16}, {"T": 64, "K": 1}, {"T": 500, "K": 7}, {"T": 96, "H": 4096}])
def test_all_blocks_are_on_their_way_at_once_and_each_thread_has_a_packet(sizes: dict[str, int]) -> None:
    machine = topologies.load("h200-nvswitch", 2)
    schedule = SPECS["ep_layer"].plan_for(
        machine, {"H": 2048, "F": 768, "E": 64, "K": 8, **sizes}, "bf16", dict(PACKETS)
    )
    runs = [one for one in gathers(schedule) if not one.beside]
    for run in map(schedule.one_launch, runs):
        if len(run) > 1:
            assert all(one.programs * one.block >= one.packets for one in run)
            assert sum(one.programs for one in run) <= run[0].per_sm * machine.gpu.num_sms
            assert len({Blocks(schedule, one).warps for one in run}) == 1


def test_too_many_blocks_stay_apart() -> None:
    """A row of 1,024 columns has 512 packets, its ids have one."""
    machine = topologies.load("h200-nvswitch", 2)
    sizes = {"T": 2048, "H": 1024, "F": 64, "E": 64, "K": 1}
    schedule = SPECS["ep_layer"].plan_for(machine, sizes, "bf16", dict(PACKETS))
    (rows,) = [one for one in gathers(schedule) if one.out == "rows_value"]
    assert len(schedule.one_launch(rows)) == 1


def test_gathers_of_other_specs_go_together_too() -> None:
    machine = topologies.load("laptop-switch", 2)
    schedule = three_gathers.plan_for(machine, {"M": 32, "K": 64, "L": 96, "N": 64}, "bf16", {"protocol": "lamport"})
    (run,) = [schedule.one_launch(one) for one in gathers(schedule) if not one.beside]
    assert [one.operand for one in run] == ["x", "y"] and verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=5).equal


def test_a_gather_of_what_is_made_of_another_one_is_a_launch_of_its_own() -> None:
    machine = topologies.load("laptop-switch", 2)
    schedule = gathered_again.plan_for(machine, {"M": 32, "K": 64, "N": 64}, "bf16", {"protocol": "lamport"})
    assert not any(one.beside for one in gathers(schedule))


def test_programs_that_do_not_fit_are_refuted() -> None:
    schedule = layer(2, T=24)
    many = replace(gathers(schedule)[0], programs=schedule.machine.num_sms)
    launches = tuple(many if one is gathers(schedule)[0] else one for one in schedule.launches)
    assert BugClass.RESIDENCY in {one.bug for one in verify(replace(schedule, launches=launches)).findings}


def test_a_gather_beside_one_that_makes_what_it_sends_is_refuted() -> None:
    schedule = layer(2, T=24)
    rows, ids, _ = gathers(schedule)
    launches = tuple(replace(one, operand=rows.out) if one is ids else one for one in schedule.launches)
    assert not verify(replace(schedule, launches=launches)).proved


def test_what_a_call_takes_less() -> None:
    """Two launches and two times to a peer."""
    machine = topologies.load("h200-nvswitch", 2)
    sizes = {"T": 16, "H": 2048, "F": 768, "E": 128, "K": 8}
    schedule = SPECS["ep_layer"].plan_for(machine, sizes, "bf16", dict(PACKETS))
    apart = tuple(replace(one, beside=False) if isinstance(one, PacketCollective) else one for one in schedule.launches)
    assert 3.0 < predict_us(replace(schedule, launches=apart), machine) - schedule.predicted_us < 8.0
