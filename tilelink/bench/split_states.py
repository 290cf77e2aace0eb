"""Attention of one query a sequence over a rank's tokens by a plain split of its keys; states of all ranks over NCCL; a merge.

What engines run where they have no kernel of their own for it: three launches and a collective.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import triton
import triton.language as tl

# means [parts, sequences * heads, D], logarithms of sums of weights [parts, sequences * heads], logarithm of their base
States = tuple[torch.Tensor, torch.Tensor, float]

_LINE = 64  # bytes: chunks begin at one


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a rank attends to: of each sequence so many `tokens`, after the `first` ones."""

    sequences: int
    first: int
    tokens: int
    queries: int  # heads
    keys: int
    width: int
    scale: float


@triton.jit  # type: ignore[untyped-decorator]
def _split(q, k, v, lengths, means, logs, sizes, scale, SHARED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The state of some of a rank's tokens, for the heads that share keys."""
    first, tokens, each, groups, shared = sizes
    sequence, group, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    last = tl.minimum(tl.minimum(tl.load(lengths + sequence) - first, tokens), (part + 1) * each)
    member, col, near = tl.arange(0, SHARED), tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    head = (sequence * groups + group) * shared + member
    there = (member < shared)[:, None]
    queries = tl.load(q + head[:, None] * WIDTH + col[None, :], mask=there, other=0.0)
    begins = (sequence.to(tl.int64) * tokens * groups + group) * WIDTH
    top = tl.full((SHARED,), float("-inf"), tl.float32)
    weight, total = tl.zeros((SHARED,), tl.float32), tl.zeros((SHARED, WIDTH), tl.float32)
    for begin in range(part * each, last, BLOCK):
        row, seen = (begin + near) * (groups * WIDTH), begin + near < last
        keys = tl.load(k + begins + row[None, :] + col[:, None], mask=seen[None, :], other=0.0)
        values = tl.load(v + begins + row[:, None] + col[None, :], mask=seen[:, None], other=0.0)
        scores = tl.where(
            seen[None, :], tl.dot(queries, keys, input_precision="ieee") * (scale * 1.4426950408889634), float("-inf")
        )
        above = tl.maximum(top, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - above[:, None]), tl.exp2(top - above)
        total = tl.dot(weights.to(values.dtype), values, total * shrink[:, None], input_precision="ieee")
        weight, top = weight * shrink + tl.sum(weights, 1), above
    place = part * tl.num_programs(0) * groups * shared + head
    divisor = tl.where(weight > 0, weight, 1.0)
    tl.store(means + place[:, None] * WIDTH + col[None, :], total / divisor[:, None], mask=there)
    log = tl.where(weight > 0, (top + tl.log2(divisor)) * 0.6931471805599453, float("-inf"))
    tl.store(logs + place, log, mask=member < shared)


@triton.jit  # type: ignore[untyped-decorator]
def _merge(means, logs, out, sums, strides, heads, chunk, parts, unit, PARTS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """The parts of a head's state as one, in the chunk of so many sequences and heads that has it."""
    state, part, col = tl.program_id(0), tl.arange(0, PARTS), tl.arange(0, WIDTH)
    log = tl.load(logs + part * strides[1] + state, mask=part < parts, other=float("-inf")) * unit
    at = part[:, None] * strides[0] + state * WIDTH + col[None, :]
    mean = tl.load(means + at, mask=(part < parts)[:, None], other=0.0).to(tl.float32)
    top = tl.max(log, 0)
    weights = tl.exp(log - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weights, 0)
    divisor = tl.where(total > 0, total, 1.0)
    mean = tl.sum(tl.where((weights > 0)[:, None], mean * weights[:, None], 0.0), 0) / divisor
    sequence, head = state // heads, state % heads
    number = sequence // chunk[0] * (heads // chunk[1]) + head // chunk[1]
    row = sequence % chunk[0] * chunk[1] + head % chunk[1]
    tl.store(out + number * strides[2] + row * WIDTH + col, mean.to(out.dtype.element_ty))
    if sums is not None:
        tl.store(sums + number * strides[3] + row, tl.log(divisor) + top)


def merge(states: States, heads: int, chunk: tuple[int, int], out: torch.Tensor, sums: torch.Tensor | None) -> None:
    """`out` [chunks, rows, D], `sums` [chunks, rows]."""
    means, logs, unit = states
    padded, width = triton.next_power_of_2(means.shape[0]), means.shape[2]
    strides = means.stride(0), logs.stride(0), out.stride(0), 0 if sums is None else sums.stride(0)
    sizes = heads, chunk, means.shape[0], unit, padded, width
    warps = 4 if padded * width > 1024 else 1
    _merge[(means.shape[1],)](means, logs, out, sums, strides, *sizes, num_warps=warps)


class Exchange:
    """Means and logarithms in one buffer, to the ranks that have the result along `dim` of [sequences, heads, D], or to all."""

    def __init__(self, like: torch.Tensor, dim: int | None) -> None:
        """`like` [sequences, heads, D] has the shape of the whole result, its dtype and device."""
        ranks, (tokens, heads, width) = dist.get_world_size(), like.shape
        self.heads, self.width, self.sends, self.dtype = heads, width, 1 if dim is None else ranks, like.dtype
        self.chunk = tokens // (ranks if dim == 0 else 1), heads // (ranks if dim == 1 else 1)
        self.many = self.chunk[0] * self.chunk[1]
        self.bytes = self.many * width * like.element_size()  # of the means of a chunk
        size = triton.cdiv(self.bytes + 4 * self.many, _LINE) * _LINE
        self.sent, self.received = (
            torch.empty(n * size, dtype=torch.uint8, device=like.device) for n in (self.sends, ranks)
        )
        self.out = torch.empty(*self.chunk, width, dtype=like.dtype, device=like.device)

    def _chunks(self, buffer: torch.Tensor, chunks: int) -> tuple[torch.Tensor, torch.Tensor]:
        means = buffer.view(self.dtype).view(chunks, -1)[:, : self.many * self.width]
        logs = buffer.view(torch.float32).view(chunks, -1)[:, self.bytes // 4 : self.bytes // 4 + self.many]
        return means.view(chunks, self.many, self.width), logs

    def pack(self, states: States) -> None:
        """A rank's own parts are merged first."""
        merge(states, self.heads, self.chunk, *self._chunks(self.sent, self.sends))

    def finish(self) -> torch.Tensor:
        """What is packed on all ranks, merged."""
        (dist.all_gather_into_tensor if self.sends == 1 else dist.all_to_all_single)(self.received, self.sent)
        states = *self._chunks(self.received, dist.get_world_size()), 1.0
        merge(states, self.chunk[1], self.chunk, self.out.view(1, self.many, self.width), None)
        return self.out


class Split:
    """The states of parts of a rank's tokens, which `Exchange.pack` merges."""

    def __init__(self, of: Tokens, parts: int, block: int, stages: int, device: torch.device) -> None:
        each = triton.cdiv(triton.cdiv(of.tokens, parts), block) * block
        self.stages, self.scale = stages, of.scale
        self.grid = of.sequences, of.keys, triton.cdiv(of.tokens, each)
        self.sizes = of.first, of.tokens, each, of.keys, of.queries // of.keys
        self.tile = max(16, triton.next_power_of_2(self.sizes[-1])), of.width, block
        shape = self.grid[2], of.sequences * of.queries, of.width
        self.means, self.logs = (torch.empty(one, dtype=torch.float32, device=device) for one in (shape, shape[:2]))

    def __call__(self, *given: torch.Tensor) -> States:
        """Of queries, keys, values and lengths."""
        how = self.sizes, self.scale, *self.tile
        _split[self.grid](*given, self.means, self.logs, *how, num_warps=4, num_stages=self.stages)
        return self.means, self.logs, 1.0
