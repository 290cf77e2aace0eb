"""Rails by send and receive of a library: proved, compared with torch, and what is wrong with them is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import lowering
import topologies
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
from tests.pipeline.test_nodes import MESHES
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.movers import LibraryRails
from tilelink.ir.schedule import Schedule
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import Index, Number
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Host
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import SEND_RECEIVE, Call, Notify, Step, Wait
from tilelink.schedule.walk import mapped, with_bodies, with_roles
from topologies.topology import Topology

SMS = 40  # with which adders and calls of the library run beside tiles of every loop


def machine(nodes: int, local: int, sms: int = SMS) -> Topology:
    found = topologies.load("laptop-switch", nodes * local, nodes)
    return replace(found, gpu=replace(found.gpu, num_sms=sms))


def planned(name: str, mesh: tuple[int, int], pins: dict[str, str], rows: int = 24) -> Schedule:
    return planned_on(machine(*mesh), name, {"mover": "LibraryRails(2)", **pins}, rows)


@pytest.mark.parametrize("chunks", ["1", "2", "3"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.quick(4)
def test_equal_to_torch(name: str, mesh: tuple[int, int], chunks: str) -> None:
    check_equal(planned(name, mesh, {"chunks": chunks}), "LibraryRails(2)", chunks)


@pytest.mark.parametrize("first", ["Rails(2)", "LibraryRails(2)"])
@pytest.mark.parametrize("mesh", MESHES[:3], ids=str)
@pytest.mark.quick(1)
def test_beside_puts(mesh: tuple[int, int], first: str) -> None:
    last = "LibraryRails(4)" if first == "Rails(2)" else "Rails(2)"
    schedule = planned("mlp", mesh, {"x_full.mover": first, "y_parts.mover": last, "mover": first})
    assert len({exchange.mover for exchange in schedule.exchanges}) == 2
    assert verify(schedule).proved
    for target in TARGETS:
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=3).equal


@pytest.mark.parametrize("block", range(12))
@pytest.mark.quick(1)
def test_random_specs_and_schedules(block: int) -> None:
    check_random(
        "sends", range(10 * block, 10 * block + 10), MESHES, machine, lambda mover: isinstance(mover, LibraryRails)
    )


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
def test_ranks_of_many_nodes_are_alike(name: str) -> None:
    outcome = checked(instantiated(elaborated(planned(name, (16, 4), {}, rows=8))))
    assert outcome.proved and outcome.rank_period == 1


def test_streams_wait_for_calls_alone() -> None:
    """No word of another node is raised, so that no schedule needs more of a network than the library."""
    steps = instantiated(elaborated(planned("gemm_rs", (2, 2), {})))
    assert not any(one.name == "done_far" for one in steps.signals)
    source = lowering.emit(planned("gemm_rs", (2, 2), {}))
    assert "HostsFabric()" in source and "nvshmem" not in source


def test_channels_are_a_power_of_two() -> None:
    assert [LibraryRails(number).library_sms for number in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 4, 4, 8, 8, 16]
    schedule = planned("ag_gemm", (2, 2), {"mover": "LibraryRails(3)"})
    assert "sms=4" in lowering.emit(schedule)


# ---- mistakes ----------------------------------------------------------------------------------------------------------
Edit = Callable[[Steps], Steps]


def each(change: Callable[[Step], tuple[Step, ...]]) -> Edit:
    return lambda steps: with_bodies(steps, lambda body: mapped(body, change))


def meeting(change: Callable[[Call], Step]) -> Edit:
    return each(lambda one: (change(one),) if isinstance(one, Call) and one.function == SEND_RECEIVE else (one,))


def ranks(to: Callable[[Number], Number], source: Callable[[Number], Number]) -> Edit:
    return meeting(lambda one: replace(one, numbers=(to(one.numbers[0]), source(one.numbers[1]))))


def beside(one: Number) -> Number:
    """The other rank of the node of a rank, where a node has two."""
    return one // 2 * 2 + (one + 1) % 2


def before_the_call(steps: Steps) -> Steps:
    """Chunks are told of before they are received."""

    def turned(body: tuple[Step, ...]) -> tuple[Step, ...]:
        at = next((at for at, one in enumerate(body) if isinstance(one, Call) and one.function == SEND_RECEIVE), -1)
        return body if at < 0 else (*body[:at], body[at + 1], body[at], *body[at + 2 :])

    return with_bodies(steps, turned)


def on_no_sms(steps: Steps) -> Steps:
    return with_roles(steps, lambda _, role: replace(role, engine=Host(2)) if role.name.endswith("_rails") else role)


BUGS: dict[str, tuple[str, Edit, tuple[Wrong, ...]]] = {
    "a chunk is told of before it is there": (
        "ag_gemm",
        before_the_call,
        (Wrong.EARLY_READ, Wrong.TOLD_EARLY, Wrong.OVERWRITTEN),
    ),
    "a rank receives from one that sends to another": (
        "ag_gemm",
        ranks(lambda to: to, beside),
        (Wrong.NEVER_RAISED, Wrong.CIRCLE),
    ),
    "a rank sends to one that receives from another": (
        "gemm_rs",
        ranks(beside, lambda source: source),
        (Wrong.NEVER_RAISED, Wrong.CIRCLE),
    ),
    "sums leave before they are there": (
        "gemm_rs",
        without(lambda one: isinstance(one, Wait) and one.signal.endswith("_of_node_added")),
        (Wrong.EARLY_READ, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY),
    ),
    "sums leave when the first strip is there": (
        "gemm_rs",
        each(
            lambda one: (
                (replace(one, until=Index("call")),)
                if isinstance(one, Wait) and one.signal.endswith("_of_node_added")
                else (one,)
            )
        ),
        (Wrong.EARLY_READ, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY),
    ),
    "tiles do not wait for sums of other nodes": (
        "gemm_rs",
        without(lambda one: isinstance(one, Wait) and one.signal.endswith("_far")),
        (Wrong.EARLY_READ, Wrong.NOT_AWAITED, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY),
    ),
    "nobody is told of what is received": (
        "ag_gemm",
        without(lambda one: isinstance(one, Notify) and one.signal == "x_full_arrived" and "owner" in str(one.index)),
        (Wrong.NEVER_RAISED,),
    ),
    "two programs send": ("ag_gemm", on_no_sms, (Wrong.MALFORMED,)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_are_refuted(bug: str) -> None:
    name, edit, kinds = BUGS[bug]
    check_refuted(planned(name, (2, 2), {"chunks": "1"}, rows=64), edit, kinds)


def test_what_another_rank_has_sent_is_no_value_of_the_spec() -> None:
    """The right ranks meet, and each sends what is another one's."""
    schedule = planned("ag_gemm", (3, 1), {})

    def other(one: Call) -> Step:
        (come,) = one.results
        return replace(one, results=(replace(come, start=((come.start[0] + 1) % 3, *come.start[1:])),))

    steps = meeting(other)(instantiated(elaborated(schedule)))
    assert not verify(schedule, steps).proved


@pytest.mark.parametrize(("name", "beside", "held"), [("ag_gemm", 0, 3), ("gemm_rs", 2, 2)])
def test_a_library_without_sms_waits_for_ever(name: str, beside: int, held: int) -> None:
    """Calls hold two SMs beside programs, and a stream holds one that waits for words of peers."""
    check_held(planned(name, (2, 2), {}), beside, held)
