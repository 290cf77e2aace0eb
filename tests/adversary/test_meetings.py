"""Barriers between ranks as torch symmetric memory has them: relaxed where a launch is on the other side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adversary.bugs import edited, verdict
from tilelink.adversary.verdict import VerdictKind
from tilelink.proof.bug_class import BugClass

MEETING = (Path(__file__).parent / "meeting.py").read_text()
START, END = 'NUM_RANKS, "relaxed", "acquire")', 'NUM_RANKS, "release", "relaxed")'
STRICT = 'NUM_RANKS, "release", "acquire")'
COPY = "            symm.copy(self.buffer, x)\n"
OWN = "tl.load(table + rank).to(tl.pointer_type(tl.float32)) + tl.arange(0, N)"


@pytest.mark.parametrize(
    "edits",
    [(), ((END, STRICT),), ((START, STRICT),), ((START, STRICT), (END, STRICT))],
    ids=["start and end", "start", "end", "neither"],
)
@pytest.mark.quick(1)
def test_what_launches_order_may_be_relaxed(edits: tuple[tuple[str, str], ...]) -> None:
    found = verdict(edited(MEETING, *edits))
    assert found.kind is VerdictKind.NOT_REFUTED, found.lines()


def test_ranks_that_do_not_meet_at_the_end_are_refuted() -> None:
    found = verdict(edited(MEETING, (f"    meet(pads, rank, {END}\n", "")))
    assert found.kind is VerdictKind.REFUTED


@pytest.mark.parametrize("relaxed", [True, False])
def test_what_the_kernel_itself_stored_must_be_released(relaxed: bool) -> None:
    """The copy becomes a store of the kernel, in front of the first meeting."""
    store = f"    tl.store({OWN}, tl.load(x + tl.arange(0, N)))\n    tl.debug_barrier()\n"
    source = edited(MEETING, (COPY, ""), (f"    meet(pads, rank, {START}", f"{store}    meet(pads, rank, {START}"))
    found = verdict(source if relaxed else edited(source, (START, STRICT)))
    if not relaxed:
        assert found.kind is VerdictKind.NOT_REFUTED, found.lines()
        return
    assert found.counterexample is not None
    assert found.counterexample.number == BugClass.ORDERING.number


def test_what_the_kernel_itself_reads_next_must_be_acquired() -> None:
    found = verdict(edited(MEETING, (START, 'NUM_RANKS, "release", "relaxed")')))
    assert found.counterexample is not None
    assert found.counterexample.number == BugClass.ORDERING.number
