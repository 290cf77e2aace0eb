"""A row on one rank: what baselines and schedules prepare themselves for."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tilelink.bench.rows import Row
from tilelink.measuring.contender import Inputs


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
    def key(self) -> str:
        return self.row.key

    @property
    def flops(self) -> float:
        return self.row.flops(self.num_ranks)

    @property
    def x(self) -> torch.Tensor:
        return self.inputs[0]

    @property
    def weights(self) -> Inputs:
        """As [K, N], however they lie."""
        return matrices(self.row, self.inputs[1:])

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.x.dtype, device=self.x.device)
