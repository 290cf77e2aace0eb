"""Contenders: each prepares, for the setting of a row on one rank, a function that enqueues one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch

from tilelink.bench.device import Call, Outputs
from tilelink.bench.record import ScheduleFacts
from tilelink.bench.rows import Row

Inputs = tuple[torch.Tensor, ...]  # activations first, then weights


class Kind(Enum):
    OURS = "ours"
    BASELINE = "baseline"  # does the whole operation
    PART = "part"  # one side of it; nothing to compare with


class Mode(Enum):
    GRAPH = "graph"  # replays of a CUDA graph; eager where the capture fails, which is noted
    EAGER = "eager"


def matrices(row: Row, weights: Inputs) -> Inputs:
    """Weights as [K, N], however they lie."""
    return tuple(weight.t() if row.k_major else weight for weight in weights)


@dataclass(frozen=True, slots=True)
class Setting:
    """A row on one rank. `inputs` stay where they are: fresh activations are copied into them."""

    row: Row
    rank: int
    num_ranks: int
    inputs: Inputs

    @property
    def x(self) -> torch.Tensor:
        return self.inputs[0]

    @property
    def weights(self) -> Inputs:
        """As [K, N], however they lie."""
        return matrices(self.row, self.inputs[1:])

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.x.dtype, device=self.x.device)


def as_they_are(outputs: Outputs) -> Outputs:
    return outputs


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a row. `prepare` allocates and compiles, all ranks together, and raises what that raises."""

    name: str
    kind: Kind
    mode: Mode
    prepare: Callable[[Setting], Call]
    host: bool = False  # also measure how long the host takes to enqueue an eager call
    schedule: ScheduleFacts | None = None
    failure: str = ""  # known before it starts: the planner found no schedule, or a package is missing
    shown: Callable[[Outputs], Outputs] = as_they_are  # what of its outputs is compared; in no time
