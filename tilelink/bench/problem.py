"""Inputs of a row and what its outputs should be: the meaning of its declaration in float64, the same for every contender."""

from __future__ import annotations

import torch

from lowering.selfcheck.near import Near
from tilelink.bench.contender import Inputs
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator, Row
from tilelink.ir.placement import Shard
from tilelink.ir.spec import bind
from tilelink.runtime.bounds import TORCH_DTYPES, near_values


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


def reference(row: Row, rank_inputs: list[Inputs], rank: int) -> Near:
    """The output of `rank`, from the inputs of every rank; it may have been computed by libraries, which round more often.

    Whole tensors are computed on the device of the inputs: about 20 GB for the MLP of a 70B model, until this returns.
    """
    spec = bind(declaration(row.operator, row.k_major).spec, row.sizes, len(rank_inputs), row.dtype)
    names = [value.name for value in spec.inputs]
    ranks = [dict(zip(names, inputs, strict=True)) for inputs in rank_inputs]
    (output,) = spec.outputs
    (found,) = near_values(spec, ranks, [node.output.name for node in spec.nodes], [output])[output]
    placement = spec.value(output).placement
    if isinstance(placement, Shard):
        found = found.parts(spec.num_ranks, placement.dim)[rank]
    assert isinstance(found.error, torch.Tensor), "every operator rounds"
    return Near(found.value.clone(), found.error.clone())  # lets go of what other ranks have
