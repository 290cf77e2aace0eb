"""Contenders of ours: a schedule, emitted, loaded and run on symmetric memory."""

from __future__ import annotations

from functools import partial

from tilelink.bench.contender import Setting
from tilelink.bench.plans import Candidate, Origin
from tilelink.measuring.contender import Contender, Kind, Mode
from tilelink.measuring.device import Call
from tilelink.measuring.ours import prepare, prepare_source
from tilelink.measuring.results import ScheduleFacts


def ours(candidate: Candidate) -> Contender:
    schedule = candidate.schedule
    if candidate.source:
        prepared = partial(prepare_source, source=candidate.source, name=candidate.label)
        return Contender(candidate.label, Kind.OURS, Mode.GRAPH, prepared, host=True)
    if schedule is None:
        return Contender(candidate.label, Kind.OURS, Mode.GRAPH, _absent, failure=candidate.failure)
    facts = ScheduleFacts(
        candidate.origin.value, schedule.hash, schedule.predicted_us, dict(schedule.choices), schedule.shifts_rows
    )
    kind = Kind.BASELINE if candidate.origin is Origin.LIBRARY else Kind.OURS
    return Contender(candidate.label, kind, Mode.GRAPH, partial(prepare, schedule=schedule), host=True, schedule=facts)


def _absent(_: Setting) -> Call:
    raise AssertionError("a contender that failed in planning is not prepared")
