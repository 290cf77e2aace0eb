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
    """Rank r holds the r-th of `num_ranks` equal parts along `dim`; of experts the last ranks may hold fewer."""

    dim: int

    def __str__(self) -> str:
        return f"Shard({self.dim})"


@dataclass(frozen=True, slots=True)
class Partial:
    """Every rank holds a summand of the whole tensor."""

    def __str__(self) -> str:
        return "Partial()"


@dataclass(frozen=True, slots=True)
class ByExpert:
    """Each row by assignment lies on the rank of its expert."""

    def __str__(self) -> str:
        return "ByExpert()"


Placement = Replicate | Shard | Partial | ByExpert


def share(size: int, num_ranks: int, rank: int) -> range:
    """Which of `size` elements `rank` holds along a dimension that is cut: the last ranks may have fewer than others, or none."""
    most = -(-size // num_ranks)
    return range(min(rank * most, size), min((rank + 1) * most, size))


def as_placement(given: object) -> Placement | None:
    """The placement that `given` is, or None.

    DTensor's objects are known by their class and module, so that nobody has to import `torch.distributed.tensor` for them;
    `[Shard(0)]`, as of a device mesh with one dimension, is its one placement.
    """
    if isinstance(given, Replicate | Shard | Partial | ByExpert):
        return given
    if isinstance(given, list | tuple) and len(given) == 1:
        return as_placement(given[0])
    kind = type(given)
    if not kind.__module__.startswith("torch.distributed"):
        return None
    match kind.__name__:
        case "Replicate":
            return Replicate()
        case "Shard":
            return Shard(given.dim)  # type: ignore[attr-defined]
        case "Partial" if given.reduce_op == "sum":  # type: ignore[attr-defined]
            return Partial()
    return None  # such as strided shards, or summands that are to be averaged
