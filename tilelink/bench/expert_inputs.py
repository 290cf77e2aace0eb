"""What baselines of operators with experts share: inputs by name, which experts a rank has, and collectives of NCCL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

from tilelink.bench.contender import Setting
from tilelink.bench.expert_problem import shapes
from tilelink.bench.rows import Operator


@dataclass(frozen=True)
class ExpertInputs:
    """What baselines compute: an operator, with inputs of this rank."""

    operator: Operator
    inputs: Mapping[str, torch.Tensor]
    experts: int  # of all ranks

    @classmethod
    def of(cls, setting: Setting) -> ExpertInputs:
        row = setting.row
        names = shapes(row, setting.num_ranks)
        return cls(row.operator, dict(zip(names, setting.inputs, strict=True)), row.routed.number)

    @property
    def on_ranks(self) -> bool:
        return self.operator is Operator.EP_LAYER

    @property
    def local(self) -> tuple[int, int]:
        """First expert of this rank, and how many it has."""
        if not self.on_ranks:
            return 0, self.experts
        own = self.experts // dist.get_world_size()
        return dist.get_rank() * own, own

    @property
    def mean_rows(self) -> float:
        """Of an expert."""
        ids = self.inputs["ids"]
        return ids.numel() * (dist.get_world_size() if self.on_ranks else 1) / self.experts


def gathered(*parts: torch.Tensor) -> list[torch.Tensor]:
    """Those of all ranks, with a collective for each."""
    ranks = dist.get_world_size()
    found = [torch.empty(ranks * len(one), *one.shape[1:], dtype=one.dtype, device=one.device) for one in parts]
    for out, one in zip(found, parts, strict=True):
        dist.all_gather_into_tensor(out, one)
    return found


def gathered_as_one(*parts: torch.Tensor) -> list[torch.Tensor]:
    """The same with one launch of NCCL."""
    with _coalescing_manager():
        return gathered(*parts)


def scattered(y: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(y) // dist.get_world_size(), y.shape[1], dtype=y.dtype, device=y.device)
    dist.reduce_scatter_tensor(out, y)
    return out


def all_say(fine: bool, device: torch.device | str = "cuda") -> bool:
    """Whether each rank says so."""
    found = torch.tensor([int(fine)], device=device)
    dist.all_reduce(found, dist.ReduceOp.MIN)
    return bool(found.item())
