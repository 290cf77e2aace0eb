"""What a user would pick instead, for every operator, and its parts alone.

| name | what it is |
| --- | --- |
| `nccl_cublas` | NCCL and cuBLAS one after the other |
| `async_tp`, `async_tp_graph` | torch's symmetric-memory operators (asynchronous tensor parallelism), eager and captured |
| `two_stream_2`, `two_stream_4` | cuBLAS chunk by chunk beside NCCL on a second stream, 2 and 4 chunks |
| `one_shot`, `two_shot` | cuBLAS into a symmetric buffer, then torch's symmetric-memory AllReduce |
| `gemm`, `gemm_k_major` | part: the matmuls of one rank by cuBLAS, with weights as given and with K-major ones |
| `collective` | part: the collectives by NCCL |

The gated MLP has its two first weights merged into one, as inference engines store them. Nothing here uses multicast.
Operators with experts have other baselines: `expert_baselines.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from tilelink.bench.against import TWO_STREAM_CHUNKS
from tilelink.bench.contender import Setting
from tilelink.bench.expert_baselines import expert_baselines
from tilelink.bench.rows import WITH_EXPERTS, Operator
from tilelink.bench.silu_mul import silu_mul
from tilelink.bench.two_streams import two_streams
from tilelink.measuring.contender import Contender, Kind, Mode
from tilelink.measuring.device import Call, Outputs

_ELSEWHERE = "baselines of experts are in expert_baselines.py"


@dataclass(frozen=True, slots=True)
class FusedOperators:
    """torch's asynchronous tensor parallelism, with the signatures of `torch.ops.symm_mem.fused_*`."""

    gather_matmul: Callable[..., tuple[torch.Tensor | None, list[torch.Tensor]]]
    matmul_scatter: Callable[..., torch.Tensor]


def torch_fused() -> FusedOperators:
    ops = torch.ops.symm_mem
    return FusedOperators(ops.fused_all_gather_matmul, ops.fused_matmul_reduce_scatter)


def baselines(operator: Operator, fused: FusedOperators, shared: bool = True) -> list[Contender]:
    """All that apply to an operator, its parts last. `shared`: each rank can have as many of the rows."""
    if operator in WITH_EXPERTS:
        return expert_baselines(operator)
    uneven = "" if shared else "no operator: fused_matmul_reduce_scatter needs as many rows for each rank"
    found = [Contender("nccl_cublas", Kind.BASELINE, Mode.GRAPH, sequential, host=True)]
    overlapped = partial(async_tp, fused=fused)
    found.append(Contender("async_tp", Kind.BASELINE, Mode.EAGER, overlapped, host=True, failure=uneven))
    found.append(Contender("async_tp_graph", Kind.BASELINE, Mode.GRAPH, overlapped, failure=uneven))
    for chunks in TWO_STREAM_CHUNKS:
        found.append(Contender(f"two_stream_{chunks}", Kind.BASELINE, Mode.GRAPH, partial(two_streams, chunks=chunks)))
    if operator is Operator.GEMM_AR:
        found.append(Contender("one_shot", Kind.BASELINE, Mode.GRAPH, one_shot))
        found.append(Contender("two_shot", Kind.BASELINE, Mode.GRAPH, two_shot))
    found.append(Contender("gemm", Kind.PART, Mode.GRAPH, gemm_alone))
    found.append(Contender("gemm_k_major", Kind.PART, Mode.GRAPH, partial(gemm_alone, k_major=True)))
    found.append(Contender("collective", Kind.PART, Mode.GRAPH, collective_alone))
    return found


def sequential(setting: Setting) -> Call:
    """NCCL and cuBLAS into buffers that are allocated once."""
    row, ranks, x = setting.row, setting.num_ranks, setting.x
    match row.operator:
        case Operator.AG_GEMM:
            full, out = setting.empty(row.m, row.hidden), setting.empty(row.m, row.ffn // ranks)

            def gather_matmul() -> Outputs:
                dist.all_gather_into_tensor(full, x)
                torch.mm(full, setting.weights[0], out=out)
                return (out,)

            return gather_matmul
        case Operator.GEMM_RS:
            y, part = setting.empty(row.m, row.hidden), setting.empty(row.m // ranks, row.hidden)

            def matmul_scatter() -> Outputs:
                torch.mm(x, setting.weights[0], out=y)
                dist.reduce_scatter_tensor(part, y)
                return (part,)

            return matmul_scatter
        case Operator.GEMM_AR:
            total = setting.empty(row.m, row.hidden)

            def matmul_reduce() -> Outputs:
                torch.mm(x, setting.weights[0], out=total)
                dist.all_reduce(total)
                return (total,)

            return matmul_reduce
        case Operator.MLP:
            return _sequential_mlp(setting)
        case Operator.AG_MOE | Operator.MOE_RS | Operator.EP_LAYER:
            raise AssertionError(_ELSEWHERE)


def _sequential_mlp(setting: Setting) -> Call:
    row, ranks, x = setting.row, setting.num_ranks, setting.x
    full, y = setting.empty(row.m, row.hidden), setting.empty(row.m, row.hidden)
    merged, hidden = setting.empty(row.m, 2 * row.ffn // ranks), setting.empty(row.m, row.ffn // ranks)
    part = setting.empty(row.m // ranks, row.hidden)
    first, last = merged_weight(setting), setting.weights[2]

    def mlp() -> Outputs:
        dist.all_gather_into_tensor(full, x)
        torch.mm(full, first, out=merged)
        silu_mul(hidden, merged)
        torch.mm(hidden, last, out=y)
        dist.reduce_scatter_tensor(part, y)
        return (part,)

    return mlp


def merged_weight(setting: Setting) -> torch.Tensor:
    """[H, 2F/R]: gate and up beside each other, in the layout of both."""
    if setting.row.k_major:
        return torch.cat(setting.inputs[1:3]).t()
    return torch.cat(setting.inputs[1:3], dim=1)


def group_name() -> str:
    name = dist.distributed_c10d._get_default_group().group_name
    return str(name)


def async_tp(setting: Setting, fused: FusedOperators) -> Call:
    """torch's operators allocate their results and their symmetric workspace themselves."""
    row, x, group = setting.row, setting.x, group_name()
    match row.operator:
        case Operator.AG_GEMM:
            return lambda: (fused.gather_matmul(x, [setting.weights[0]], 0, group)[1][0],)
        case Operator.GEMM_RS:
            return lambda: (fused.matmul_scatter(x, setting.weights[0], "sum", 0, group),)
        case Operator.GEMM_AR:
            total = setting.empty(row.m, row.hidden)

            def scatter_then_gather() -> Outputs:
                dist.all_gather_into_tensor(total, fused.matmul_scatter(x, setting.weights[0], "sum", 0, group))
                return (total,)

            return scatter_then_gather
        case Operator.MLP:
            first, last = merged_weight(setting), setting.weights[2]
            hidden = setting.empty(row.m, row.ffn // setting.num_ranks)

            def mlp() -> Outputs:
                silu_mul(hidden, fused.gather_matmul(x, [first], 0, group)[1][0])
                return (fused.matmul_scatter(hidden, last, "sum", 0, group),)

            return mlp
        case Operator.AG_MOE | Operator.MOE_RS | Operator.EP_LAYER:
            raise AssertionError(_ELSEWHERE)


def _symmetric(setting: Setting) -> torch.Tensor:
    y = symm_mem.empty(setting.row.m, setting.row.hidden, dtype=setting.x.dtype, device=setting.x.device)
    symm_mem.rendezvous(y, dist.distributed_c10d._get_default_group())
    return y


def one_shot(setting: Setting) -> Call:
    y, group = _symmetric(setting), group_name()

    def call() -> Outputs:
        torch.mm(setting.x, setting.weights[0], out=y)
        return (torch.ops.symm_mem.one_shot_all_reduce(y, "sum", group),)

    return call


def two_shot(setting: Setting) -> Call:
    """In place: the next call overwrites the result."""
    y, group = _symmetric(setting), group_name()

    def call() -> Outputs:
        torch.mm(setting.x, setting.weights[0], out=y)
        return (torch.ops.symm_mem.two_shot_all_reduce_(y, "sum", group),)

    return call


def gemm_alone(setting: Setting, k_major: bool = False) -> Call:
    """The matmuls that one rank computes, and nothing else; operands of the values that they meet in the operation."""
    row, ranks = setting.row, setting.num_ranks
    match row.operator:
        case Operator.AG_GEMM:
            pairs = [(setting.x.repeat(ranks, 1), setting.weights[0])]
        case Operator.GEMM_RS | Operator.GEMM_AR:
            pairs = [(setting.x, setting.weights[0])]
        case Operator.MLP:
            hidden = torch.randn_like(setting.empty(row.m, row.ffn // ranks)).mul_(0.5)
            pairs = [(setting.x.repeat(ranks, 1), merged_weight(setting)), (hidden, setting.weights[2])]
        case Operator.AG_MOE | Operator.MOE_RS | Operator.EP_LAYER:
            raise AssertionError(_ELSEWHERE)
    if k_major:
        pairs = [(left, right.t().contiguous().t()) for left, right in pairs]
    results = [setting.empty(left.shape[0], right.shape[1]) for left, right in pairs]

    def call() -> Outputs:
        for (left, right), out in zip(pairs, results, strict=True):
            torch.mm(left, right, out=out)
        return ()

    return call


def collective_alone(setting: Setting) -> Call:
    row, x, ranks = setting.row, setting.x, setting.num_ranks
    whole = setting.empty(row.m, row.hidden).zero_()  # sums of zeros stay finite
    part = setting.empty(row.m // ranks, row.hidden)

    def call() -> Outputs:
        if row.operator in (Operator.AG_GEMM, Operator.MLP):
            dist.all_gather_into_tensor(whole, x)
        if row.operator in (Operator.GEMM_RS, Operator.MLP):
            dist.reduce_scatter_tensor(part, whole)
        if row.operator is Operator.GEMM_AR:
            dist.all_reduce(whole)
        return ()

    return call
