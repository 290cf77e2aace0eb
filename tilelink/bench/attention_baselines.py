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
from itertools import product

import torch
import torch.distributed as dist

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
from tilelink.measuring.library_attention import GatheredAttention
from tilelink.measuring.spec_problem import SpecSetting

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
