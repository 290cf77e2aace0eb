"""Nodes whose links carry no atomics, as PCIe: streams copy inside of them, and put or send between them."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.pipeline.rail_specs import SPECS, TARGETS, check_random, check_refuted, planned_on, without
from tests.pipeline.test_nodes import MESHES
from tilelink.elaborate.rails import puts_words
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.steps import Notify, Wait
from tilelink.schedule.walk import notifies, steps_in
from topologies.topology import Topology

MOVERS = ("StreamRails(2)", "LibraryRails(2)")


def machine(nodes: int, local: int) -> Topology:
    found = topologies.load("l20-pcie", nodes * local, nodes)
    assert not any(level.peer_atomics for level in found.levels[:-1])
    return found


def targets(schedule: Schedule) -> tuple[str, ...]:
    return TARGETS if puts_words(schedule) else TARGETS[:1]


@pytest.mark.parametrize("mover", MOVERS)
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.quick(4)
def test_equal_to_torch(name: str, mesh: tuple[int, int], mover: str) -> None:
    schedule = planned_on(machine(*mesh), name, {"mover": mover})
    assert {exchange.mover.text for exchange in schedule.exchanges} == {mover}
    assert verify(schedule).proved
    for target in targets(schedule):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=3).equal


@pytest.mark.parametrize("block", range(8))
@pytest.mark.quick(1)
def test_random_specs_and_schedules(block: int) -> None:
    check_random("no atomics", range(10 * block, 10 * block + 10), MESHES, machine, lambda mover: mover.crosses_nodes)


def test_no_kernel_tells_a_peer() -> None:
    """Words of peers are copied or put by streams, and set, not added to."""
    steps = instantiated(elaborated(planned_on(machine(2, 4), "gemm_ar", {"mover": "StreamRails(2)"})))
    for launch in steps.launches:
        for role in launch.roles:
            steps_of = [step for phase in role.phases for step in steps_in(phase.body)]
            told = [one for step in steps_of for one in notifies(step) if one.at != rank]
            assert role.by_host or not told
            assert all(one.to is not None for one in told)


def test_programs_that_put_need_atomics() -> None:
    with pytest.raises(NoLegalSchedule, match="tell of ends by atomics, and links of l20-pcie@2 carry none"):
        planned_on(machine(2, 2), "ag_gemm", {"mover": "Rails(1)"})


@pytest.mark.parametrize(("signal", "awaited"), [("done_far", False), ("done_far", True), ("done", True)])
def test_ends_that_nobody_tells_or_awaits_are_refuted(signal: str, awaited: bool) -> None:
    schedule = planned_on(machine(2, 2), "ag_gemm", {"mover": "StreamRails(2)"}, rows=64)
    edit = without(
        lambda one: isinstance(one, Notify | Wait) and (one.signal, isinstance(one, Wait)) == (signal, awaited)
    )
    check_refuted(schedule, edit, (Wrong.NEVER_RAISED, Wrong.OVERWRITTEN))
