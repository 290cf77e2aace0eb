"""Mistakes in steps that store packets at all ranks at once: the proof finds each, and finds nothing without them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import topologies
from tests.elaborate.test_meaning import wrong_outputs
from tests.pipeline.operators import AG_GEMM, GEMM_AR
from tests.schedule.edits import Change, both, fields, loads, stores
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.happens_before.check import checked
from tilelink.proof.verify import verify
from tilelink.schedule.index import call, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.steps import For, Load, Store
from tilelink.schedule.walk import all_steps

X, OUT, SUMS = "x_full_packets", "out_packets", "out_sums"


@cache
def planned(name: str, ranks: int = 4) -> Schedule:
    operator, algorithm = {
        "gather": (AG_GEMM, "lamport"),
        "numbered": (AG_GEMM, "ll"),
        "sums": (GEMM_AR, "lamport"),
        "two shots": (GEMM_AR, "lamport-two-shot"),
    }[name]
    sizes = {"M": 8 * ranks, "K": 16 * ranks, "N": 32 * ranks}
    pins = {"algorithm": algorithm, "multicast": "yes", "compute": "triton"}
    return operator.plan_for(topologies.load("laptop-switch", ranks), sizes, "bf16", pins)


def of_rank(step: For) -> bool:
    """Loops in which packets of all ranks are taken."""
    return any(isinstance(one, Load) for one in step.body)


def is_multicast(step: For) -> bool:
    return step.multicast


def one_set(name: str) -> Change:
    start = (0, None, None, None)
    return both(stores(name, start=start), loads(name, start=start))


NEXT = (None, (rank + 1) % 4, None, None)
# in each call the set of the one before: a rank comes there before its peers have read it
LATE = ((call + 1) // 2 % 2, None, None, None)
CASES: dict[str, tuple[str, Change, BugClass]] = {
    "packets in the slot of the next rank": ("gather", stores(X, start=NEXT), BugClass.WRONG_PLACE),
    "numbered packets there": ("numbered", stores(X, start=NEXT), BugClass.WRONG_PLACE),
    "summands in the slot of rank 0": ("sums", stores(OUT, start=(None, 0, None, None)), BugClass.CIRCLE),
    "one set of packets": ("gather", one_set(X), BugClass.REUSE),
    "one set of numbered packets": ("numbered", one_set(X), BugClass.REUSE),
    "one set of summands": ("sums", one_set(OUT), BugClass.REUSE),
    "sums in the slot of the next rank": ("two shots", stores(SUMS, start=NEXT), BugClass.WRONG_PLACE),
    "a set that is used twice in a row": (
        "gather",
        both(stores(X, start=LATE), loads(X, start=LATE)),
        BugClass.REUSE,
    ),
    "packets of another set are taken": ("gather", loads(X, start=((call + 1) % 2, None, None, None)), BugClass.CIRCLE),
    "the own packets are left": ("gather", fields(For, of_rank, count=3), BugClass.WRONG_PLACE),
    "peers get them one by one, and one none": ("gather", fields(For, is_multicast, count=3), BugClass.WRONG_PLACE),
    "all of it to one rank": ("gather", fields(For, is_multicast, let=(("peer", rank),)), BugClass.CIRCLE),
}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
@pytest.mark.parametrize("name", ["gather", "numbered", "sums", "two shots"])
@pytest.mark.quick(4)
def test_without_mistakes_it_is_proved(name: str, ranks: int) -> None:
    schedule = planned(name, ranks)
    assert sum(isinstance(one, For) and one.multicast for one in all_steps(elaborated(schedule))) == 1
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())


@pytest.mark.parametrize("name", ["gather", "two shots"])
@pytest.mark.quick(1)
def test_its_steps_compute_what_the_spec_means(name: str) -> None:
    """Carried out in any order, in three calls."""
    assert not any(wrong_outputs(planned(name), 3, seed) for seed in range(4))


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_found(case: str) -> None:
    name, change, bug = CASES[case]
    schedule = planned(name)
    steps = instantiated(elaborated(schedule))
    changed = change(steps)
    assert changed != steps
    assert bug in {one.bug for one in verify(schedule, changed).findings}, verify(schedule, changed).lines()


def test_a_machine_without_it() -> None:
    schedule = planned("gather")
    (finding,) = verify(replace(schedule, machine=replace(schedule.machine, multicast=False))).findings
    assert finding.bug is BugClass.LINK_ATOMICS and "by multicast" in finding.fact


def test_one_store_is_a_store_at_each_rank() -> None:
    """The order knows nothing of multicast: the same loop without it has the same events."""
    steps = instantiated(elaborated(planned("gather")))
    one_by_one = fields(For, is_multicast, multicast=False)(steps)
    assert one_by_one != steps and checked(one_by_one) == checked(steps)
    (store,) = [step for loop in all_steps(steps) if isinstance(loop, For) and loop.multicast for step in loop.body]
    assert isinstance(store, Store)
