"""What `decode.py` compares with: attention of libraries and a plain split over keys, each with an exchange by NCCL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from benchmarks.attention import slowest_us

_PAGE = 16  # tokens of a page of flashinfer

Given = tuple[torch.Tensor, ...]
States = tuple[
    torch.Tensor, torch.Tensor, float
]  # [parts, B * Q, D], [parts, B * Q], the logarithm of the latter's base
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], States]


@dataclass(frozen=True)
class Decode:
    sequences: int
    tokens: int  # of all ranks
    queries: int = 64  # heads
    keys: int = 8
    width: int = 128
    ragged: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        return {"B": self.sequences, "S": self.tokens, "Q": self.queries, "G": self.keys, "D": self.width}


def each_us(call: Callable[..., object], turn: Sequence[Given], least: int) -> float:
    """Of one of the calls in a CUDA graph, at least so many, which take turns with inputs."""
    given = list(turn) * math.ceil(least / len(turn))
    return round(slowest_us(lambda: [call(*one) for one in given]) / len(given), 2)


@triton.jit
def _read(keys, values, out, words, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.int32)
    for first in range(tl.program_id(0) * BLOCK, words, tl.num_programs(0) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        total ^= tl.load(keys + at, mask=at < words, other=0) ^ tl.load(values + at, mask=at < words, other=0)
    tl.store(out + tl.program_id(0), tl.xor_sum(total, 0))


@triton.jit
def _split(q, k, v, lengths, means, logs, sizes, scale, SHARED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
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
        scores = tl.where(seen[None, :], tl.dot(queries, keys) * (scale * 1.4426950408889634), float("-inf"))
        above = tl.maximum(top, tl.max(scores, 1))
        weights, shrink = tl.exp2(scores - above[:, None]), tl.exp2(top - above)
        total = tl.dot(weights.to(values.dtype), values, total * shrink[:, None])
        weight, top = weight * shrink + tl.sum(weights, 1), above
    place = part * tl.num_programs(0) * groups * shared + head
    divisor = tl.where(weight > 0, weight, 1.0)
    tl.store(means + place[:, None] * WIDTH + col[None, :], total / divisor[:, None], mask=there)
    log = tl.where(weight > 0, (top + tl.log2(divisor)) * 0.6931471805599453, float("-inf"))
    tl.store(logs + place, log, mask=member < shared)


@triton.jit
def _merge(means, logs, out, sums, strides, heads, chunk, parts, unit, PARTS: tl.constexpr, WIDTH: tl.constexpr):
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
    """Means in bf16 and logarithms in fp32 in one buffer, to the ranks of their tokens or heads, or to all; then one merge."""

    def __init__(self, tokens: int, heads: int, width: int, dim: int | None, device: str = "cuda") -> None:
        ranks = dist.get_world_size()
        self.heads, self.width, self.sends = heads, width, 1 if dim is None else ranks
        self.chunk = tokens // (ranks if dim == 0 else 1), heads // (ranks if dim == 1 else 1)
        self.many = self.chunk[0] * self.chunk[1]
        size = triton.cdiv(self.many * (2 * width + 4), 64) * 64  # bytes of a chunk
        self.sent, self.received = (
            torch.empty(n * size, dtype=torch.uint8, device=device) for n in (self.sends, ranks)
        )
        self.out = torch.empty(*self.chunk, width, dtype=torch.bfloat16, device=device)

    def _chunks(self, buffer: torch.Tensor, chunks: int) -> tuple[torch.Tensor, torch.Tensor]:
        words = self.many * self.width // 2
        means = buffer.view(torch.bfloat16).view(chunks, -1)[:, : 2 * words].unflatten(1, (self.many, self.width))
        return means, buffer.view(torch.float32).view(chunks, -1)[:, words : words + self.many]

    def pack(self, states: States) -> None:
        merge(states, self.heads, self.chunk, *self._chunks(self.sent, self.sends))

    def finish(self) -> torch.Tensor:
        (dist.all_gather_into_tensor if self.sends == 1 else dist.all_to_all_single)(self.received, self.sent)
        states = *self._chunks(self.received, dist.get_world_size()), 1.0
        merge(states, self.chunk[1], self.chunk, self.out.view(1, self.many, self.width), None)
        return self.out


class Split:
    """The states of parts of a rank's tokens, which `Exchange.pack` merges."""

    def __init__(self, row: Decode, parts: int, block: int, stages: int, device: str = "cuda") -> None:
        tokens, self.stages = row.tokens // dist.get_world_size(), stages
        each = triton.cdiv(triton.cdiv(tokens, parts), block) * block
        self.grid = row.sequences, row.keys, triton.cdiv(tokens, each)
        self.sizes = dist.get_rank() * tokens, tokens, each, row.keys, row.queries // row.keys
        self.tile = max(16, triton.next_power_of_2(self.sizes[-1])), row.width, block
        shape = self.grid[2], row.sequences * row.queries, row.width
        self.means, self.logs = (torch.empty(one, dtype=torch.float32, device=device) for one in (shape, shape[:2]))

    def __call__(self, *given: torch.Tensor) -> States:
        how = self.sizes, self.tile[1] ** -0.5, *self.tile
        _split[self.grid](*given, self.means, self.logs, *how, num_warps=4, num_stages=self.stages)
        return self.means, self.logs, 1.0


def tuned_split(row: Decode, exchange: Exchange, turn: Sequence[Given], least: int) -> Split:
    """The fastest: 32 parts as Triton-distributed has them, or as many as give an SM one, two or four programs."""
    sms = torch.cuda.get_device_properties().multi_processor_count
    parts = {32, *(max(1, sms * many // (row.sequences * row.keys)) for many in (1, 2, 4))}
    made = [Split(row, many, *tile) for many, tile in product(sorted(parts), [(32, 4), (64, 3), (64, 4), (128, 3)])]
    times = [each_us(lambda *one, split=split: exchange.pack(split(*one)), turn, least) for split in made]
    return made[times.index(min(times))]


def of_torch(name: str, row: Decode) -> Attention:
    """Heads that share keys are queries of one head."""
    shape = row.sequences, row.keys, row.queries // row.keys, row.width
    attend = getattr(torch.ops.aten, f"_scaled_dot_product_{name}_attention")
    more = (None, True) if name == "cudnn" else ()  # no bias, and the logarithms

    def states(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> States:
        out, logs = attend(q.view(shape), k.transpose(1, 2), v.transpose(1, 2), *more)[:2]
        return out.reshape(1, -1, row.width), logs.reshape(1, -1), 1.0

    return states


def of_flashinfer(row: Decode) -> Attention:
    """Its logarithms are of base 2."""
    import flashinfer

    total = row.sequences * row.tokens // dist.get_world_size() // _PAGE
    numbers = torch.arange(total + 1, dtype=torch.int32, device="cuda")
    starts = numbers[:: total // row.sequences].contiguous()
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        torch.zeros(2**27, dtype=torch.uint8, device="cuda"), "NHD", use_tensor_cores=True
    )
    sizes, dtype = (row.queries, row.keys, row.width, _PAGE), torch.bfloat16
    last = torch.full_like(starts[1:], _PAGE)
    wrapper.plan(starts, numbers[:-1], last, *sizes, q_data_type=dtype, kv_data_type=dtype)

    def states(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor) -> States:
        pages = tuple(one.view(total, _PAGE, row.keys, row.width) for one in (k, v))
        out, logs = wrapper.run(q, pages, return_lse=True)
        return out.view(1, -1, row.width), logs.view(1, -1), math.log(2)

    return states


def floor_us(turn: Sequence[Given], least: int) -> float:
    """The fastest of some programs that read keys and values."""
    out, words = torch.empty(2**13, dtype=torch.int32, device="cuda"), turn[0][1].numel() // 2
    sms = torch.cuda.get_device_properties().multi_processor_count

    def read(programs: int, block: int) -> Callable[..., object]:
        grid = (programs * sms,)
        return lambda q, k, v, lengths: _read[grid](k.view(torch.int32), v.view(torch.int32), out, words, block)

    return min(each_us(read(*one), turn, least) for one in product((2, 4, 8, 16), (1024, 2048, 4096)))
