"""Emitted queues with one wrong value of a slot: the adversary refutes each, and names the class."""

from __future__ import annotations

from functools import cache

import pytest

import lowering
import topologies
from tests.adversary.bugs import edited, verdict
from tests.pipeline.workloads import load
from tilelink.proof.bug_class import BugClass

STOCK, DISTRIBUTED = "triton", "triton-distributed"


@cache
def queue(target: str) -> str:
    pins = {"mover": "CommSms(2)", "chunks": "7", "slots": "2", "consumers": "2"}
    sizes = {"B": 3 * 7, "C": 16}
    schedule = load("01_queue.py:queue").plan_for(topologies.load("laptop-switch", 3), sizes, "bf16", pins)
    return lowering.emit(schedule, target)


def parts(target: str) -> dict[str, str]:
    """Text of each side: the function of the producers, and that of the consumers."""
    source = queue(target)
    first, second = source.index("def out_queue_send("), source.index("def out_tiles(")
    return {"producer": source[first:second], "consumer": source[second : source.index("def out_kernel(")]}


def changed(target: str, side: str, start: str, before: str, after: str) -> str:
    """The source with another text in the one line of a side that starts with (or holds) `start`."""
    part = parts(target)[side]
    (line,) = [line for line in part.splitlines() if start in line]
    return edited(queue(target), (part, part.replace(line, edited(line, (before, after)))))


TOO_EARLY, CIRCLE, EQUALITY = BugClass.SIGNAL_TOO_EARLY, BugClass.CIRCLE, BugClass.EQUALITY
# side, line, text there, text instead, class on each target
# are for at least the value
CASES = {
    "a producer that raises too much": ("producer", "notify(", "use + 1)", "use + 2)", TOO_EARLY, EQUALITY),
    "a producer that raises too little": ("producer", "notify(", "use + 1)", "use)", CIRCLE, CIRCLE),
    "a producer that waits for its own use": ("producer", "wait_", "slot, use)", "slot, use + 1)", CIRCLE, CIRCLE),
    "a producer that waits for the use before": (
        "producer",
        "wait_",
        "slot, use)",
        "slot, use - 1)",
        TOO_EARLY,
        TOO_EARLY,
    ),
    "a consumer that raises too much": ("consumer", "notify(", "use + 1)", "use + 2)", TOO_EARLY, TOO_EARLY),
    "a consumer that raises too little": ("consumer", "notify(", "use + 1)", "use)", CIRCLE, CIRCLE),
    "a consumer that waits for the next use": ("consumer", "wait_", "use + 1)", "use + 2)", CIRCLE, CIRCLE),
    "a consumer that waits for the use before": ("consumer", "wait_", "use + 1)", "use)", TOO_EARLY, TOO_EARLY),
}


# of each side what lets the other on too early, and what never lets it on
QUICK = (
    "a producer that raises too much",
    "a producer that waits for its own use",
    "a consumer that raises too little",
    "a consumer that waits for the use before",
)


@pytest.mark.parametrize("target", [STOCK, pytest.param(DISTRIBUTED, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
@pytest.mark.quick(1)
def test_a_wrong_value_of_a_slot(case: str, target: str) -> None:
    side, line, before, after, stock, distributed = CASES[case]
    found = verdict(changed(target, side, line, before, after)).counterexample
    assert found is not None
    assert found.number == (stock if target == STOCK else distributed).number, found.lines()


@pytest.mark.slow
@pytest.mark.parametrize("target", [STOCK, pytest.param(DISTRIBUTED, marks=pytest.mark.slow)])
def test_uses_that_are_not_counted_through_calls(target: str) -> None:
    """A slot that the last item of a call leaves out: its uses run behind those that are waited for in later calls."""
    uses = "(OUT_QUEUE_CHUNKS - slot + OUT_QUEUE_SLOTS - 1) // OUT_QUEUE_SLOTS"
    source = edited(queue(target), (uses, "OUT_QUEUE_CHUNKS // OUT_QUEUE_SLOTS"))
    found = verdict(source).counterexample
    assert found is not None
    assert found.number == BugClass.STALE_SIGNAL.number, found.lines()


@pytest.mark.slow
@pytest.mark.parametrize("target", [STOCK, DISTRIBUTED])
def test_nothing_is_found_in_what_is_emitted(target: str) -> None:
    found = verdict(queue(target))
    assert not found.refuted, found.lines()
