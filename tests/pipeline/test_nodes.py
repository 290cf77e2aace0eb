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
from tests.pipeline.random_specs import random_spec
from tests.pipeline.workloads import load
from tests.schedule.judged import judged
from tests.schedule.operators import Operator
from tilelink import Shard, Tensor, dims
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.planner.sample import sample_schedule
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.flights import with_flights
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Network, Sms
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Move, Notify, Step, Wait
from tilelink.schedule.walk import mapped, with_bodies, with_phases, with_roles
from topologies.topology import Topology

M, K, N = dims("M K N")
MESHES = [(2, 2), (3, 2), (2, 4), (4, 2), (2, 1), (3, 1), (2, 3)]
ROOM = 40  # SMs, with which programs that carry out puts run beside all others


def machine(nodes: int, local: int) -> Topology:
    return topologies.load("laptop-switch", nodes * local, nodes)


@tilelink.overlap
def gathered(x: Tensor(M, K, placement=Shard(0))) -> Tensor:  # type: ignore[valid-type]
    return tilelink.all_gather(x, dim=0)


@tilelink.overlap
def both(
    x: Tensor(M, K, placement=Shard(0)),  # type: ignore[valid-type]
    w: Tensor(K, N, placement=Shard(0)),  # type: ignore[valid-type]
) -> Tensor:
    """Rows and weights, of which each tile needs all parts in its loop over k."""
    return tilelink.matmul(tilelink.all_gather(x, dim=0), tilelink.all_gather(w, dim=0))


SPECS = {"ag_gemm": load("02_ag_gemm.py:ag_gemm"), "gathered": gathered, "both": both}


def planned(name: str, mesh: tuple[int, int], pins: dict[str, str], rows: int = 24) -> Schedule:
    ranks = mesh[0] * mesh[1]
    sizes = {"M": rows * ranks, "K": 16 * ranks} | ({"N": 8 * ranks} if name != "gathered" else {})
    pins = pins | {"mover": "Rails()"} | ({"compute": "triton"} if name != "gathered" else {})
    return SPECS[name].plan_for(machine(*mesh), sizes, "fp32", pins)


@pytest.mark.parametrize("chunks", ["1", "2", "3"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.quick(4)
def test_equal_to_torch(name: str, mesh: tuple[int, int], chunks: str) -> None:
    schedule = planned(name, mesh, {"chunks": chunks})
    assert {exchange.mover.text for exchange in schedule.exchanges} == {"Rails()"}
    proof = verify(schedule)
    assert proof.proved, proof.lines()
    for target in ("triton", "triton-distributed") if chunks == "2" else ("triton",):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=3, seed=int(chunks)).equal


@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
@pytest.mark.quick(1)
def test_whenever_puts_land(mesh: tuple[int, int]) -> None:
    steps = with_own_names(instantiated(elaborated(planned("ag_gemm", mesh, {"chunks": "2", "tile": "16x16x16/4w2s"}))))
    operator = Operator(with_flights(steps), lambda x, w: [torch.cat(x) @ one for one in w])
    assert judged(operator, range(8), ROOM) == "right"


# ---- mistakes ----------------------------------------------------------------------------------------------------------


def without(wanted: Callable[[Step], bool]) -> Callable[[Steps], Steps]:
    return lambda steps: with_bodies(steps, lambda body: mapped(body, lambda one: () if wanted(one) else (one,)))


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


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_are_refuted(bug: str) -> None:
    steps = instantiated(elaborated(planned("ag_gemm", (2, 2), {"chunks": "2"})))
    edit, kinds = BUGS[bug]
    changed = edit(steps)
    assert changed != steps
    refutation = checked(changed).refutation
    assert refutation is not None and refutation.wrong in kinds, str(refutation)


# ---- what is legal -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "pins", "reason"),
    [
        (2, {"mover": "CopyEngine()"}, "Legal mover: Rails"),
        (2, {"mover": "Rails()", "nest": "chunk by chunk"}, "node by node"),
        (2, {"mover": "Rails()", "transfer": "pull"}, "pushed by their owner"),
        (2, {"mover": "Rails()", "compute": "library"}, "no tile loop"),
        (None, {"mover": "Rails()"}, "Legal mover: Fused"),
    ],
)
def test_why_not(nodes: int | None, pins: dict[str, str], reason: str) -> None:
    with pytest.raises((IllegalPin, NoLegalSchedule), match=reason):
        SPECS["ag_gemm"].plan_for(
            topologies.load("laptop-switch", 4, nodes), {"M": 256, "K": 64, "N": 64}, "fp32", pins
        )


def test_only_gathers_cross_nodes_by_chunks() -> None:
    rs = load("03_gemm_rs.py:gemm_rs")
    with pytest.raises((IllegalPin, NoLegalSchedule), match="Legal algorithm: library"):
        rs.plan_for(machine(2, 2), {"M": 256, "K": 64, "N": 64}, "fp32", {"algorithm": "direct"})
    assert not rs.plan_for(machine(2, 2), {"M": 256, "K": 64, "N": 64}, "fp32").exchanges


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
