"""What a user would pick instead of attention over tokens of all ranks.

| name | what it is |
| --- | --- |
| `nccl_attention` | keys and values by NCCL, then cuDNN's attention; a causal mask is two pieces, which one kernel merges |
| `torch_context_parallel` | attention part by part of keys beside NCCL, as torch's `context_parallel` computes it |
| `nccl_split_kv` | the fastest of some Triton kernels that split a rank's keys, NCCL, and a merge; no kernel for given states |

They have no window, no soft cap and no pages, and only torch has zigzag; other specs have no baseline here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product

import torch
import torch.distributed as dist
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tilelink.bench.fused_loop import local_us
from tilelink.bench.split_states import Exchange, Split, States, Tokens
from tilelink.bench.torch_ring import RingAttention
from tilelink.ir.placement import Shard
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    Attention,
    BoundNode,
    BoundSpec,
    DecodeAttention,
    MergeStates,
    ReduceScatter,
)
from tilelink.measuring.contender import Contender, Inputs, Kind, Mode
from tilelink.measuring.device import Call, Outputs
from tilelink.measuring.spec_problem import SpecSetting

_ROWS = 16  # of a program that merges
_SPLITS = ((32, 4), (64, 3), (64, 4), (128, 3))  # tokens of a tile, stages


def attention_baselines(spec: BoundSpec) -> list[Contender]:
    """Those of a spec that is one attention or merge with its collectives, and nothing else."""
    match [node.operation for node in spec.nodes]:
        case [AllGather(), AllGather(), Attention(window=0, soft_cap=0.0, zigzag=zigzag)] if _own_queries(spec):
            ring = Contender("torch_context_parallel", Kind.BASELINE, Mode.GRAPH, _ring, host=True)
            gathered = Contender("nccl_attention", Kind.BASELINE, Mode.GRAPH, _prefill, host=True)
            return [ring] if zigzag else [gathered, ring]
        case [DecodeAttention(window=0, soft_cap=0.0, pages=False), ReduceScatter() | AllReduce()]:
            return [Contender("nccl_split_kv", Kind.BASELINE, Mode.GRAPH, _decode, host=True)]
        case [MergeStates(), ReduceScatter() | AllReduce()]:
            return [Contender("nccl_split_kv", Kind.BASELINE, Mode.GRAPH, _given, host=True)]
    return []


def _own_queries(spec: BoundSpec) -> bool:
    """Whether queries, keys and values are all sharded by tokens."""
    gathered = {node.output.name: node.inputs[0] for node in spec.nodes[:2]}
    inputs = {value.name: value for value in spec.inputs}
    names = [gathered.get(name, name) for name in spec.nodes[2].inputs]
    return all(name in inputs and inputs[name].placement == Shard(1) for name in names)


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
    """Keys [B, S, G, D] and values of all ranks, whose tokens each follow those of the rank before."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float) -> None:
        ranks = dist.get_world_size()
        self.own, self.causal, self.scale, self.q = (k, v), causal, scale, q.transpose(1, 2)
        shape = k.shape[0], ranks * k.shape[1], *k.shape[2:]
        self.all = [torch.empty(shape, dtype=k.dtype, device=k.device) for _ in range(2)]
        self.before = k.shape[1] * dist.get_rank()

    def gather(self) -> None:
        """Sequence by sequence, so that each lies in one piece."""
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


def _named(setting: SpecSetting, node: BoundNode) -> list[torch.Tensor]:
    """What the caller gives for the operands of a node; for what is gathered, the part of it."""
    spec = setting.spec
    sources = {one.output.name: one.inputs[0] for one in spec.nodes if isinstance(one.operation, AllGather)}
    given = dict(zip((value.name for value in spec.inputs), setting.inputs, strict=True))
    return [given[sources.get(name, name)] for name in node.inputs]


def _prefill(setting: SpecSetting) -> Call:
    node = setting.spec.nodes[2]
    assert isinstance(node.operation, Attention), "of what is gathered"
    q, k, v = _named(setting, node)
    return GatheredAttention(q, k, v, node.operation.causal, float(node.operation.scale))


def _ring(setting: SpecSetting) -> Call:
    node = setting.spec.nodes[2]
    assert isinstance(node.operation, Attention), "of what is gathered"
    how, (q, k, v) = node.operation, _named(setting, node)
    return RingAttention(q, k, v, causal=how.causal, zigzag=how.zigzag, scale=float(how.scale))


def _exchange(setting: SpecSetting, like: torch.Tensor) -> Exchange:
    last = setting.spec.nodes[1].operation
    return Exchange(like, last.dim if isinstance(last, ReduceScatter) else None)


def _given(setting: SpecSetting) -> Call:
    """States that the caller has."""
    node = setting.spec.nodes[0]
    means, logs = _named(setting, node)
    assert isinstance(node.operation, MergeStates), "of states"
    unit, exchange = math.log(2) if node.operation.base2 else 1.0, _exchange(setting, means)
    states: States = means.reshape(1, -1, means.shape[2]), logs.reshape(1, -1), unit
    return lambda: _sent(exchange, states)


def _sent(exchange: Exchange, states: States) -> Outputs:
    exchange.pack(states)
    return (exchange.finish(),)


def _decode(setting: SpecSetting) -> Call:
    """With the split that is the fastest."""
    node = setting.spec.nodes[0]
    q, k, v, *more = _named(setting, node)
    assert isinstance(node.operation, DecodeAttention), "of one query a sequence"
    whole = torch.full((q.shape[0],), k.shape[1] * dist.get_world_size(), dtype=torch.int32, device=q.device)
    given = (q, k, v, more[0] if more else whole)
    first = dist.get_rank() * k.shape[1]
    of = Tokens(q.shape[0], first, k.shape[1], q.shape[1], k.shape[2], q.shape[2], float(node.operation.scale))
    exchange = _exchange(setting, q)
    split = fastest_split(of, exchange, given)
    return lambda: _sent(exchange, split(*given))


def fastest_split(of: Tokens, exchange: Exchange, given: Inputs) -> Split:
    """Of some: 32 parts, or as many as give an SM one, two or four programs. On the CPU the first."""
    device = given[0].device
    if device.type == "cpu":
        return Split(of, 3, *_SPLITS[0], device)
    sms = torch.cuda.get_device_properties(device).multi_processor_count
    parts = {32, *(max(1, sms * many // (of.sequences * of.keys)) for many in (1, 2, 4))}
    made = [Split(of, many, *tile, device) for many, tile in product(sorted(parts), _SPLITS)]

    def alone(split: Split) -> Callable[[], None]:
        return lambda: exchange.pack(split(*given))

    times = torch.tensor([local_us(alone(one)) for one in made], device=device)
    dist.all_reduce(times, dist.ReduceOp.MAX)
    return made[int(times.argmin())]
