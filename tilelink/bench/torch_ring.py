"""Attention over tokens of all ranks as `context_parallel` of torch computes it: keys and values travel beside attention to those
that are there, one part after the other, and results are merged by their sums of weights.

What is called is what `context_parallel` puts in the place of `scaled_dot_product_attention`. It has no public name: a torch that
has moved it has no such baseline. It gathers all parts in one call, its default (`_RotateMethod.ALL_GATHER`).
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch
import torch.distributed as dist

from tilelink.measuring.device import Outputs

_MODULE = "torch.distributed.tensor.experimental._context_parallel._attention"


class RingAttention:
    """Of queries [B, S, Q, D] over keys and values [B, S, G, D]; with `zigzag`, tokens come in two blocks for each rank."""

    def __init__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, zigzag: bool, scale: float
    ) -> None:
        self.given = tuple(one.transpose(1, 2) for one in (q, k, v))
        self.causal, self.zigzag, self.scale = causal, zigzag, scale
        self.torch: ModuleType = importlib.import_module(_MODULE)
        self.group = dist.group.WORLD

    def __call__(self) -> Outputs:
        self.torch._cp_options.enable_load_balance = self.zigzag
        out, *_ = self.torch._templated_ring_attention(self.group, 2, self._attend, *self.given, self.causal)
        return (out.transpose(1, 2),)

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, is_causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Results with logarithms of sums, by cuDNN; without a GPU, by what torch has."""
        if query.is_cuda:
            attend = torch.ops.aten._scaled_dot_product_cudnn_attention
            out, sums = attend(query, key, value, None, True, 0.0, is_causal, scale=self.scale)[:2]
            return out, sums.reshape(*out.shape[:3], 1)
        attend, each = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, query.shape[1] // key.shape[1]
        key, value = (one.repeat_interleave(each, 1) for one in (key, value))
        out, sums = attend(query, key, value, 0.0, is_causal, scale=self.scale)
        return out, sums.reshape(*out.shape[:3], 1)
