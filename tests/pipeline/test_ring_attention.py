"""Attention by the library part by part: over the own keys at once, over those of others as they come, merged into one state."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch

import lowering
import tilelink
import topologies
from lowering.host.library import LibraryCalls
from tests.pipeline.attention_specs import How, by_definition, logs_by_definition, sizes_of, spec_of
from tests.pipeline.test_library_attention import on_the_cpu
from tests.pipeline.test_reach import MOVERS
from tests.proof.planted import refuted
from tilelink import Replicate, Shard, Tensor, dims
from tilelink.compiled.check import check_compiled
from tilelink.errors import TileLinkError
from tilelink.ir.calls import LibraryOp
from tilelink.ir.movers import CopyEngine
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner import fields
from tilelink.planner.choices import Pins
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.load import load_source
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.steps import Call, If, Step, Wait

LIBRARY = {"out.compute": "library"}
ENGINES = {name: pins for name, pins in MOVERS.items() if "CopyEngine()" in pins["mover"]}
SIZES = {"S": 48, "T": 72, "Q": 4, "G": 2, "D": 16}
B, S, Q, G, D, H = dims("B S Q G D H")
OWNER = Index("owner")


def planned(
    kind: str, how: How, ranks: int, mover: str, sequences: int = 1, dtype: str = "bf16", **sizes: int
) -> Schedule:
    every = {"B": sequences, **SIZES, **sizes}
    operator = spec_of(kind, how)
    machine = topologies.load("h100-nvswitch", ranks)
    return operator.plan_for(machine, sizes_of(operator, every), dtype, {"compute": "library", **ENGINES[mover]})


def right(schedule: Schedule, how: How, target: str, seed: int = 7) -> None:
    """Every element of a call is near what the definition says."""
    assert verify(schedule).proved
    source = lowering.emit(schedule, target)
    assert run_emulated(schedule, source, calls=2).equal
    run = EmulatedRun(schedule, source, seed)
    run.call()
    run.finish()
    ((inputs, outputs),) = run.calls
    spec, ranks = schedule.spec, int(schedule.num_ranks)
    exact = by_definition(how, ranks, *whole_inputs(spec, inputs).values())
    far = {"bf16": 0.04, "fp16": 0.005}[spec.value(spec.outputs[0]).dtype]
    for number, (out,) in enumerate(outputs):
        part = cut(exact, spec.value(spec.outputs[0]).placement, number, ranks)
        assert (out.double() - part).abs().max() <= far


@pytest.mark.quick(4)
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
@pytest.mark.parametrize(
    ("kind", "causal", "sequences", "ranks", "mover", "dtype"),
    [
        *product(["gathered"], [False, True], [1, 3], [2, 3, 4, 8], ["push"], ["bf16"]),
        *product(["gathered"], [False, True], [2], [3], ENGINES, ["fp16"]),
        *product(["cross"], [False], [1, 2], [2, 3], ["push", "pull"], ["bf16"]),
    ],
)
def test_it_is_what_the_definition_says(
    kind: str, causal: bool, sequences: int, ranks: int, mover: str, dtype: str, target: str
) -> None:
    how = How(causal=causal, scale=0.3)
    schedule = planned(kind, how, ranks, mover, sequences, dtype)
    (launch,) = (one for one in schedule.launches if isinstance(one, LibraryOp))
    assert launch.split == ("keys", "values")
    right(schedule, how, target)


@pytest.mark.quick(2)
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
@pytest.mark.parametrize(
    ("kind", "causal", "sequences", "ranks"),
    [*product(["gathered"], [False, True], [1, 2], [2, 4]), *product(["heads", "given"], [False, True], [2], [2])],
)
def test_logarithms_are_what_the_definition_says(
    kind: str, causal: bool, sequences: int, ranks: int, target: str
) -> None:
    """Of a state that has all parts, and of one call."""
    how = How(causal=causal, scale=0.3, lse=True)
    operator = spec_of(kind, how)
    every = {"B": sequences, **SIZES} | ({"Q": 2 * ranks, "G": ranks} if kind == "heads" else {})
    pins = {"compute": "library"} | (ENGINES["push"] if kind == "gathered" else {})
    schedule = operator.plan_for(topologies.load("h100-nvswitch", ranks), sizes_of(operator, every), "bf16", pins)
    assert verify(schedule).proved
    source = lowering.emit(schedule, target)
    assert run_emulated(schedule, source, calls=2).equal
    run = EmulatedRun(schedule, source, 5)
    run.call()
    run.finish()
    ((inputs, outputs),) = run.calls
    spec, whole = schedule.spec, whole_inputs(schedule.spec, inputs)
    exact = by_definition(how, ranks, *whole.values()), logs_by_definition(how, ranks, *list(whole.values())[:2])
    for number, made in enumerate(outputs):
        for name, out, wanted in zip(spec.outputs, made, exact, strict=True):
            part = cut(wanted, spec.value(name).placement, number, ranks)
            assert (out.double() - part).abs().max() <= 0.04


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(40))
def test_a_random_schedule_computes_what_the_definition_says(seed: int) -> None:
    """Any movers that bring parts, any numbers of tokens and heads."""
    rng = random.Random(seed)
    ranks, kind, groups = rng.choice([2, 3, 4, 8]), rng.choice(["gathered", "cross"]), rng.choice([1, 2, 3])
    how = How(causal=kind == "gathered" and rng.random() < 0.6, scale=rng.choice([0.0, 0.3]))
    sizes = {
        "B": rng.choice([1, 2, 3]),
        "S": ranks * rng.randint(1, 90 // ranks),
        "T": ranks * rng.randint(1, 90 // ranks),
    }
    sizes |= {"Q": groups * rng.choice([1, 2, 4]), "G": groups, "D": rng.choice([16, 32])}
    operator = spec_of(kind, how)
    spec = bind(operator.spec, sizes_of(operator, sizes), ranks, rng.choice(["bf16", "fp16"]))
    machine = topologies.load(rng.choice(["laptop-switch", "h100-nvswitch"]), ranks)
    pins: Pins = {("out", fields.COMPUTE): True, ("", fields.MOVER): CopyEngine()}
    schedule = sample_schedule(spec, machine, rng, pins)
    assert any(isinstance(one, LibraryOp) and one.split for one in schedule.launches)
    right(schedule, how, "triton", seed)


@pytest.mark.parametrize("mover", ["CopyEngine()", "Fused()"])
def test_keys_may_be_made_in_the_call(mover: str) -> None:
    """Projections whose copies, or whose tiles, bring keys to all ranks."""

    @tilelink.overlap
    def layer(
        x: Tensor(S, H, placement=Shard(0)),  # type: ignore[valid-type]
        q: Tensor(1, S, Q, D, placement=Shard(1)),  # type: ignore[valid-type]
        key: Tensor(H, G * D),  # type: ignore[valid-type]
        value: Tensor(H, G * D),  # type: ignore[valid-type]
    ) -> Tensor:
        made = (tilelink.unflatten(tilelink.matmul(x, one), 1, S, G, D) for one in (key, value))
        k, v = (tilelink.all_gather(one, dim=1) for one in made)
        return tilelink.attention(q, k, v, causal=True)

    sizes = {"S": 64, "Q": 4, "G": 2, "D": 16, "H": 32}
    pins = {"out.compute": "library", "k.mover": mover, "v.mover": mover}
    schedule = layer.plan_for(topologies.load("h100-nvswitch", 2), sizes, "bf16", pins)
    assert any(isinstance(one, LibraryOp) and one.logs for one in schedule.launches)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def test_its_results_may_be_gathered() -> None:
    @tilelink.overlap
    def gathered(
        q: Tensor(B, S, Q, D, placement=Shard(1)),  # type: ignore[valid-type]
        k: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
    ) -> Tensor:
        keys, values = (tilelink.all_gather(one, dim=1) for one in (k, v))
        return tilelink.all_gather(tilelink.attention(q, keys, values), dim=1)

    sizes = {"B": 1, "S": 64, "Q": 4, "G": 2, "D": 16}
    pins = {"attention_out.compute": "library", "mover": "CopyEngine()"}
    schedule = gathered.plan_for(topologies.load("h100-nvswitch", 3), sizes | {"S": 96}, "bf16", pins)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def test_a_mask_over_queries_that_all_ranks_have_is_refused() -> None:
    @tilelink.overlap
    def alike(
        q: Tensor(B, S, Q, D, placement=Replicate()),  # type: ignore[valid-type]
        k: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
    ) -> Tensor:
        keys, values = (tilelink.all_gather(one, dim=1) for one in (k, v))
        return tilelink.attention(q, keys, values, causal=True)

    pins = {"attention_out.compute": "library", "mover": "CopyEngine()"}
    with pytest.raises(TileLinkError):
        alike.plan_for(topologies.load("h100-nvswitch", 2), {"B": 1, "S": 64, "Q": 4, "G": 2, "D": 16}, "bf16", pins)


# ---- mistakes ----
def calls(new: Callable[[Call], Call]) -> Callable[[Step], tuple[Step, ...]]:
    return lambda step: (new(step),) if isinstance(step, Call) and "attention" in step.function else (step,)


def merges(new: Callable[[Call], Call]) -> Callable[[Step], tuple[Step, ...]]:
    return lambda step: (new(step),) if isinstance(step, Call) and step.function == "merged_attention" else (step,)


def other_part(step: Call, which: int, number: Number) -> Call:
    operands = list(step.operands)
    operands[which] = replace(operands[which], start=(number, *operands[which].start[1:]))
    return replace(step, operands=tuple(operands))


def begun_anew(step: Call) -> Call:
    return replace(step, function="attention", operands=step.operands[:3])


NEXT = (OWNER + 1) % 3
BUGS: dict[str, Callable[[Step], tuple[Step, ...]]] = {
    "another scale": calls(lambda step: replace(step, scale=0.5)),
    "a part twice": merges(lambda step: other_part(other_part(step, 1, 1), 2, 1)),
    "values of another part": merges(lambda step: other_part(step, 2, NEXT)),
    "keys of another part": merges(lambda step: other_part(step, 1, NEXT)),
    "the state lost": merges(begun_anew),
    "logarithms of nobody": merges(lambda step: replace(step, operands=(*step.operands[:4], step.operands[0]))),
    "values for keys": calls(
        lambda step: replace(step, operands=(step.operands[0], step.operands[2], *step.operands[2:]))
    ),
    "heads of half the size": calls(lambda step: replace(step, numbers=(step.numbers[0], 8, *step.numbers[2:]))),
    "no own part": lambda step: (replace(step, body=()),) if isinstance(step, If) and step.right == rank else (step,),
    "no other part": merges(lambda step: begun_anew(other_part(other_part(step, 1, OWNER), 2, OWNER))),
    "no wait for values": lambda step: () if isinstance(step, Wait) and step.signal.startswith("values") else (step,),
    "no wait for keys": lambda step: () if isinstance(step, Wait) and step.signal.startswith("keys") else (step,),
}
OF_MASKS: dict[str, Callable[[Step], tuple[Step, ...]]] = {
    "no mask": calls(
        lambda step: replace(step, function=step.function.removeprefix("causal_"), numbers=step.numbers[:2])
    ),
    "a mask of one key more": calls(
        lambda step: replace(step, numbers=(*step.numbers[:2], 1)) if "causal" in step.function else step
    ),
}


@pytest.mark.parametrize(("causal", "bug"), [*product([False, True], BUGS), *product([True], OF_MASKS)])
def test_mistakes_are_found(causal: bool, bug: str) -> None:
    assert refuted(planned("gathered", How(causal=causal), 3, "push"), (BUGS | OF_MASKS)[bug])


# ---- the emitted host code ----
class Host(LibraryCalls):
    def _current(self) -> torch.autograd.grad_mode.no_grad:
        return torch.no_grad()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("sequences", "parts"), [(1, 2), (2, 3), (1, 8)])
def test_the_host_code_merges_parts(
    sequences: int, parts: int, causal: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU; parts in the order of a last rank."""
    on_the_cpu(monkeypatch)
    rows, heads, keys, width = 24, 4, 2, 16
    generator = torch.Generator().manual_seed(parts + 10 * sequences)
    q = torch.randn(sequences * rows, heads * width, generator=generator).to(dtype)
    k, v = (torch.randn(parts, sequences * rows, keys * width, generator=generator).to(dtype) for _ in range(2))
    out, logs = torch.full_like(q, torch.nan), torch.full((sequences * rows, heads), torch.nan)
    host = Host()
    for part in reversed(range(parts)):
        own = part == parts - 1
        first = 0 if causal and own else -1
        host.attention(out, q, k[part], v[part], sequences, width, 0.25, first, logs, merged=not own)

    def whole(x: torch.Tensor, count: int) -> torch.Tensor:
        cut_up = x.view(count, sequences, rows, -1, width).transpose(0, 1)
        return cut_up.reshape(sequences, count * rows, -1, width).double()

    queries = whole(q, 1)
    if causal:
        before = torch.zeros(sequences, (parts - 1) * rows, heads, width, dtype=torch.float64)
        queries = torch.cat([before, queries], 1)
    exact = by_definition(How(causal=causal, scale=0.25), 1, queries, whole(k, parts), whole(v, parts))[:, -rows:]
    far = {torch.bfloat16: 0.02, torch.float16: 0.003}[dtype]
    assert (out.view(exact.shape).double() - exact).abs().max() < far


@pytest.mark.slow
@pytest.mark.parametrize("mover", ["push", "pull"])
def test_kernels_that_wait_beside_it_are_compiled_in_order(mover: str) -> None:
    """Calls of the library need no compiler; what stands between them does."""
    schedule = planned("gathered", How(causal=True), 2, mover, S=4096, Q=8, D=128)
    report = check_compiled(load_source(lowering.emit(schedule), "parts"), 2, "sm_90")
    assert report.kernels and not report.findings and not report.unknown


def test_predicted_times_know_parts_and_what_they_wait_for() -> None:
    """A call part by part waits for no part that came before it is needed, and pays for each merge."""
    sizes = {"S": 8192, "Q": 32, "G": 32, "D": 128}
    machine, operator = topologies.load("h200-nvswitch", 4), spec_of("gathered", How())
    times = {}
    for name, mover in (("whole", "Library()"), ("parts", "CopyEngine()")):
        pins = {"compute": "library", "mover": mover}
        times[name] = operator.plan_for(machine, {"B": 1, **sizes}, "bf16", pins).predicted_us
    assert times["parts"] < times["whole"]
