"""Rails by puts that a stream enqueues: proved, compared with torch, and what is wrong with them is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import lowering
from tests.pipeline.rail_specs import (
    SPECS,
    TARGETS,
    check_equal,
    check_held,
    check_random,
    check_refuted,
    planned_on,
    without,
)
from tests.pipeline.test_library_rails import each, machine
from tests.pipeline.test_nodes import MESHES
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.movers import StreamRails
from tilelink.ir.schedule import Schedule
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import CopyEngine, Network
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Move, Order, Step, Sync, Wait
from tilelink.schedule.walk import mapped, with_roles


def planned(name: str, mesh: tuple[int, int], pins: dict[str, str], rows: int = 24) -> Schedule:
    return planned_on(machine(*mesh), name, {"mover": "StreamRails(2)", **pins}, rows)


@pytest.mark.parametrize("chunks", ["1", "2", "3"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.quick(4)
def test_equal_to_torch(name: str, mesh: tuple[int, int], chunks: str) -> None:
    schedule = planned(name, mesh, {"chunks": chunks})
    check_equal(schedule, "StreamRails(2)", chunks)
    assert run_emulated(schedule, lowering.emit(schedule, "triton-nvshmem"), calls=3, seed=int(chunks)).equal


@pytest.mark.parametrize("other", ["Rails(2)", "LibraryRails(2)"])
@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
@pytest.mark.quick(1)
def test_beside_other_rails(mesh: tuple[int, int], other: str) -> None:
    schedule = planned("mlp", mesh, {"y_parts.mover": other})
    assert {exchange.mover.text for exchange in schedule.exchanges} == {"StreamRails(2)", other}
    assert verify(schedule).proved
    for target in TARGETS:
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=3).equal


@pytest.mark.parametrize("block", range(12))
@pytest.mark.quick(1)
def test_random_specs_and_schedules(block: int) -> None:
    check_random(
        "stream puts", range(10 * block, 10 * block + 10), MESHES, machine, lambda mover: isinstance(mover, StreamRails)
    )


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.quick(1)
def test_the_library_multiplies_what_streams_put(mesh: tuple[int, int]) -> None:
    """No program takes part: matmuls are calls, and so is all that moves."""
    ranks = mesh[0] * mesh[1]
    sizes = {"M": 24 * ranks, "K": 16 * ranks, "N": 8 * ranks}
    pins = {"mover": "StreamRails(1)", "compute": "library"}
    schedule = SPECS["ag_gemm"].plan_for(machine(*mesh), sizes, "fp32", pins)
    assert not schedule.kernels() and verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule, "triton-nvshmem"), calls=3).equal


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
def test_ranks_of_many_nodes_are_alike(name: str) -> None:
    outcome = checked(instantiated(elaborated(planned(name, (16, 4), {}, rows=8))))
    assert outcome.proved and outcome.rank_period == 1


# ---- mistakes ----------------------------------------------------------------------------------------------------------
Edit = Callable[[Steps], Steps]


def apart(step: Step) -> tuple[Step, ...]:
    """A signal by itself, which overtakes what is put before it."""
    if isinstance(step, Move) and step.notify is not None:
        return replace(step, notify=None), step.notify
    return (step,)


def on_network(change: Callable[[Step], tuple[Step, ...]]) -> Edit:
    return lambda steps: with_roles(
        steps,
        lambda _, role: (
            replace(role, phases=tuple(replace(one, body=mapped(one.body, change)) for one in role.phases))
            if isinstance(role.engine, Network)
            else role
        ),
    )


EARLY = (Wrong.EARLY_READ, Wrong.NOT_AWAITED, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY)
BUGS: dict[str, tuple[str, Edit, tuple[Wrong, ...]]] = {
    "a rail that may still read": (
        "ag_gemm",
        without(lambda one: isinstance(one, Wait) and one.signal == "done_far"),
        (Wrong.OVERWRITTEN,),
    ),
    "sums for a rail that may still read": (
        "gemm_rs",
        without(lambda one: isinstance(one, Wait) and one.signal == "done_far"),
        (Wrong.OVERWRITTEN,),
    ),
    "a signal by itself": ("ag_gemm", on_network(apart), EARLY),
    "sums that leave before they are there": (
        "gemm_rs",
        without(lambda one: isinstance(one, Wait) and one.signal.endswith("_of_node_added")),
        EARLY,
    ),
    "sums that are stored again while they are put": (
        "gemm_rs",
        without(lambda one: isinstance(one, Sync) and one.order is Order.QUIET),
        (Wrong.OVERWRITTEN,),
    ),
    "nobody is told of sums": (
        "gemm_rs",
        each(lambda one: (replace(one, notify=None),) if isinstance(one, Move) and one.notify is not None else (one,)),
        (Wrong.NEVER_RAISED,),
    ),
    "a stream that is no network": (
        "ag_gemm",
        lambda steps: with_roles(
            steps, lambda _, role: replace(role, engine=CopyEngine()) if isinstance(role.engine, Network) else role
        ),
        (Wrong.ACROSS,),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_are_refuted(bug: str) -> None:
    name, edit, kinds = BUGS[bug]
    check_refuted(planned(name, (2, 2), {"chunks": "1"}, rows=64), edit, kinds)


@pytest.mark.parametrize(("name", "beside", "held"), [("ag_gemm", 0, 2), ("gemm_rs", 2, 1)])
def test_streams_hold_sms(name: str, beside: int, held: int) -> None:
    """Each that waits for words of peers, which have the number of the call."""
    check_held(planned(name, (2, 2), {}), beside, held)
