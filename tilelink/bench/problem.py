"""Inputs of a row and what its outputs should be: torch and its collectives, in fp32, the same for every contender."""

from __future__ import annotations

import torch
import torch.distributed as dist

from lowering.entry import TOLERANCES
from tilelink.bench.contender import Inputs, matrices
from tilelink.bench.record import NOT_FINITE
from tilelink.bench.rows import Operator, Row
from tilelink.runtime.reference import TORCH_DTYPES


def input_shapes(row: Row, num_ranks: int) -> list[tuple[int, int]]:
    """Local shapes, activations first; weights as they lie."""
    activations, *weights = _plain_shapes(row, num_ranks)
    return [activations, *(((n, k) if row.k_major else (k, n)) for k, n in weights)]


def _plain_shapes(row: Row, num_ranks: int) -> list[tuple[int, int]]:
    ffn = row.ffn // num_ranks
    match row.operator:
        case Operator.AG_GEMM:
            return [(row.m // num_ranks, row.hidden), (row.hidden, ffn)]
        case Operator.GEMM_RS | Operator.GEMM_AR:
            return [(row.m, ffn), (ffn, row.hidden)]
        case Operator.MLP:
            return [(row.m // num_ranks, row.hidden), (row.hidden, ffn), (row.hidden, ffn), (ffn, row.hidden)]


def contracted(row: Row) -> list[int]:
    """For each weight the global size of the dimension that its matmul contracts."""
    match row.operator:
        case Operator.AG_GEMM:
            return [row.hidden]
        case Operator.GEMM_RS | Operator.GEMM_AR:
            return [row.ffn]
        case Operator.MLP:
            return [row.hidden, row.hidden, row.ffn]


def make_inputs(row: Row, rank: int, num_ranks: int, seed: int, device: torch.device) -> Inputs:
    """Normal activations, and weights scaled by 1 / sqrt(K) so that results stay near 1; other ones on every rank."""
    scales = [1.0, *(size**-0.5 for size in contracted(row))]
    return tuple(
        _normal(shape, scale, (seed * 64 + rank) * 8 + number, row.dtype, device)
        for number, (shape, scale) in enumerate(zip(input_shapes(row, num_ranks), scales, strict=True))
    )


def make_activations(row: Row, rank: int, num_ranks: int, seed: int, device: torch.device) -> torch.Tensor:
    """The first of the inputs with this seed."""
    return _normal(input_shapes(row, num_ranks)[0], 1.0, (seed * 64 + rank) * 8, row.dtype, device)


def _normal(shape: tuple[int, int], scale: float, seed: int, dtype: str, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    return (torch.randn(shape, generator=generator, device=device) * scale).to(TORCH_DTYPES[dtype])


def reference(row: Row, inputs: Inputs) -> torch.Tensor:
    """The local output in fp32, from the inputs of all ranks of the default process group."""
    x, *weights = (tensor.float() for tensor in (inputs[0], *matrices(row, inputs[1:])))
    match row.operator:
        case Operator.AG_GEMM:
            return _gathered(x) @ weights[0]
        case Operator.GEMM_RS:
            return _own_part(_summed(x @ weights[0]))
        case Operator.GEMM_AR:
            return _summed(x @ weights[0])
        case Operator.MLP:
            full = _gathered(x)
            hidden = torch.nn.functional.silu(full @ weights[0]) * (full @ weights[1])
            return _own_part(_summed(hidden @ weights[2]))


def _gathered(x: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def _summed(y: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(y)
    return y


def _own_part(y: torch.Tensor) -> torch.Tensor:
    return y.chunk(dist.get_world_size())[dist.get_rank()].clone()


def error_of(result: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative error (Frobenius norm) on this rank; NOT_FINITE for nan, infinity or another shape."""
    if result.shape != wanted.shape:
        return NOT_FINITE
    error = (result.float() - wanted).norm() / wanted.norm().clamp_min(1e-30)
    return float(torch.nan_to_num(error, nan=NOT_FINITE, posinf=NOT_FINITE).clamp_max(NOT_FINITE))


def tolerance(row: Row) -> float:
    return TOLERANCES[row.dtype]
