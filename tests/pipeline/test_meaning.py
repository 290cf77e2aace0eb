"""What a spec means is what torch computes on whole tensors: every operation over every placement, and random specs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import lowering
import tilelink
import topologies
from tests.pipeline import user_ops
from tests.pipeline.random_specs import random_program
from tilelink import Partial, Replicate, Shard, Tensor
from tilelink.errors import TileLinkError
from tilelink.ir.location import here
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.ir.placement import ByExpert, Placement
from tilelink.ir.spec import BoundSpec, Spec, bind
from tilelink.ir.trace import Trace
from tilelink.ir.user_op import UserOp
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from tilelink.runtime.meaning import evaluate, whole_inputs
from tilelink.runtime.reference import expected, make_inputs
from tilelink.runtime.run import run_emulated
from topologies.errors import IllegalRanks

M, N, K = 12, 18, 24
RANKS = 3


@dataclass(frozen=True, slots=True)
class Case:
    call: Callable[..., Tensor]
    torch: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]


def _user(name: str, *shapes: tuple[int, ...]) -> Case:
    return Case(user_ops.OPS[name], user_ops.DEFINITIONS[name], shapes)


LOCAL = {  # operations that ranks compute without each other
    "matmul": Case(tilelink.matmul, torch.mm, ((M, K), (K, N))),
    "matmul of a transposed one": Case(lambda x, w: x @ w.T, lambda x, w: x @ w.T, ((M, K), (N, K))),
    "silu": Case(tilelink.silu, functional.silu, ((M, N),)),
    "gelu": Case(tilelink.gelu, functional.gelu, ((M, N),)),
    "relu": Case(tilelink.relu, functional.relu, ((M, N),)),
    "relu of a row": Case(tilelink.relu, functional.relu, ((N,),)),
    "add": Case(tilelink.add, torch.add, ((M, N), (M, N))),
    "add a row": Case(tilelink.add, torch.add, ((M, N), (N,))),
    "add to a row": Case(tilelink.add, torch.add, ((1, N), (M, N))),
    "add rows": Case(tilelink.add, torch.add, ((N,), (N,))),
    "mul": Case(tilelink.mul, torch.mul, ((M, N), (M, N))),
    "mul by a row": Case(tilelink.mul, torch.mul, ((M, N), (1, N))),
    "mul of a row": Case(tilelink.mul, torch.mul, ((N,), (M, N))),
    "neg": Case(lambda x: -x, torch.neg, ((M, N),)),
    "sub": Case(lambda x, y: x - y, torch.sub, ((M, N), (M, N))),
    "sub a row": Case(lambda x, y: x - y, torch.sub, ((M, N), (N,))),
    "sub a column": Case(lambda x, y: x - y, torch.sub, ((M, N), (M, 1))),
    "mul by a column": Case(lambda x, y: x * y, torch.mul, ((M, N), (M, 1))),
    "mul of a column and a row": Case(lambda x, y: x * y, torch.mul, ((M, 1), (1, N))),
    "div": Case(lambda x, y: x / y, torch.div, ((M, N), (M, N))),
    "div of a row": Case(lambda x, y: x / y, torch.div, ((N,), (M, N))),
    "add a number": Case(lambda x: x + 2.5, lambda x: x + 2.5, ((M, N),)),
    "sub from a number": Case(lambda x: 1 - x, lambda x: 1 - x, ((M, N),)),
    "mul by a number": Case(lambda x: 0.5 * x, lambda x: 0.5 * x, ((M, N),)),
    "div by a number": Case(lambda x: x / 4, lambda x: x / 4, ((M, N),)),
    "div of a number": Case(lambda x: 3 / x, lambda x: 3 / x, ((M, N),)),
    "rows": Case(lambda x: x[2:8], lambda x: x[2:8], ((M, N),)),
    "columns": Case(lambda x: x[:, 6:], lambda x: x[:, 6:], ((M, N),)),
    "some of a row": Case(lambda x: x[3:9], lambda x: x[3:9], ((N,),)),
    "tiled": _user("squared_relu", (M, N)),
    "reduced": _user("squared_relu_matmul", (M, K), (K, N)),
    "a sum": _user("product", (M, K), (K, N)),
    "whole rows": _user("softmax", (M, N)),
    "two shapes": _user("scale_rows", (M, N), (M,)),
    "to one dimension": _user("row_sums", (M, K)),
    "by place": _user("by_position", (M, N)),
    "turned": _user("turned", (N, M)),
}


def _placements(shape: tuple[int, ...]) -> list[Placement]:
    return [Replicate(), Partial(), *(Shard(dim) for dim, extent in enumerate(shape) if extent % RANKS == 0)]


def _parts(whole: torch.Tensor, placement: Placement) -> list[torch.Tensor]:
    match placement:
        case ByExpert():
            raise AssertionError("no tensor of these programs")
        case Replicate():
            return [whole] * RANKS
        case Shard(dim):
            return list(whole.tensor_split(RANKS, dim))
        case Partial():
            summands = [torch.randn_like(whole) for _ in range(RANKS - 1)]
            return [*summands, whole - sum(summands)]


def _right_placements(case: Case, placements: tuple[Placement, ...]) -> set[Placement]:
    """Placements of the result with which it is right if every rank applies the operation to its parts."""
    torch.manual_seed(0)
    wholes = [torch.randn(shape, dtype=torch.float64) for shape in case.shapes]
    held = [_parts(whole, placement) for whole, placement in zip(wholes, placements, strict=True)]
    wanted = case.torch(*wholes)
    try:
        results = [case.torch(*operands) for operands in zip(*held, strict=True)]
    except RuntimeError:  # parts that do not fit each other
        return set()
    found: dict[Placement, Callable[[], torch.Tensor]] = {
        Partial(): lambda: torch.stack(results).sum(0),
        **{Shard(dim): lambda dim=dim: torch.cat(results, dim) for dim in range(wanted.dim())},  # type: ignore[misc]
    }
    right = {placement for placement, whole in found.items() if _equal(whole(), wanted)}
    return right | ({Replicate()} if all(_equal(result, wanted) for result in results) else set())


def _equal(result: torch.Tensor, wanted: torch.Tensor) -> bool:
    return result.shape == wanted.shape and torch.allclose(result, wanted)


def _traced(case: Case, placements: tuple[Placement, ...]) -> tuple[Trace, Tensor] | None:
    trace = Trace()
    operands = [
        trace.declare(f"in{number}", Tensor(*shape, placement=placement))
        for number, (shape, placement) in enumerate(zip(case.shapes, placements, strict=True))
    ]
    try:
        return trace, case.call(*operands)
    except TileLinkError:
        return None


@pytest.mark.parametrize("name", LOCAL)
def test_what_ranks_cannot_compute_alone_is_refused_and_nothing_else(name: str) -> None:
    case = LOCAL[name]
    for placements in product(*map(_placements, case.shapes)):
        traced = _traced(case, placements)
        given = {traced[1].placement} if traced is not None else set()
        assert given == _right_placements(case, placements), f"{name} of {', '.join(map(str, placements))}"


def _spec(trace: Trace, result: Tensor) -> Spec:
    """The spec that returns `result`, once it is no summand any more."""
    if isinstance(result.placement, Partial):
        result = tilelink.all_reduce(result)
    computed = {node.output.name for node in trace.nodes}
    inputs = tuple(value for name, value in trace.values.items() if name not in computed)
    return Spec("one_operation", inputs, tuple(trace.nodes), (result.name,), ("one operation",), here())


def _gathered(case: Case, which: int, dim: int) -> tuple[Trace, Tensor]:
    """The operation of one operand that was gathered along `dim`; the others are replicated."""
    trace = Trace()
    operands = [
        trace.declare(f"in{number}", Tensor(*shape, placement=Shard(dim) if number == which else Replicate()))
        for number, shape in enumerate(case.shapes)
    ]
    operands[which] = tilelink.all_gather(operands[which], dim)
    return trace, case.call(*operands)


def _check_one(trace: Trace, result: Tensor, case: Case, seed: int) -> None:
    """Two random schedules of the spec give what torch gives for whole tensors, which the reference of runs gives as well."""
    spec = bind(_spec(trace, result), {}, RANKS, "fp32")
    inputs = make_inputs(spec, seed)
    whole = _whole(spec, inputs)
    wanted = case.torch(*(whole[value.name] for value in spec.inputs))
    for parts in zip(*expected(spec, inputs), strict=True):
        assert _equal(_assembled(spec, spec.outputs[0], parts), wanted)
    rng = random.Random(seed)
    for name in ("laptop-switch", "laptop-mesh"):
        schedule = sample_schedule(spec, topologies.load(name, RANKS), rng)
        assert verify(schedule).proved, f"{schedule}"
        found = run_emulated(schedule, lowering.emit(schedule), calls=2, seed=seed)
        assert found.equal, f"{chr(10).join(found.lines())}\n{schedule}"


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_every_operation_runs_over_every_placement(name: str) -> None:
    case = LOCAL[name]
    for number, placements in enumerate(product(*map(_placements, case.shapes))):
        traced = _traced(case, placements)
        if traced is not None:
            _check_one(*traced, case, number)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCAL)
def test_every_operation_runs_on_what_was_gathered(name: str) -> None:
    """Whether tiles read parts as they arrive, or all of them."""
    case = LOCAL[name]
    for which, shape in enumerate(case.shapes):
        for dim, extent in enumerate(shape):
            if extent % RANKS == 0:
                _check_one(*_gathered(case, which, dim), case, 10 * which + dim)


def test_whole_rows_of_what_was_gathered_along_them() -> None:
    """A part of the row had been taken for the row: every tile now waits for all of it."""
    case = LOCAL["whole rows"]
    _check_one(*_gathered(case, 0, 1), case, 0)


def _whole(spec: BoundSpec, ranks: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {value.name: _assembled(spec, value.name, [parts[value.name] for parts in ranks]) for value in spec.inputs}


def _assembled(spec: BoundSpec, name: str, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """The whole tensor in float64, from what every rank holds of it."""
    held = [part.double() for part in parts]
    match spec.value(name).placement:
        case Replicate():
            assert all(torch.equal(part, held[0]) for part in held)
            return held[0]
        case Shard(dim):
            return torch.cat(held, dim)
        case Partial():
            return torch.stack(held).sum(0)
        case ByExpert():
            raise AssertionError("no tensor of these programs")


def check_random_program(rng: random.Random) -> None:
    """The reference of a random spec is what torch makes of its program, and so is the result of a random schedule."""
    num_ranks, calls, seed = rng.choice((1, 2, 3, 4, 7)), 2, rng.randrange(1000)
    spec, program = random_program(rng, num_ranks, queues=num_ranks > 1, everything=True, sizes=(1, 2, 3, 5, 8))
    for call in range(calls):
        inputs = make_inputs(spec, 1000 * seed + call)
        wanted = program.in_torch(_whole(spec, inputs))
        meant = evaluate(spec, whole_inputs(spec, inputs))
        assert all(torch.allclose(meant[name], value, rtol=1e-9, atol=1e-12) for name, value in wanted.items())
        for name, *parts in zip(spec.outputs, *expected(spec, inputs), strict=True):
            assert torch.equal(_assembled(spec, name, parts), meant[name])
    topology = rng.choice(("laptop-switch", "laptop-mesh"))
    if num_ranks == 1:
        with pytest.raises(IllegalRanks):
            topologies.load(topology, num_ranks)
        return
    schedule = sample_schedule(spec, topologies.load(topology, num_ranks), random.Random(seed))
    proof = verify(schedule)
    assert proof.proved, f"{schedule}\n{chr(10).join(proof.lines())}"
    result = run_emulated(schedule, lowering.emit(schedule), calls, seed)
    assert result.equal, f"{chr(10).join(result.lines())}\n{schedule}"


@pytest.mark.parametrize("most", [10, pytest.param(10**9, marks=pytest.mark.slow, id="all")])
def test_random_programs(most: int, request: pytest.FixtureRequest) -> None:
    """By hand: pytest tests/pipeline/test_meaning.py -k test_random_programs --random-specs 1000."""
    count = min(most, request.config.getoption("--random-specs"))
    settings(max_examples=count)(given(st.randoms(use_true_random=False))(check_random_program))()


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_programs(block: int) -> None:
    for seed in range(40 * block, 40 * block + 40):
        check_random_program(random.Random(seed))


def test_a_reference_is_called_once_with_whole_tensors_in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Casts are how a norm is written; they do not round what it is compared with."""
    noted = "torch.calls.append((list(x.shape), x.dtype, w.dtype)) or "
    norm = "(x.float() * torch.rsqrt(x.to(torch.float32).pow(2).mean(1, keepdim=True))).to(torch.bfloat16) @ w.float()"
    trace = Trace()
    operands = [trace.declare(name, Tensor(*shape)) for name, shape in (("x", (M, K)), ("w", (K, N)))]
    spec = bind(_spec(trace, user_ops.OPS["product"](*operands)), {}, RANKS, "bf16")
    op = spec.nodes[0].operation
    assert isinstance(op, UserOp)
    node = replace(spec.nodes[0], operation=replace(op, reference=f"theirs = lambda x, w: {noted}{norm}"))
    calls: list[object] = []
    monkeypatch.setattr(torch, "calls", calls, raising=False)  # torch is all that a reference knows
    spec = replace(spec, nodes=(node,))
    whole = whole_inputs(spec, make_inputs(spec, 0))
    result = evaluate(spec, whole)[node.output.name]
    assert calls == [([M, K], torch.float64, torch.float64)]
    x, w = whole["x"], whole["w"]
    assert torch.allclose(result, x / x.square().mean(1, keepdim=True).sqrt() @ w, rtol=1e-12, atol=1e-12)
    assert torch.get_default_dtype() == torch.float32


def test_elementwise_functions_have_one_meaning() -> None:
    """The definition that runs are compared with, and the one in emitted files."""
    x, y = torch.randn(2, 100, dtype=torch.float64)
    for function in FUNCTIONS.values():
        operands = dict([("x", x), ("y", y)][: function.num_operands])
        printed = eval(function.on_tensors(*operands), {"torch": torch, **operands})
        assert torch.allclose(function.meaning(*operands.values()), printed, rtol=1e-12)
