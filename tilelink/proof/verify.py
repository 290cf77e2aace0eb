"""Proof of one schedule for all ranks, all interleavings and any number of calls. What it rests on: docs/verification.md.

1. *Contents*: steps put the values of the spec where the caller finds them (`contents`).
2. *Rules*: what steps do not say, of machines, compilers and words (`rules`).
3. *Order*: no access comes too early or too late, by happens-before (`happens_before`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import prod

from tilelink.elaborate.schedule import elaborated
from tilelink.ir.nodes import NoSuchName
from tilelink.ir.schedule import Schedule
from tilelink.ir.slices import as_carried_out
from tilelink.proof.bug_class import BugClass
from tilelink.proof.contents.check import contents
from tilelink.proof.findings import Finding
from tilelink.proof.happens_before.all_tables import check_all_tables
from tilelink.proof.happens_before.check import Outcome, checked
from tilelink.proof.happens_before.refuted import Refuted
from tilelink.proof.proved import Proof
from tilelink.proof.rules import broken_rules
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Compute
from tilelink.schedule.walk import all_steps, phases, steps_in

_NONSENSE = (LookupError, RuntimeError, ValueError, ZeroDivisionError, AssertionError, StopIteration)


def verify(schedule: Schedule, steps: Steps | None = None) -> Proof:
    """Check what `schedule` computes, what it counts on and the order of its steps, or of other `steps` in their place. Never
    raises for a wrong schedule: it is refuted."""
    begin = time.perf_counter()
    findings: list[Finding] = []
    outcome: Outcome | None = None
    counts: tuple[tuple[str, int], ...] = ()
    try:
        steps = instantiated(elaborated(schedule) if steps is None else steps)
        counts = _counts(steps)
        findings += _found("rules", broken_rules(steps, schedule.machine))
        if steps.tables:
            every = check_all_tables(steps)
            outcome = every.order
            if every.dynamic:
                what = "what synchronises depends on a routing"
                findings.append(Finding(BugClass.REUSE, every.dynamic, what))
            elif every.refutation is not None:
                findings.append(every.refutation.finding)
        else:
            outcome = checked(steps)
        if outcome is not None and not steps.tables and outcome.refutation is not None:
            findings.append(outcome.refutation.finding)
        findings += _found(
            "contents",
            contents(steps, as_carried_out(schedule.spec, schedule.decided.collectives)),
            known=bool(findings),
        )
    except _NONSENSE as error:
        findings += _nonsense("the schedule as steps", error) if not findings else ()
    found, seconds = tuple(dict.fromkeys(findings)), time.perf_counter() - begin
    return Proof(schedule.hash, found, counts, seconds, outcome)


def _found(name: str, check: Iterator[Finding], known: bool = False) -> list[Finding]:
    """Findings of a check; of a schedule that names what does not exist, those up to there, or that if nothing is `known`."""
    findings: list[Finding] = []
    try:
        findings.extend(check)
    except Refuted as refuted:
        findings += () if findings or known else [refuted.refutation.finding]
    except _NONSENSE as error:
        findings += () if findings or known else _nonsense(name, error)
    return findings


def _nonsense(where: str, error: Exception) -> list[Finding]:
    """Of a schedule that no part of the planner makes: names or numbers that stand for nothing."""
    fact = str(error) if isinstance(error, NoSuchName) else f"it does not hang together: {type(error).__name__} {error}"
    return [Finding(BugClass.WRONG_PLACE, where, fact)]


def _counts(steps: Steps) -> tuple[tuple[str, int], ...]:
    """What was looked at."""
    computing = [
        phase for _, _, phase in phases(steps) if any(isinstance(one, Compute) for one in steps_in(phase.body))
    ]
    return (
        ("ranks", steps.num_ranks),
        ("launches", len(steps.launches)),
        ("tiles", sum(phase.count for phase in computing if isinstance(phase.count, int))),
        ("steps", sum(1 for _ in all_steps(steps))),
        ("words", sum(prod(steps.shapes[signal.name]) for signal in steps.signals)),
    )
