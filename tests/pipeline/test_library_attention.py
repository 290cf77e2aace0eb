"""Attention by the library equals the definition on emulated ranks; what it cannot do is refused, and its mistakes are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.interpreter import InterpretedFunction

import lowering
import tilelink
import topologies
from lowering.host.library import LibraryCalls, merge_rows, merge_states
from tests.pipeline.attention_specs import How, by_definition, sizes_of, spec_of
from tests.proof.planted import refuted
from tilelink import Replicate, Shard, Tensor, dims
from tilelink.errors import TileLinkError
from tilelink.ir.calls import LibraryOp
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Attend, bind
from tilelink.planner.space import structures
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import rank
from tilelink.schedule.steps import Call, Step

LIBRARY = {"compute": "library"}
SIZES = {"S": 48, "T": 36, "Q": 4, "G": 2, "D": 16}
B, S, Q, G, D = dims("B S Q G D")


def planned(kind: str, how: How, ranks: int, sequences: int = 1, dtype: str = "bf16", **sizes: int) -> Schedule:
    every = {"B": sequences, **SIZES, **sizes}
    if kind == "heads":
        every |= {"Q": 2 * ranks, "G": ranks}
    operator = spec_of(kind, how)
    pins = LIBRARY | ({"mover": "Library()"} if kind in ("gathered", "cross") else {})
    machine = topologies.load("h100-nvswitch", ranks)
    return operator.plan_for(machine, sizes_of(operator, every), dtype, pins)


@pytest.mark.quick(6)
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(
    ("kind", "causal", "sequences", "ranks"),
    [
        *product(["gathered"], [False, True], [1], [2, 3, 4, 8]),
        *product(["given", "heads"], [False, True], [1, 3], [2, 3]),
        *product(["cross"], [False], [1], [2, 3]),
    ],
)
def test_it_is_what_the_definition_says(
    kind: str, causal: bool, sequences: int, ranks: int, dtype: str, target: str
) -> None:
    schedule = planned(kind, How(causal=causal, scale=0.3), ranks, sequences, dtype)
    spec = schedule.spec
    assert [type(launch.how) for launch in schedule.launches if isinstance(launch, LibraryOp)] == [Attend]
    assert verify(schedule).proved
    source = lowering.emit(schedule, target)
    assert run_emulated(schedule, source, calls=2).equal
    run = EmulatedRun(schedule, source, 7)
    run.call()
    run.finish()
    ((inputs, outputs),) = run.calls
    exact = by_definition(How(causal=causal, scale=0.3), ranks, *whole_inputs(spec, inputs).values())
    far = {"bf16": 0.03, "fp16": 0.004}[dtype]
    for number, (out,) in enumerate(outputs):
        part = cut(exact, spec.value(spec.outputs[0]).placement, number, ranks)
        assert (out.double() - part).abs().max() <= far


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("mover", ["CopyEngine()", "Library()"])
def test_its_results_may_be_gathered(mover: str, dim: int) -> None:
    placement, keys = Shard(dim), Replicate() if dim == 1 else Shard(dim)

    @tilelink.overlap
    def gathered(
        q: Tensor(B, S, Q, D, placement=placement),  # type: ignore[valid-type]
        k: Tensor(B, S, G, D, placement=keys),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D, placement=keys),  # type: ignore[valid-type]
    ) -> Tensor:
        return tilelink.all_gather(tilelink.attention(q, k, v, causal=True), dim=dim)

    sizes = {"B": 1, "S": 64, "Q": 4, "G": 2, "D": 16}
    pins = {"attention_out.compute": "library", "mover": mover}
    schedule = gathered.plan_for(topologies.load("h100-nvswitch", 2), sizes, "bf16", pins)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


@pytest.mark.parametrize(
    ("kind", "how", "sequences", "dtype"),
    [
        ("given", How(causal=True, window=5), 1, "bf16"),
        ("given", How(soft_cap=3.0), 1, "bf16"),
        ("gathered", How(causal=True, zigzag=True), 1, "bf16"),
        ("gathered", How(), 2, "bf16"),
        ("given", How(), 1, "fp32"),
        ("given", How(lse=True, base2=True), 1, "bf16"),
    ],
)
def test_what_it_cannot_do_is_refused(kind: str, how: How, sequences: int, dtype: str) -> None:
    with pytest.raises(TileLinkError):
        planned(kind, how, 2, sequences, dtype)


def attends(new: Callable[[Call], Call]) -> Callable[[Step], tuple[Step, ...]]:
    return lambda step: (new(step),) if isinstance(step, Call) and "attention" in step.function else (step,)


def numbered(at: int, new: object) -> Callable[[Call], Call]:
    return lambda step: replace(step, numbers=(*step.numbers[:at], new, *step.numbers[at + 1 :]))  # type: ignore[arg-type]


BUGS: dict[str, Callable[[Call], Call]] = {
    "another scale": lambda step: replace(step, scale=0.5),
    "no mask": lambda step: replace(step, function="attention", numbers=step.numbers[:2]),
    "the mask of rank 0": numbered(2, 0),
    "a mask of one key more": numbered(2, rank * 24 + 1),
    "heads of half the size": numbered(1, 8),
    "two sequences": numbered(0, 2),
    "values for keys": lambda step: replace(step, operands=(step.operands[0], step.operands[2], step.operands[2])),
    "keys for values": lambda step: replace(step, operands=(step.operands[0], step.operands[1], step.operands[1])),
    "own keys alone": lambda step: replace(
        step, operands=(step.operands[0], replace(step.operands[1], extent=(24, 32)), step.operands[2])
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_are_found(bug: str) -> None:
    assert refuted(planned("gathered", How(causal=True), 2), attends(BUGS[bug]))


def stand_in(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """What cuDNN's operation makes, on the CPU."""
    each = q.shape[1] // k.shape[1]
    scores = q.float() @ k.repeat_interleave(each, 1).float().transpose(2, 3) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1), -torch.inf)
    mean = torch.softmax(scores, 3) @ v.repeat_interleave(each, 1).float()
    return mean.to(q.dtype), scores.logsumexp(3, keepdim=True)


def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's operation has a stand-in with its arguments and results, and Triton's interpreter runs what merges."""
    monkeypatch.setattr("lowering.host.library.attend", stand_in)
    monkeypatch.setattr("lowering.host.library.merge_rows", InterpretedFunction(merge_rows.fn))


class Host(LibraryCalls):
    """The emitted host code, with cuDNN's attention by definition."""

    def _current(self) -> torch.autograd.grad_mode.no_grad:
        return torch.no_grad()


@pytest.mark.parametrize("first", [-1, 0, 24])
@pytest.mark.parametrize("sequences", [1, 2])
def test_the_host_code_merges_two_pieces(first: int, sequences: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, heads, keys, width = 24, 4, 2, 16
    on_the_cpu(monkeypatch)
    generator = torch.Generator().manual_seed(first + 10 * sequences)
    many = rows if first < 0 else rows + first
    q = torch.randn(sequences * rows, heads * width, generator=generator).bfloat16()
    k, v = (torch.randn(sequences * many, keys * width, generator=generator).bfloat16() for _ in range(2))
    out = torch.full_like(q, torch.nan)
    Host().attention(out, q, k, v, sequences, width, 0.25, first)
    cut_up = [one.view(sequences, -1, one.shape[1] // width, width).double() for one in (q, k, v)]
    if first >= 0:  # queries of the whole sequence, of which the last ones are own
        cut_up[0] = torch.cat([torch.zeros(sequences, first, heads, width, dtype=torch.float64), cut_up[0]], 1)
    exact = by_definition(How(causal=first >= 0, scale=0.25), 1, *cut_up)[:, max(first, 0) :]
    assert (out.view(exact.shape).double() - exact).abs().max() < 0.02


@pytest.mark.parametrize("ahead", [-9.0, -3.0, 0.0, 4.0, 9.0])
def test_a_merge_rounds_once_whatever_the_weights_are(ahead: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A share in few bits would lose what the side of little weight has: means are half a step off at most. In fp16, since the
    interpreter cuts bits of bf16 off."""
    on_the_cpu(monkeypatch)
    generator = torch.Generator().manual_seed(5)
    mean, more = (torch.randn(2, 3, 37, 16, generator=generator).half() * 4 for _ in range(2))
    weight, others = (torch.randn(2, 3, 37, 1, generator=generator) for _ in range(2))
    others = others + ahead
    share = torch.sigmoid(others.double() - weight.double())
    exact = mean.double() * (1 - share) + more.double() * share
    logs = torch.logaddexp(weight.double(), others.double())
    merge_states(mean, weight, more, others)
    step = torch.finfo(torch.float16).eps / 2 * exact.abs() + 1e-5
    assert ((mean.double() - exact).abs() <= step).all()
    assert (weight.double() - logs).abs().max() < 1e-5


def test_compiled_warps_have_loaded_all_logarithms_before_one_stores_new_ones() -> None:
    """Each warp loads the logarithms of all rows: what is stored in place must not be seen by one that is late."""
    names = [f"{one}_{dim}" for one in ("mean", "weight", "more", "others") for dim in "bhs"]
    pointers = {"mean": "*bf16", "weight": "*fp32", "more": "*bf16", "others": "*fp32"}
    signature = pointers | dict.fromkeys([*names, "heads", "num_rows"], "i32")
    signature |= dict.fromkeys(["WIDTH", "ROWS"], "constexpr")
    source: Any = ASTSource(merge_rows, signature, {"WIDTH": 128, "ROWS": 16})
    text = str(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
    kinds = re.findall(r"ld\.global|st\.global\.b32|bar\.sync", text)
    behind = len(kinds) - kinds[::-1].index("bar.sync")
    assert "ld.global" in kinds[:behind] and set(kinds[behind:]) == {"st.global.b32"}


@pytest.mark.parametrize(
    ("machine", "sequences", "library"),
    [("h100-nvswitch", 1, {"out"}), ("h100-nvswitch", 2, set()), ("mi300x-full-mesh", 1, set())],
)
def test_what_overlapping_is_compared_with(machine: str, sequences: int, library: set[str]) -> None:
    """All by the library that it can compute in one call behind its collectives: no parts of several sequences, none without
    cuDNN."""
    sizes = {"B": sequences, "S": 1024, "Q": 8, "G": 8, "D": 64}
    topology = topologies.load(machine, 4)
    spec = bind(spec_of("gathered", How()).spec, sizes, 4, "bf16")
    (found,) = (one for one in structures(spec, topology, {}) if one.all_by_library)
    assert found.library == library


@pytest.mark.parametrize(
    ("machine", "ranks", "sequences", "pins", "reason"),
    [
        ("mi300x-full-mesh", 2, 1, {}, r"is that of cuDNN, which MI300X has not"),
        (
            "h100-nvswitch",
            2,
            2,
            {"mover": "Library()"},
            r"tokens of each sequence of keys do not lie one behind the other",
        ),
        (
            "h100-nvswitch",
            2,
            1,
            {"keys.mover": "Library()", "values.mover": "CopyEngine()"},
            r"keys does not come part by part, as keys and values do where one of them does",
        ),
        (
            "laptop-switch",
            8,
            1,
            {"mover": "CopyEngine()", "transfer": "pull", "streams": "peer"},
            r"communication leaves no SM for the library.\n.*Legal beside the others: .*streams=one",
        ),
    ],
)
def test_a_refusal_says_why(machine: str, ranks: int, sequences: int, pins: dict[str, str], reason: str) -> None:
    sizes = {"B": sequences, "S": 64, "Q": 4, "G": 2, "D": 16}
    with pytest.raises(TileLinkError, match=reason):
        spec_of("gathered", How()).plan_for(topologies.load(machine, ranks), sizes, "bf16", LIBRARY | pins)
