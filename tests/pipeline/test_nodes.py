"""Planned schedules over several nodes: chunks go along rails. All of them are proved under the weakest promises of a network,
and compared with torch, whenever puts land."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import lowering
import tilelink
import topologies
from lowering.steps.renaming import with_own_names
from tests.pipeline import user_ops
from tests.pipeline.rail_specs import SPECS, K, M, check_equal, check_refuted, planned_on, without
from tests.pipeline.random_specs import random_spec
from tests.pipeline.workloads import load
from tests.schedule.judged import judged
from tests.schedule.operators import Operator
from tilelink import Shard, Tensor
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.planner.sample import sample_schedule
from tilelink.proof.happens_before.flights import with_flights
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Network, Sms
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Compute, For, Move, Notify, Step, Sync, Wait
from tilelink.schedule.walk import mapped, with_bodies, with_phases, with_roles
from topologies.topology import Topology

MESHES = [(2, 2), (3, 2), (2, 4), (4, 2), (2, 1), (3, 1), (2, 3)]
ROOM = 40  # SMs, with which programs that carry out puts run beside all others


def machine(nodes: int, local: int) -> Topology:
    return topologies.load("laptop-switch", nodes * local, nodes)


def planned(name: str, mesh: tuple[int, int], pins: dict[str, str], rows: int = 24) -> Schedule:
    return planned_on(machine(*mesh), name, {"mover": "Rails(2)", **pins}, rows)


@pytest.mark.parametrize("chunks", ["1", "2", "3"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.quick(4)
def test_equal_to_torch(name: str, mesh: tuple[int, int], chunks: str) -> None:
    check_equal(planned(name, mesh, {"chunks": chunks}), "Rails(2)", chunks)


@pytest.mark.parametrize("place", ["epilogue", "kernel"])
@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
@pytest.mark.quick(1)
def test_sums_in_each_place(mesh: tuple[int, int], place: str) -> None:
    schedule = planned("gemm_rs", mesh, {"chunks": "2", "sum": place})
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=3).equal


@tilelink.overlap
def by_row(x: Tensor(M, K, placement=Shard(0))) -> Tensor:  # type: ignore[valid-type]
    return user_ops.OPS["by_position"](tilelink.all_gather(tilelink.silu(x), dim=0))


@pytest.mark.parametrize("mesh", [(2, 1), (2, 2), (3, 2)], ids=str)
@pytest.mark.parametrize("mover", ["Rails(1)", "StreamRails(1)", "LibraryRails(2)"])
def test_what_tiles_make_is_put_before_it_is_copied(mesh: tuple[int, int], mover: str) -> None:
    """Readers want the own part among the others, where it is copied when all of it is made. That is not what is put."""
    topology = machine(*mesh)
    roomy = replace(topology, gpu=replace(topology.gpu, num_sms=24))
    sizes = {"M": 20 * roomy.num_ranks, "K": 16}
    schedule = by_row.plan_for(roomy, sizes, "fp32", {"mover": mover})
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=3).equal


REFERENCES: dict[str, Callable[..., list[torch.Tensor]]] = {
    "ag_gemm": lambda x, w: [torch.cat(x) @ one for one in w],
    "gemm_rs": lambda x, w: list(sum(a @ b for a, b in zip(x, w, strict=True)).chunk(len(x))),
}


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
@pytest.mark.quick(1)
def test_whenever_puts_land(mesh: tuple[int, int], name: str) -> None:
    pins = {"chunks": "2", "tile": "16x16x16/4w2s"} | ({"sum": "epilogue"} if name == "gemm_rs" else {})
    steps = with_own_names(instantiated(elaborated(planned(name, mesh, pins))))
    operator = Operator(with_flights(steps), REFERENCES[name])
    assert judged(operator, range(8), ROOM) == "right"


# ---- mistakes ----------------------------------------------------------------------------------------------------------


def to_own_node(steps: Steps) -> Steps:
    """Puts go to a rank of this node."""
    there = rank // 2 * 2 + (rank + 1) % 2

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Move) and step.notify is not None:
            (target,) = step.target
            return (Move(step.source, (replace(target, at=there),), replace(step.notify, at=there)),)
        return (step,)

    return with_bodies(steps, lambda body: mapped(body, change))


def by_sms(steps: Steps) -> Steps:
    """As if the memory of other nodes were mapped."""
    return with_roles(
        steps, lambda _, role: replace(role, engine=Sms(1, 4)) if isinstance(role.engine, Network) else role
    )


def past_the_rail(steps: Steps) -> Steps:
    """Copies on a stream reach other nodes."""

    other = (rank + 2) % 4

    def to_all(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Move) and step.notify is None:
            return (replace(step, target=(replace(step.target[0], at=other),)),)
        return (step,)

    return with_phases(
        steps, lambda role, phase: replace(phase, body=mapped(phase.body, to_all)) if "copy" in role.name else phase
    )


BUGS: dict[str, tuple[Callable[[Steps], Steps], tuple[Wrong, ...]]] = {
    "a rail that may still read": (
        without(lambda one: isinstance(one, Wait) and one.signal == "done_far"),
        (Wrong.OVERWRITTEN,),
    ),
    "chunks handed on before they have come": (
        without(lambda one: isinstance(one, Wait) and one.signal == "x_full_arrived" and "owner" in str(one.index)),
        (Wrong.EARLY_READ, Wrong.TOLD_EARLY, Wrong.OVERWRITTEN),
    ),
    "rails that are told of no end": (
        without(lambda one: isinstance(one, Notify) and one.signal == "done_far"),
        (Wrong.NEVER_RAISED,),
    ),
    "a signal by itself": (
        lambda steps: with_bodies(
            steps,
            lambda body: mapped(
                body,
                lambda one: (replace(one, notify=None), one.notify) if isinstance(one, Move) and one.notify else (one,),
            ),
        ),
        (Wrong.EARLY_READ, Wrong.TOLD_EARLY),
    ),
    "puts inside of the node": (to_own_node, (Wrong.NEVER_RAISED, Wrong.OVERWRITTEN, Wrong.EARLY_READ)),
    "stores to another node": (by_sms, (Wrong.ACROSS,)),
    "copies to another node": (past_the_rail, (Wrong.ACROSS,)),
}


OF_SUMS: dict[str, tuple[Callable[[Steps], Steps], tuple[Wrong, ...]]] = {
    "a sum that does not wait for the node": (
        without(lambda one: isinstance(one, Wait) and "part" in str(one.index) and "segment" not in str(one.index)),
        (Wrong.EARLY_READ, Wrong.NOT_AWAITED, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY),
    ),
    "a sum that is stored again while it is put": (
        without(lambda one: isinstance(one, Sync)),
        (Wrong.OVERWRITTEN,),
    ),
    "a rail that may still read": (
        without(lambda one: isinstance(one, Wait) and one.signal == "done_far"),
        (Wrong.OVERWRITTEN,),
    ),
    "tiles that do not wait for other nodes": (
        without(lambda one: isinstance(one, Wait) and "segment" in str(one.index)),
        (Wrong.EARLY_READ, Wrong.NOT_AWAITED, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY),
    ),
    "stores to another node": (by_sms, (Wrong.ACROSS,)),
}


@pytest.mark.parametrize(("name", "bug"), [*(("ag_gemm", bug) for bug in BUGS), *(("gemm_rs", bug) for bug in OF_SUMS)])
def test_mistakes_are_refuted(name: str, bug: str) -> None:
    edit, kinds = (BUGS if name == "ag_gemm" else OF_SUMS)[bug]
    check_refuted(planned(name, (2, 2), {"chunks": "2"}), edit, kinds)


def test_a_sum_that_leaves_out_a_rank_is_no_value_of_the_spec() -> None:
    schedule = planned("gemm_rs", (2, 4), {})

    def fewer(step: Step) -> tuple[Step, ...]:
        adds = isinstance(step, For) and step.count == 3 and any(isinstance(one, Compute) for one in step.body)
        return (replace(step, count=2),) if adds and isinstance(step, For) else (step,)

    steps = with_bodies(instantiated(elaborated(schedule)), lambda body: mapped(body, fewer))
    assert any("is added 0 times" in finding.fact for finding in verify(schedule, steps).findings)


# ---- what is legal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "pins", "reason"),
    [
        (2, {"mover": "CopyEngine()"}, "Legal mover: Rails"),
        (2, {"mover": "Rails(1)", "nest": "chunk by chunk"}, "Legal nest: rank by rank"),
        (2, {"mover": "Rails(1)", "transfer": "pull"}, "pushed by their owner"),
        (2, {"mover": "Rails(1)", "compute": "library"}, "no tile loop"),
        (None, {"mover": "Rails(1)"}, "Legal mover: Fused"),
    ],
)
def test_why_not(nodes: int | None, pins: dict[str, str], reason: str) -> None:
    with pytest.raises((IllegalPin, NoLegalSchedule), match=reason):
        SPECS["ag_gemm"].plan_for(
            topologies.load("laptop-switch", 4, nodes), {"M": 256, "K": 64, "N": 64}, "fp32", pins
        )


def test_one_shot_does_not_cross_nodes() -> None:
    ar = load("04_gemm_ar.py:gemm_ar")
    with pytest.raises((IllegalPin, NoLegalSchedule), match="two-shot"):
        ar.plan_for(machine(2, 2), {"M": 256, "K": 64, "N": 64}, "fp32", {"algorithm": "one-shot"})


# ---- random ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(16))
@pytest.mark.quick(1)
def test_random_specs_and_schedules(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        rng = random.Random(seed)
        mesh = rng.choice(MESHES)
        schedule = sample_schedule(random_spec(rng, mesh[0] * mesh[1]), machine(*mesh), rng)
        assert verify(schedule).proved, f"seed {seed}"
        result = run_emulated(schedule, lowering.emit(schedule), calls=2, seed=seed)
        assert result.equal, f"seed {seed}: {result.lines()}\n{schedule}"
