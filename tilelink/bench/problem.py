"""Inputs of a row and what its outputs should be: the meaning of its declaration in float64, the same for every contender."""

from __future__ import annotations

import torch

from lowering.selfcheck.near import Near
from tilelink.bench import expert_problem
from tilelink.bench.rows import Operator, Row
from tilelink.bench.spec_rows import bound_of
from tilelink.ir.placement import Shard
from tilelink.measuring.contender import Inputs
from tilelink.measuring.device import Change
from tilelink.measuring.normal import normal, seed_of
from tilelink.runtime.bounds import TORCH_DTYPES, near_values


def input_shapes(row: Row, num_ranks: int) -> list[tuple[int, ...]]:
    """Local shapes, activations first; weights as they lie."""
    if row.experts is not None:
        return list(expert_problem.shapes(row, num_ranks).values())
    activations, *weights = _plain_shapes(row, num_ranks)
    return [activations, *(((n, k) if row.k_major else (k, n)) for k, n in weights)]


def input_dtypes(row: Row, num_ranks: int) -> list[torch.dtype]:
    names = (
        expert_problem.input_types(row) if row.experts is not None else [row.dtype] * len(input_shapes(row, num_ranks))
    )
    return [TORCH_DTYPES[name] for name in names]


def _plain_shapes(row: Row, num_ranks: int) -> list[tuple[int, int]]:
    ffn = row.ffn // num_ranks
    match row.operator:
        case Operator.AG_GEMM:
            return [(row.m // num_ranks, row.hidden), (row.hidden, ffn)]
        case Operator.GEMM_RS | Operator.GEMM_AR:
            return [(row.m, ffn), (ffn, row.hidden)]
        case Operator.MLP:
            return [(row.m // num_ranks, row.hidden), (row.hidden, ffn), (row.hidden, ffn), (ffn, row.hidden)]
        case Operator.AG_MOE | Operator.MOE_RS | Operator.EP_LAYER:
            raise AssertionError(f"{row.operator.value} has experts")


def contracted(row: Row) -> list[int]:
    """For each weight the global size of the dimension that its matmul contracts."""
    match row.operator:
        case Operator.AG_GEMM:
            return [row.hidden]
        case Operator.GEMM_RS | Operator.GEMM_AR:
            return [row.ffn]
        case Operator.MLP:
            return [row.hidden, row.hidden, row.ffn]
        case Operator.AG_MOE | Operator.MOE_RS | Operator.EP_LAYER:
            raise AssertionError(f"{row.operator.value} has experts")


def make_inputs(row: Row, rank: int, num_ranks: int, seed: int, device: torch.device) -> Inputs:
    """Normal activations, and weights scaled by 1 / sqrt(K) so that results stay near 1; other ones on every rank."""
    if row.experts is not None:
        return expert_problem.make_expert_inputs(row, rank, num_ranks, seed, device)
    scales = [1.0, *(size**-0.5 for size in contracted(row))]
    return tuple(
        normal(shape, scale, seed_of(seed, rank, number), row.dtype, device)
        for number, (shape, scale) in enumerate(zip(input_shapes(row, num_ranks), scales, strict=True))
    )


def make_activations(row: Row, rank: int, num_ranks: int, seed: int, device: torch.device) -> Inputs:
    """What comes before weights in the inputs with this seed. Ids of experts are others than those of any inputs."""
    if row.experts is not None:
        return expert_problem.make_expert_activations(row, rank, num_ranks, seed, device)
    return (normal(input_shapes(row, num_ranks)[0], 1.0, seed_of(seed, rank, 0), row.dtype, device),)


def changes(row: Row, rank: int, num_ranks: int, inputs: Inputs) -> Change | None:
    """What changes in `inputs` between replays: ids of experts."""
    return expert_problem.changing_ids(row, rank, num_ranks, inputs) if row.experts is not None else None


def reference(row: Row, rank_inputs: list[Inputs], rank: int) -> Near:
    """The output of `rank`, from the inputs of every rank; it may have been computed by libraries, which round more often.

    Whole tensors are computed on the device of the inputs: about 20 GB for the MLP of a 70B model, until this returns.
    """
    spec = bound_of(row, len(rank_inputs))
    names = [value.name for value in spec.inputs]
    ranks = [dict(zip(names, inputs, strict=True)) for inputs in rank_inputs]
    (output,) = spec.outputs
    (found,) = near_values(spec, ranks, [node.output.name for node in spec.nodes], [output])[output]
    placement = spec.value(output).placement
    if isinstance(placement, Shard):
        found = found.parts(spec.num_ranks, placement.dim)[rank]
    assert isinstance(found.error, torch.Tensor), "every operator rounds"
    return Near(found.value.clone(), found.error.clone())  # lets go of what other ranks have
