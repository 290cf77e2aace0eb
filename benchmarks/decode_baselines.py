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
from tilelink.bench.split_states import Exchange, Split, States, Tokens

_PAGE = 16  # tokens of a page of flashinfer

Given = tuple[torch.Tensor, ...]
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


def split_of(row: Decode, parts: int, block: int, stages: int) -> Split:
    tokens = row.tokens // dist.get_world_size()
    sizes = row.queries, row.keys, row.width, row.width**-0.5
    return Split(
        Tokens(row.sequences, dist.get_rank() * tokens, tokens, *sizes), parts, block, stages, torch.device("cuda")
    )


def exchange_of(shape: Sequence[int], dim: int | None) -> Exchange:
    return Exchange(torch.empty(*shape, dtype=torch.bfloat16, device="cuda"), dim)


def tuned_split(row: Decode, exchange: Exchange, turn: Sequence[Given], least: int) -> Split:
    """The fastest: 32 parts as Triton-distributed has them, or as many as give an SM one, two or four programs."""
    sms = torch.cuda.get_device_properties().multi_processor_count
    parts = {32, *(max(1, sms * many // (row.sequences * row.keys)) for many in (1, 2, 4))}
    made = [split_of(row, many, *tile) for many, tile in product(sorted(parts), [(32, 4), (64, 3), (64, 4), (128, 3)])]
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
