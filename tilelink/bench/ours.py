"""Contenders of ours: a schedule, emitted, loaded and run on symmetric memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import torch

import lowering
from tilelink.bench.contender import Contender, Inputs, Kind, Mode, Setting
from tilelink.bench.device import Call, Outputs
from tilelink.bench.plans import Candidate
from tilelink.bench.record import ScheduleFacts
from tilelink.ir.schedule import Schedule
from tilelink.runtime.operator import build_operator


def ours(candidate: Candidate) -> Contender:
    schedule = candidate.schedule
    if candidate.source:
        prepared = partial(prepare_source, source=candidate.source, name=candidate.label)
        return Contender(candidate.label, Kind.OURS, Mode.GRAPH, prepared, host=True)
    if schedule is None:
        return Contender(candidate.label, Kind.OURS, Mode.GRAPH, _absent, failure=candidate.failure)
    facts = ScheduleFacts(candidate.origin.value, schedule.hash, schedule.predicted_us, dict(schedule.choices))
    return Contender(
        candidate.label, Kind.OURS, Mode.GRAPH, partial(prepare, schedule=schedule), host=True, schedule=facts
    )


def prepare(setting: Setting, schedule: Schedule) -> Call:
    """Compile and allocate; outputs are fresh tensors, and the next call may follow at once."""
    return prepare_source(setting, lowering.emit(schedule), schedule.name)


def prepare_source(setting: Setting, source: str, name: str) -> Call:
    """The same for the text of a file."""
    return OperatorCall(build_operator(source, re.sub(r"\W", "_", name), None), setting.inputs)


class OperatorCall:
    """A call of an `operator` of ours, whose memory is filled with nan before its results are compared."""

    def __init__(self, operator: Callable[..., object], inputs: Inputs) -> None:
        self.operator = operator
        self._inputs = inputs

    def __call__(self) -> Outputs:
        results = self.operator(*self._inputs)
        if isinstance(results, torch.Tensor):
            return (results,)
        assert isinstance(results, tuple), "an operator returns its outputs"
        return results


def _absent(_: Setting) -> Call:
    raise AssertionError("a contender that failed in planning is not prepared")
