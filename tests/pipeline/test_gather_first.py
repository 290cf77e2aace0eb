"""Gathers by words that programs of a kernel do before their tiles: emulated for both targets, proved, refuted where they
must be, legal where a tile loop reads what is gathered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import lowering
import topologies
from tests.adversary.bugs import edited, verdict
from tests.pipeline.features import of
from tests.pipeline.operators import AG_GEMM
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.calls import PacketCollective
from tilelink.ir.nodes import AwaitPeers
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated

if TYPE_CHECKING:
    from tilelink.ir.schedule import Schedule

CASES = of("gather first")


def planned(name: str, **pins: str) -> Schedule:
    return CASES[name].plan(pins=pins)


def gather(schedule: Schedule) -> PacketCollective:
    return next(x for x in schedule.launches if isinstance(x, PacketCollective))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.quick(2)
def test_it_is_done_by_all_programs_of_the_kernel(name: str) -> None:
    schedule = planned(name)
    found = gather(schedule)
    (kernel,) = (one for one in schedule.kernels() if any(x is found for x in schedule.within(one)))
    assert found.within and found.programs == schedule.grid(kernel) and found.block == 32 * kernel.warps


def test_one_launch_fewer() -> None:
    by_launch = AG_GEMM.plan_for(
        topologies.load("laptop-switch", 4), CASES["all data"].sizes, "bf16", {"algorithm": "lamport"}
    )
    for schedule, launches in ((planned("all data"), 1), (by_launch, 2)):
        assert lowering.emit(schedule).split("def enqueue")[1].split("def ")[0].count("main.launch(") == launches


def changed(schedule: Schedule, **fields: Any) -> Schedule:
    there = gather(schedule)
    return replace(schedule, launches=tuple(replace(x, **fields) if x is there else x for x in schedule.launches))


@pytest.mark.parametrize(
    ("fields", "bug"),
    [
        ({"programs": 1}, BugClass.WAIT_TOO_LITTLE),
        ({"operand": "w"}, BugClass.WRONG_PLACE),
        ({"block": 96}, BugClass.STALE_SIGNAL),  # fewer packets than threads
    ],
    ids=str,
)
def test_what_the_proof_refutes(fields: dict[str, object], bug: BugClass) -> None:
    schedule = planned("several blocks a program")
    assert verify(schedule).proved
    assert bug in [finding.bug for finding in verify(changed(schedule, **fields)).findings]


@pytest.mark.parametrize("fields", [{"within": False}, {"block": 256}], ids=str)
@pytest.mark.slow
def test_what_is_right_too(fields: dict[str, object]) -> None:
    """A launch of its own, and other blocks."""
    schedule = planned("several blocks a program")
    other = changed(schedule, **fields)
    assert elaborated(other) != elaborated(schedule)
    assert verify(other).proved
    assert run_emulated(other, lowering.emit(other), calls=3).equal


def test_its_kernel_stands_behind_it_and_fits() -> None:
    schedule = planned("all data")
    behind = replace(schedule, launches=schedule.launches[::-1])
    assert any("read that nothing has written in this call" in finding.fact for finding in verify(behind).findings)
    small = replace(schedule, machine=replace(schedule.machine, num_sms=1))
    assert BugClass.RESIDENCY in [finding.bug for finding in verify(small).findings]


@pytest.mark.slow
def test_other_things_come_first_in_the_same_kernel() -> None:
    """Peers may be awaited by the same programs, in either order."""
    schedule = planned("behind a wait for peers")
    kernel = next(one for one in schedule.kernels() if gather(schedule) in schedule.within(one))
    at = schedule.launches.index(kernel)
    awaits = next((x for x in schedule.launches if isinstance(x, AwaitPeers)), AwaitPeers(within=True))
    others = [x for x in schedule.launches[:at] if not isinstance(x, AwaitPeers)]
    first = replace(schedule, launches=(*others, awaits, *(x for x in schedule.launches[at:] if x is not awaits)))
    assert {type(x) for x in first.within(kernel)} >= {AwaitPeers, PacketCollective}
    assert run_emulated(first, lowering.emit(first), calls=3).equal


def test_where_it_is_legal() -> None:
    """Where a tile loop reads what is gathered, and does not communicate."""
    with pytest.raises(NoLegalSchedule, match="gather nothing"):
        planned("all data", compute="library")
    with pytest.raises(IllegalPin, match="Legal algorithm: direct, library"):
        AG_GEMM.plan_for(topologies.load("l20-pcie", 4), CASES["all data"].sizes, "bf16", CASES["all data"].pins)
    chosen = AG_GEMM.plan_for(topologies.load("h200-nvswitch", 4), {"M": 16, "K": 4096, "N": 14336}, "bf16", {})
    assert not gather(chosen).within  # two launches take less time: only if pinned


PLANTED = {
    "nobody waits for the other programs": ("GATHERED, X_FULL_PACKETS_PROGRAMS)", "GATHERED, 0)"),
    "too few are waited for": ("GATHERED, X_FULL_PACKETS_PROGRAMS)", "GATHERED, X_FULL_PACKETS_PROGRAMS - 1)"),
    "nobody waits for words": (
        "while not_there(found, call, NUMBERED, mask) > 0:",
        "while not_there(found, call, NUMBERED, mask) > 1:",
    ),
}


@pytest.mark.slow
def test_without_mistakes_nothing_is_refuted() -> None:
    assert gather(planned("a block a program")).programs > 1
    assert not verdict(lowering.emit(planned("a block a program"))).refuted


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_mistakes_in_the_kernel_are_found(name: str) -> None:
    source = lowering.emit(planned("a block a program"))
    assert verdict(edited(source, PLANTED[name])).refuted, name
