"""Placements with the meaning of PyTorch DTensor: how a global tensor lies on the ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replicate:
    """Every rank holds the whole tensor."""

    def __str__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank r holds the r-th of `num_ranks` equal parts along `dim`."""

    dim: int

    def __str__(self) -> str:
        return f"Shard({self.dim})"


@dataclass(frozen=True, slots=True)
class Partial:
    """Every rank holds a summand of the whole tensor."""

    def __str__(self) -> str:
        return "Partial()"


Placement = Replicate | Shard | Partial
