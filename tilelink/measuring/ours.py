"""Schedules of ours as contenders: emitted, loaded and run on a process group."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

import lowering
from tilelink.ir.schedule import Schedule
from tilelink.measuring.contender import Inputs, Setting
from tilelink.measuring.device import Call, Outputs
from tilelink.runtime.operator import build_operator


def prepare(setting: Setting, schedule: Schedule, group: object = None, target: str = "triton") -> Call:
    """Compile and allocate; outputs are fresh tensors, and the next call may follow at once."""
    return prepare_source(setting, lowering.emit(schedule, target), schedule.name, group)


def prepare_source(setting: Setting, source: str, name: str, group: object = None) -> Call:
    """The same for the text of a file."""
    return OperatorCall(build_operator(source, re.sub(r"\W", "_", name), group), setting.inputs)


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
