"""Contenders: each prepares, for the setting of a problem on one rank, a function that enqueues one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import torch

from tilelink.measuring.device import Call, Outputs
from tilelink.measuring.results import ScheduleFacts

Inputs = tuple[torch.Tensor, ...]  # activations first, then weights


class Kind(Enum):
    OURS = "ours"
    BASELINE = "baseline"  # does the whole operation
    PART = "part"  # one side of it; nothing to compare with


class Mode(Enum):
    GRAPH = "graph"  # replays of a CUDA graph; eager where the capture fails, which is noted
    EAGER = "eager"


class Setting(Protocol):
    """A problem on one rank, as far as measuring needs to know it. `inputs` stay where they are: fresh ones are copied there."""

    @property
    def key(self) -> str:
        """The same on all ranks, and another one for each problem."""

    @property
    def flops(self) -> float:
        """Of the matmuls of one rank in one call."""

    @property
    def inputs(self) -> Inputs: ...


def as_they_are(outputs: Outputs) -> Outputs:
    return outputs


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to solve a problem. `prepare` is given its setting; it allocates and compiles, all ranks together, and raises what
    that raises."""

    name: str
    kind: Kind
    mode: Mode
    prepare: Callable[[Any], Call]
    host: bool = False  # also measure how long the host takes to enqueue an eager call
    schedule: ScheduleFacts | None = None
    failure: str = ""  # known before it starts: the planner found no schedule, or a package is missing
    shown: Callable[[Outputs], Outputs] = as_they_are  # what of its outputs is compared; in no time
