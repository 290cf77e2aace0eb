"""Proof of one schedule for all ranks, all interleavings and any number of calls. What it rests on: docs/verification.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.conformance import conformance
from tilelink.proof.contract import flat
from tilelink.proof.coverage import coverage
from tilelink.proof.findings import Finding, Proof
from tilelink.proof.joining import joining
from tilelink.proof.layout import buffers, signals
from tilelink.proof.links import links
from tilelink.proof.meeting import meeting
from tilelink.proof.names import names
from tilelink.proof.progress import no_circle, residency
from tilelink.proof.raising import raising
from tilelink.proof.reuse import reuse
from tilelink.proof.slots import slots

# What later checks take for granted comes first; the search for circles needs well-formed steps and orders.
_CHECKS: tuple[Callable[[Schedule], Iterator[Finding]], ...] = (
    names,
    joining,
    signals,
    buffers,
    links,
    conformance,
    coverage,
    raising,
    reuse,
    meeting,
    slots,
    residency,
    no_circle,
)


def verify(schedule: Schedule) -> Proof:
    """Check coverage, progress, signals, reuse and links of `schedule`. Never raises for a wrong schedule: it is refuted."""
    begin = time.perf_counter()
    findings: list[Finding] = []
    for check in _CHECKS:
        try:
            findings += check(schedule)
        except (KeyError, RuntimeError, IndexError, ValueError, ZeroDivisionError, AssertionError) as error:
            if not findings:  # a schedule that no part of the planner makes: names or numbers that stand for nothing
                fact = f"it does not hang together: {type(error).__name__} {error}"
                findings.append(Finding(BugClass.WRONG_PLACE, f"check of {check.__name__}", fact))
        if findings and check in (names, conformance):
            break  # what follows speaks of things that exist, in a schedule that computes the spec
    return Proof(schedule.hash, tuple(dict.fromkeys(findings)), _counts(schedule), time.perf_counter() - begin)


def _counts(schedule: Schedule) -> tuple[tuple[str, int], ...]:
    roles = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    return (
        ("ranks", schedule.num_ranks),
        ("launches", len(schedule.launches)),
        ("tiles", sum(role.num_tiles for role in roles)),
        ("steps", sum(len(flat(role.body)) for role in roles)),
        ("signal slots", sum(signal.slots for signal in schedule.signals)),
    )
