"""Queues with one planted mistake: the proof names the class, the side and the signal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from tests.pipeline.workloads import load
from tests.proof import changed_steps
from tests.proof.changed_steps import proof_of, raises, waits
from tests.proof.contents.test_mutants import right
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.nodes import AwaitPeers, Buffer, CommRole, ComputeRole, Exchange, Kernel, Machine, Memory
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Load, Operand, SlotNotify, SlotWait, Step
from tilelink.mutation.sites import sites
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.schedule.instance import instantiated
from tilelink.schedule.steps import Notify, Wait

Change = Callable[[Schedule], Schedule]
N = TypeVar("N", Exchange, Machine, Operand)
QUEUE = load("01_queue.py:queue")


def planned(items: int = 11, slots: int = 3, producers: int = 2, consumers: int = 2, ranks: int = 3) -> Schedule:
    pins = {"mover": f"CommSms({producers})", "chunks": str(items), "slots": str(slots), "consumers": str(consumers)}
    return QUEUE.plan_for(topologies.load("h200-nvswitch", ranks), {"B": items * ranks, "C": 16}, "bf16", pins)


def producer(**fields: object) -> Change:
    def change(schedule: Schedule) -> Schedule:
        site = next(iter(sites(schedule, CommRole)))
        return site.put(replace(site.node, **fields))  # type: ignore[arg-type]

    return change


def body(change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> Change:
    def changed(schedule: Schedule) -> Schedule:
        site = next(iter(sites(schedule, ComputeRole)))
        return site.put(replace(site.node, body=change(site.node.body)))

    return changed


def without(kind: type) -> Change:
    return body(lambda steps: tuple(step for step in steps if not isinstance(step, kind)))


def freed_first(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    load = next(step for step in steps if isinstance(step, Load))
    free = next(step for step in steps if isinstance(step, SlotNotify))
    return tuple(free if step is load else load if step is free else step for step in steps)


def first(kind: type[N], **fields: object) -> Change:
    def change(schedule: Schedule) -> Schedule:
        site = next(iter(sites(schedule, kind)))
        return site.put(replace(site.node, **fields))  # type: ignore[arg-type]

    return change


def target(**fields: object) -> Change:
    def change(schedule: Schedule) -> Schedule:
        site = next(site for site in sites(schedule, Buffer) if site.node.name == "out_queue")
        return site.put(replace(site.node, **fields))  # type: ignore[arg-type]

    return change


def in_a_launch_before(schedule: Schedule) -> Schedule:
    site = next(iter(sites(schedule, Kernel)))
    alone = replace(site.node, compute=None)
    return site.put_all(alone, replace(site.node, comm=()))


def not_meeting(schedule: Schedule) -> Schedule:
    """Producers do not wait for peers to have ended the call before."""
    return replace(schedule, launches=tuple(x for x in schedule.launches if not isinstance(x, AwaitPeers)))


FREE, ARRIVED = "out_queue_free", "out_queue_arrived"
CASES: dict[str, tuple[changed_steps.Change, BugClass, str]] = {
    "a producer that does not wait": (changed_steps.without(Wait, FREE), BugClass.REUSE, ""),
    "a producer that waits for the use before": (waits(FREE, -1), BugClass.REUSE, FREE),
    "a producer that waits for its own use": (waits(FREE, 1), BugClass.CIRCLE, FREE),
    "a producer that tells nobody": (changed_steps.without(Notify, ARRIVED), BugClass.CIRCLE, ARRIVED),
    "a producer that raises too little": (raises(ARRIVED, -1), BugClass.CIRCLE, FREE),
    "a producer that raises too much": (raises(ARRIVED, 1), BugClass.REUSE, FREE),
    "a consumer that raises twice": (
        lambda schedule: next(site.put_all(site.node, site.node) for site in sites(schedule, SlotNotify)),
        BugClass.STALE_SIGNAL,
        FREE,
    ),
    "a producer that waits for items": (changed_steps.awaits_another(FREE, ARRIVED), BugClass.REUSE, ARRIVED),
    "a consumer that does not wait": (without(SlotWait), BugClass.ORDERING, ""),
    "a consumer that waits for the use before": (waits(ARRIVED, -1), BugClass.WAIT_TOO_LITTLE, ARRIVED),
    "a consumer that waits for the next use": (waits(ARRIVED, 1), BugClass.CIRCLE, FREE),
    "a consumer that frees nothing": (without(SlotNotify), BugClass.CIRCLE, FREE),
    "a consumer that raises too little": (raises(FREE, -1), BugClass.CIRCLE, ARRIVED),
    "a consumer that frees the next use too": (raises(FREE, 1), BugClass.REUSE, FREE),
    "a consumer that frees before it loads": (body(freed_first), BugClass.REUSE, "out_queue_free"),
    "a buffer of too few slots": (target(shape=(2, 1, 16)), BugClass.SLOTS, ""),
    "more slots than the buffer has": (first(Exchange, slots=4), BugClass.SLOTS, ""),
    "too few words": (changed_steps.words(FREE, 2), BugClass.SLOTS, FREE),
    "slots in local memory": (target(memory=Memory.LOCAL), BugClass.WRONG_PLACE, ""),
    "no bound where the spec has a queue": (first(Exchange, slots=0), BugClass.WRONG_PLACE, ""),
    "the wrong rank": (first(Exchange, by=2), BugClass.WRONG_PLACE, ""),
    "an item read as a plain tensor": (first(Operand, item=""), BugClass.SLOTS, ""),
    "items of other rows than tiles": (first(Exchange, chunks=6), BugClass.CIRCLE, "out_queue_arrived"),
    "more programs than SMs": (first(Machine, num_sms=3), BugClass.RESIDENCY, ""),
    "producers in a launch before": (in_a_launch_before, BugClass.CIRCLE, "out_queue_free"),
    "nobody produces": (producer(programs=0), BugClass.CIRCLE, ""),
}


@pytest.mark.parametrize("case", CASES)
def test_class_of_a_planted_mistake(case: str) -> None:
    change, bug, signal = CASES[case]
    schedule = planned()
    assert verify(schedule).proved
    proof = proof_of(change, schedule)
    found = [finding for finding in proof.findings if finding.bug is bug and signal in ("", finding.signal)]
    assert found, "\n".join(proof.lines())


def test_slots_that_are_free_need_no_peers_to_meet() -> None:
    """Where the number of a use goes on from call to call, so do the uses of a slot."""
    changed = not_meeting(planned())
    assert elaborated(changed) != elaborated(planned())
    assert verify(changed).proved
    assert right(instantiated(elaborated(changed)), changed.spec)


def test_one_use_of_each_slot() -> None:
    """With more slots than items no slot is used twice in a call: the next use is in the next call, behind peers that meet."""
    schedule = planned(items=3, slots=5)
    assert verify(schedule).proved
    assert proof_of(changed_steps.without(Wait, FREE), schedule).proved
    assert not proof_of(changed_steps.without(Wait, FREE), not_meeting(schedule)).proved
    assert not proof_of(waits(ARRIVED, -1), schedule).proved


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 20), st.integers(1, 20), st.integers(2, 8))
def test_any_queue_is_proved(items: int, slots: int, producers: int, consumers: int, ranks: int) -> None:
    schedule = planned(items, slots, producers, consumers, ranks)
    assert verify(schedule).proved
    assert Schedule.from_json(schedule.to_json()) == schedule


@pytest.mark.slow
def test_the_real_size() -> None:
    proof = verify(planned(2025, 32, 16, 4, 4))
    assert proof.proved
    assert dict(proof.checked)["tiles"] == 2025
