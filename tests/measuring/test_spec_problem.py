"""Inputs and wanted outputs of any spec, for measuring: against torch, and against the reference of runs."""

from __future__ import annotations

from typing import Annotated

import pytest
import torch

import tilelink
from tests.pipeline.expert_specs import SPECS
from tilelink import Replicate, Shard, Tensor, dims
from tilelink.declaration import Overlap
from tilelink.ir.spec import bind
from tilelink.measuring.spec_problem import flops_of, local_inputs, make_inputs, spec_problem, wanted_of
from tilelink.runtime.reference import expected

M, K, N = dims("M K N")
CPU = torch.device("cpu")
SIZES = {"M": 6, "K": 8, "N": 4}


@tilelink.overlap
def two_outputs(
    x: Annotated[Tensor, (M, K), Shard(0)],
    w: Annotated[Tensor, (K, N), Shard(1)],
    v: Annotated[Tensor, (N, K), Shard(0)],
) -> tuple[Tensor, Tensor]:
    h = tilelink.silu(tilelink.matmul(tilelink.all_gather(x, dim=0), w))
    return tilelink.reduce_scatter(tilelink.matmul(h, v), dim=0), h


@tilelink.overlap
def replicated(x: Annotated[Tensor, (M, K), Replicate()], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return tilelink.matmul(x, w)


def test_wanted_is_what_torch_computes_from_the_parts_of_all_ranks() -> None:
    spec = bind(two_outputs.spec, SIZES, 2, "fp32")
    ranks = [make_inputs(spec, rank, 5, CPU) for rank in range(2)]
    x = torch.cat([one[0] for one in ranks]).double()
    w = torch.cat([one[1] for one in ranks], 1).double()
    v = torch.cat([one[2] for one in ranks]).double()
    h = torch.nn.functional.silu(x @ w)
    for rank in range(2):
        scattered, hidden = wanted_of(spec, ranks, rank)
        torch.testing.assert_close(scattered.value.double(), (h @ v)[3 * rank : 3 * rank + 3])
        torch.testing.assert_close(hidden.value.double(), h[:, 2 * rank : 2 * rank + 2])
        assert (torch.as_tensor(hidden.error) > 0).all()


def test_parts_differ_and_what_all_ranks_have_does_not() -> None:
    spec = bind(replicated.spec, SIZES, 2, "bf16")
    (x, w), (same, other) = (make_inputs(spec, rank, 0, CPU) for rank in range(2))
    assert torch.equal(x, same)
    assert not torch.equal(w, other)
    assert [(tuple(one.shape), one.dtype) for one in (x, w)] == local_inputs(spec)


def test_fresh_inputs_are_others() -> None:
    spec = bind(two_outputs.spec, SIZES, 2, "fp32")
    problem = spec_problem(spec, 1, 0, CPU)
    inputs, wanted = problem.fresh()
    assert [one.shape for one in inputs] == [one.shape for one in problem.setting.inputs]
    assert not any(torch.equal(one, other) for one, other in zip(inputs, problem.setting.inputs, strict=True))
    assert not torch.equal(wanted[0].value, problem.wanted[0].value)


@pytest.mark.parametrize("name", ["ag_moe", "moe_rs", "ep_layer"])
@pytest.mark.slow
def test_routed_specs_mean_what_a_run_is_compared_with(name: str) -> None:
    overlap: Overlap = SPECS[name]
    spec = bind(overlap.spec, {"T": 8, "H": 16, "F": 8, "E": 4, "K": 2}, 2, "fp32")
    ranks = [make_inputs(spec, rank, 0, CPU) for rank in range(2)]
    names = [value.name for value in spec.inputs]
    runs = expected(spec, [dict(zip(names, one, strict=True)) for one in ranks])
    for rank in range(2):
        for near, wanted in zip(wanted_of(spec, ranks, rank), runs[rank], strict=True):
            torch.testing.assert_close(near.value.double(), wanted)


def test_flops_of_a_rank() -> None:
    """Two matmuls of 2 M K N, each cut between the ranks; a spec whose operands are whole everywhere is not cut."""
    assert flops_of(bind(two_outputs.spec, SIZES, 2, "bf16")) == 2 * 2 * 6 * 8 * 4 / 2
    assert flops_of(bind(replicated.spec, SIZES, 2, "bf16")) == 2 * 6 * 8 * 4 / 2
