"""Attention by cuDNN, over keys and values of all ranks that NCCL gathers."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tilelink.measuring.device import Outputs

_ROWS = 16  # of a program that merges


@triton.jit  # type: ignore[untyped-decorator]
def _merge(out, sums, more, others, merged, strides, heads, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Means of values over two sets of keys, by the logarithms of their sums of weights, into [B, S, H, D]."""
    number, first = tl.program_id(0), tl.program_id(1) * ROWS
    sequence, head = number // heads, number % heads
    row, col = first + tl.arange(0, ROWS)[:, None], tl.arange(0, WIDTH)[None, :]
    there = row < rows
    one = tl.load(sums + number * rows + row, mask=there, other=0.0)
    other = tl.load(others + number * rows + row, mask=there, other=0.0)
    top = tl.maximum(one, other)
    a, b = tl.exp(one - top), tl.exp(other - top)
    x = tl.load(out + sequence * strides[0] + head * strides[1] + row * strides[2] + col, mask=there, other=0.0)
    y = tl.load(more + sequence * strides[3] + head * strides[4] + row * strides[5] + col, mask=there, other=0.0)
    mean = (x.to(tl.float32) * a + y.to(tl.float32) * b) / (a + b)
    place = ((sequence * rows + row) * heads + head) * WIDTH + col
    tl.store(merged + place, mean.to(merged.dtype.element_ty), mask=there)


class GatheredAttention:
    """Keys [B, S, G, D] and values of all ranks, whose tokens each follow those of the rank before. `gathered`: a rank has all
    tokens as they are given, and nothing is gathered."""

    def __init__(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float, gathered: bool = False
    ) -> None:
        self.own, self.causal, self.scale, self.q = (k, v), causal, scale, q.transpose(1, 2)
        self.gathered, self.before, self.all = gathered, 0, [k, v]
        if not gathered:
            shape = k.shape[0], dist.get_world_size() * k.shape[1], *k.shape[2:]
            self.all = [torch.empty(shape, dtype=k.dtype, device=k.device) for _ in range(2)]
            self.before = k.shape[1] * dist.get_rank()

    def gather(self) -> None:
        """Sequence by sequence, so that each lies in one piece."""
        if self.gathered:
            return
        for whole, own in zip(self.all, self.own, strict=True):
            for sequence, part in zip(whole, own, strict=True):
                dist.all_gather_into_tensor(sequence, part)

    def attend(self) -> torch.Tensor:
        """[B, S, Q, D] of the own queries."""
        keys, values = (one.transpose(1, 2) for one in self.all)
        if not self.causal:
            shared = self.q.shape[1] != keys.shape[1]
            fastest = sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if self.q.is_cuda else nullcontext()
            with fastest:
                out = scaled_dot_product_attention(self.q, keys, values, scale=self.scale, enable_gqa=shared)
            return out.transpose(1, 2)
        own, own_values = (one.transpose(1, 2) for one in self.own)
        out, sums = self._with_sums(own, own_values, True)
        if not self.before:
            return out.transpose(1, 2)
        more, others = self._with_sums(keys[:, :, : self.before], values[:, :, : self.before], False)
        sequences, heads, rows, width = out.shape
        merged = torch.empty(sequences, rows, heads, width, dtype=out.dtype, device=out.device)
        strides = *out.stride()[:3], *more.stride()[:3]
        grid = sequences * heads, triton.cdiv(rows, _ROWS)
        _merge[grid](out, sums, more, others, merged, strides, heads, rows, width, _ROWS)
        return merged

    def _with_sums(self, keys: torch.Tensor, values: torch.Tensor, causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention with logarithms of sums: [B, H, S, D], [B, H, S]."""
        if self.q.is_cuda:
            attend = torch.ops.aten._scaled_dot_product_cudnn_attention
            out, sums = attend(self.q, keys, values, None, True, 0.0, causal, scale=self.scale)[:2]
        else:
            attend, each = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu, self.q.shape[1] // keys.shape[1]
            keys, values = (one.repeat_interleave(each, 1) for one in (keys, values))
            out, sums = attend(self.q, keys, values, 0.0, causal, scale=self.scale)
        return out, sums.reshape(out.shape[:3]).contiguous()

    def __call__(self) -> Outputs:
        self.gather()
        return (self.attend(),)
