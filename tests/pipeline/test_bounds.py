"""Bounds hold for every way in which a right result may be rounded, and are those that emitted files carry."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch

import lowering
import topologies
from lowering.libraries import library_values
from lowering.selfcheck.compare import Comparison
from lowering.selfcheck.near import Near
from tests.pipeline.random_specs import random_spec
from tilelink import Shard, Tensor, all_reduce, dims, matmul, overlap
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.ir.placement import Partial, Replicate
from tilelink.ir.placement import Shard as ShardPlacement
from tilelink.ir.spec import AllGather, AllReduce, BoundNode, BoundSpec, Elementwise, Matmul, ReduceScatter, SendRecv
from tilelink.planner.sample import sample_schedule
from tilelink.runtime.bounds import TORCH_DTYPES, near_values
from tilelink.runtime.compare import outputs_with_bounds
from tilelink.runtime.load import load_source
from tilelink.runtime.meaning import evaluate, whole_inputs
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
Values = dict[str, list[torch.Tensor]]  # whole tensors in fp32, of Partial values the summand of each rank


@overlap
def value_head(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):  # type: ignore[valid-type, no-untyped-def]
    return all_reduce(matmul(x, w))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 40))])
def test_a_right_result_of_one_element_is_equal(seed: int) -> None:
    """Eight summands that cancel: the error is large beside the sum, and small beside what is added."""
    schedule = value_head.plan("laptop-switch", 8, M=1, K=512, N=1)
    result = run_emulated(schedule, lowering.emit(schedule), seed=seed)
    assert result.equal, result.lines()


class _Rounding:
    """A right evaluation in fp32: each value is rounded to its dtype or is not, sums go in any order, libraries round pieces."""

    def __init__(self, spec: BoundSpec, rng: random.Random, library: bool) -> None:
        self.spec, self.rng, self.library = spec, rng, library

    def values(self, ranks: list[dict[str, torch.Tensor]]) -> Values:
        found: Values = {}
        for value in self.spec.inputs:
            parts = [held[value.name].float() for held in ranks]
            match value.placement:
                case Partial():
                    found[value.name] = parts
                case Replicate():
                    found[value.name] = parts[:1]
                case ShardPlacement(dim):
                    found[value.name] = [torch.cat(parts, dim)]
        for node in self.spec.nodes:
            operands = [found[name] for name in node.inputs]
            found[node.output.name] = [self._perhaps(value, node.output.dtype) for value in self._node(node, operands)]
        return found

    def _perhaps(self, value: torch.Tensor, dtype: str) -> torch.Tensor:
        return value.to(TORCH_DTYPES[dtype]).float() if self.rng.random() < 0.7 else value

    def _node(self, node: BoundNode, operands: list[list[torch.Tensor]]) -> list[torch.Tensor]:
        ranks, placement = self.spec.num_ranks, node.output.placement
        match node.operation:
            case AllGather():
                return operands[0]
            case SendRecv(by):
                assert isinstance(placement, ShardPlacement)
                parts = operands[0][0].chunk(ranks, placement.dim)
                return [torch.cat([parts[(rank - by) % ranks] for rank in range(ranks)], placement.dim)]
            case ReduceScatter() | AllReduce():
                return [self._sum(operands[0], node.output.dtype)]
        if placement != Partial():
            return [self._local(node, [operand[0] for operand in operands])]
        if all(len(operand) == 1 for operand in operands):
            operands = [
                list(operand[0].chunk(ranks, given.dim)) if isinstance(given, ShardPlacement) else operand
                for given, operand in zip((self.spec.value(n).placement for n in node.inputs), operands, strict=True)
            ]
        return [self._local(node, [operand[rank % len(operand)] for operand in operands]) for rank in range(ranks)]

    def _sum(self, summands: list[torch.Tensor], dtype: str) -> torch.Tensor:
        order = self.rng.sample(summands, len(summands))
        total = order[0]
        for summand in order[1:]:
            total = total + summand
            if self.library:
                total = total.to(TORCH_DTYPES[dtype]).float()
        return total

    def _local(self, node: BoundNode, operands: list[torch.Tensor]) -> torch.Tensor:
        match node.operation:
            case Matmul(transposed):
                left, right = operands[0], operands[1].T if transposed else operands[1]
                cuts = sorted({0, left.shape[1], *(self.rng.randrange(left.shape[1]) for _ in range(3))})
                pieces = [left[:, a:b] @ right[a:b] for a, b in pairwise(cuts)]
                if self.library:
                    pieces = [piece.to(TORCH_DTYPES[node.output.dtype]).float() for piece in pieces]
                return torch.stack(pieces).sum(0)
            case Elementwise(function):
                return FUNCTIONS[function].meaning(*operands)
        raise AssertionError(node.operation)


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 15))])
@pytest.mark.parametrize("library", [False, True])
def test_no_right_result_is_refused(block: int, library: bool) -> None:
    for seed in range(20 * block, 20 * block + 20):
        rng = random.Random(seed)
        spec = random_spec(rng, rng.choice((2, 3, 4, 7)), queues=True)
        inputs = make_inputs(spec, seed)
        names = [node.output.name for node in spec.nodes]
        near = near_values(spec, inputs, names if library else ())
        found = _Rounding(spec, rng, library).values(inputs)
        for name in names:
            dtype = TORCH_DTYPES[spec.value(name).dtype]
            for result, one in zip(found[name], near[name], strict=True):
                comparison = Comparison.of(result.to(dtype), one)
                assert comparison.equal, (seed, name, comparison.text(), [node.operation for node in spec.nodes])


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_emitted_files_carry_these_bounds(seed: int) -> None:
    """The values are those of the meaning, which shares no code with bounds; errors those of `near_values`."""
    rng = random.Random(seed)
    num_ranks = rng.choice((2, 3, 4))
    spec = random_spec(rng, num_ranks, queues=seed % 2 == 0)
    schedule = sample_schedule(spec, topologies.load("laptop-switch", num_ranks), rng)
    inputs = make_inputs(spec, seed)
    values = evaluate(spec, whole_inputs(spec, inputs))
    for name, near in near_values(spec, inputs, ()).items():
        total = torch.stack([one.value.double() for one in near]).sum(0)
        torch.testing.assert_close(total, values[name], rtol=1e-12, atol=1e-12)
    carried = load_source(lowering.emit(schedule), "carried").reference(inputs)
    for theirs, ours in zip(carried, outputs_with_bounds(spec, inputs, library_values(schedule)), strict=True):
        for one, other in zip(theirs, ours, strict=True):
            torch.testing.assert_close(one.value.double(), other.value, rtol=1e-12, atol=1e-12)
            errors = (torch.as_tensor(each.error) for each in (one, other))
            torch.testing.assert_close(*errors, rtol=1e-4, atol=1e-12)  # functions are written in two ways


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_bounds_of_users_ops(dtype: torch.dtype) -> None:
    """An op may compute in fp32, or round what it has in between; a lost row is seen."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 96, generator=generator).to(dtype)
    w = (torch.randn(96, 64, generator=generator) / 96**0.5).to(dtype)

    def square(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ w) ** 2

    def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) @ w

    def rounded_attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.float(), -1).to(dtype).float() @ w.float()

    for meant, done in ((square, square), (attention, attention), (attention, rounded_attention)):
        near = Near.user(meant, dtype, Near(x), Near(w)).rounded(dtype)
        right = done(x.float(), w.float()).to(dtype)
        assert Comparison.of(right, near).equal
        wrong = right.clone()
        wrong[3] = right[4]
        assert Comparison.of(wrong, near).rows == (3, 3)
        assert Comparison.of(wrong, near).wrong > 24


def test_bounds_of_functions_in_fp32() -> None:
    """Of operands near 0, trials of a softmax hardly move: what exp and the division round is allowed, and no more than that."""
    x = torch.randn(16, 15, generator=torch.Generator().manual_seed(0)) * 1e-3
    near = Near.user(lambda x: torch.softmax(x, -1), torch.float32, Near(x)).rounded(torch.float32)
    value = torch.softmax(x.double(), -1)
    last_place = torch.finfo(torch.float32).eps * value
    assert Comparison.of((value + 3 * last_place).float(), near).equal
    assert Comparison.of((value + 16 * last_place).float(), near).wrong == value.numel()
    lost = torch.softmax(x.double()[:, :-1], -1)
    assert Comparison.of(torch.cat((lost, value[:, -1:]), 1).float(), near).wrong >= lost.numel()


def test_where_a_dtype_ends_anything_is_right() -> None:
    large = Near(torch.tensor([70000.0, 60000.0, 1e-9])).rounded(torch.float16)
    assert isinstance(large.error, torch.Tensor)
    assert large.error[0] == torch.inf and large.error[1] < 32 and 2**-25 <= large.error[2] < 2**-24
    assert Comparison.of(torch.tensor([torch.inf, 60000.0, 0.0]).half(), large).equal
