"""What the scripts of this folder compare with: inputs of an emitted file, and its outputs with a bound for each element."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from lowering.selfcheck.near import Near


def problem(module: ModuleType, fabric: Any, seed: int) -> tuple[list[torch.Tensor], list[Near]]:
    """Inputs of this rank and what it should return, from those of all ranks, which each rank makes."""
    rank_inputs = [module.make_inputs(rank, seed, fabric.device) for rank in range(fabric.num_ranks)]
    return list(rank_inputs[fabric.rank].values()), [kept(near) for near in module.reference(rank_inputs)[fabric.rank]]


def kept(near: Near) -> Near:
    """A copy, which does not hold the memory of what other ranks have."""
    return Near(near.value.clone(), near.error if isinstance(near.error, float) else near.error.clone())


def as_tuple(results: object) -> tuple[torch.Tensor, ...]:
    """Outputs of an operator, which may be a single tensor."""
    return results if isinstance(results, tuple) else (results,)
