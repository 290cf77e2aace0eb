"""Attention of one query a sequence, and merges of given states: random schedules on emulated ranks against the definition."""

from __future__ import annotations

import random

import pytest
import torch

import lowering
import tilelink
import topologies
from tests.pipeline.checked_calls import checked_calls
from tests.pipeline.decode_specs import Drawn, How, drawn, meaning_by_definition, spec_of
from tilelink import Shard, Tensor, dims
from tilelink.errors import AttentionPlacement, BadAttention, BadShape, IllegalPin, NoLegalSchedule
from tilelink.ir.calls import StateMerge
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.pins import checked_pins
from tilelink.planner.plan import plan_with
from tilelink.planner.terms import account_of
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut
from tilelink.runtime.run import run_emulated

_FAR = {"bf16": 0.03, "fp16": 0.004, "fp32": 2e-5}  # of means of values of size 1
_SMALL, _LARGE = ("laptop-switch", "laptop-mesh"), ("h100-nvswitch", "a100-nvswitch", "mi300x-full-mesh")
B, S, Q, G, D, H = dims("B S Q G D H")


def scheduled(rng: random.Random, found: Drawn) -> Schedule:
    """A schedule of a spec with random pins: packets, splits, tiles."""
    spec, out = found.spec, found.spec.outputs[0]
    large = spec.num_ranks < 4 and rng.random() < 0.3  # whose many programs take their time
    machine = topologies.load(rng.choice(_LARGE if large else _SMALL), spec.num_ranks)
    pins: dict[str, object] = {f"{out}.protocol": rng.choice(["ll", "lamport"])} if rng.random() < 0.6 else {}
    if not found.how.merge and rng.random() < 0.7:
        width = spec.inputs[0].shape[2]
        pins[f"{out}.splits"] = str(rng.randint(1, 7))
        pins[f"{out}.fold"] = f"{rng.choice([16, 32])}x{rng.choice([16, 32, 64])}x{width}/{rng.choice([1, 4])}w2s"
    try:
        return plan_with(spec, machine, checked_pins(spec, machine, pins))
    except (NoLegalSchedule, IllegalPin):
        return plan_with(spec, machine, {})


@pytest.mark.quick(6)
@pytest.mark.parametrize("seed", range(120))
def test_a_random_schedule_computes_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    found = drawn(rng, rng.choice([2, 2, 3, 3, 4, 8]))
    schedule, spec = scheduled(rng, found), found.spec
    for inputs, outputs in checked_calls(schedule, rng.choice(["triton", "triton-distributed"]), seed, 2):
        exact = meaning_by_definition(found.how, inputs, spec.num_ranks)
        for rank, (out,) in enumerate(outputs):
            part = cut(exact, spec.value(spec.outputs[0]).placement, rank, spec.num_ranks)
            assert (out.double() - part).abs().max() <= _FAR[spec.inputs[0].dtype]


def test_what_has_no_state_is_refused_with_what_is_legal() -> None:
    q, keys, many = Tensor(B, Q, D), Tensor(B, S, G, D, placement=Shard(1)), Tensor(B, S, Q, D, placement=Shard(1))
    sharded, lengths, wide = Tensor(B, Q, D, placement=Shard(1)), Tensor(B, dtype="int32"), Tensor(B, dtype="int64")

    def cut_heads(q: sharded, k: keys, v: keys):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.all_reduce(tilelink.attention(q, k, v))

    def zigzag(q: q, k: keys, v: keys):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.all_reduce(tilelink.attention(q, k, v, zigzag=True))

    def wide_lengths(q: q, k: keys, v: keys, lengths: wide):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.all_reduce(tilelink.attention(q, k, v, lengths=lengths))

    def prefill(q: many, k: keys, v: keys, lengths: lengths):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.attention(q, tilelink.all_gather(k, 1), tilelink.all_gather(v, 1), lengths=lengths)

    for function, error, says in (
        (cut_heads, AttentionPlacement, "q Replicate"),
        (zigzag, BadAttention, "zigzag"),
        (wide_lengths, BadAttention, "int32"),
        (prefill, BadAttention, "lengths with queries of 4"),
    ):
        with pytest.raises(error, match=says):
            tilelink.overlap(function)

    @tilelink.overlap
    def elements(q: q, k: keys, v: keys):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.reduce_scatter(tilelink.attention(q, k, v), dim=2)

    @tilelink.overlap
    def plain(q: q, k: keys, v: keys):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.all_reduce(tilelink.attention(q, k, v))

    machine, sizes = topologies.load("laptop-switch", 2), {"B": 1, "S": 64, "Q": 4, "G": 2, "D": 16}
    for spec, other, says in (
        (elements, {}, "would cut heads"),
        (plain, {"Q": 3}, "do not share"),
        (plain, {"D": 24}, "a head has 24 elements"),
    ):
        with pytest.raises(BadAttention, match=says):
            spec.plan_for(machine, sizes | other, "bf16", {})


def test_sums_of_three_dimensions_are_refused() -> None:
    @tilelink.overlap
    def sums(x: Tensor(B, Q, D, placement=tilelink.Partial())):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.all_reduce(x)

    with pytest.raises(BadShape, match="all_reduce operand x"):
        sums.plan_for(topologies.load("laptop-switch", 2), {"B": 2, "Q": 4, "D": 16}, "bf16", {})


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        ({"splits": "5"}, "4 tiles of 16"),
        ({"fold": "16x64x16/4w99s"}, "shared memory"),
        ({"mover": "Library()"}, "OwnKernel"),
        ({"protocol": "simple"}, "lamport"),
    ],
)
def test_pins_that_no_merge_has_are_refused(pins: dict[str, str], says: str) -> None:
    machine, sizes = topologies.load("laptop-switch", 2), {"B": 1, "S": 128, "Q": 4, "G": 2, "D": 16}
    with pytest.raises((IllegalPin, NoLegalSchedule), match=says):
        spec_of("all", How()).plan_for(machine, sizes, "bf16", {"fold": "16x16x16/1w2s"} | pins)


@pytest.mark.parametrize("ranks", [2, 3])
def test_results_are_the_same_bits_on_all_ranks_and_in_each_call(ranks: int) -> None:
    found = spec_of("all", How(lengths=True, window=40))
    sizes = {"B": 3, "S": 80 * ranks, "Q": 6, "G": 2, "D": 16}
    schedule = found.plan_for(topologies.load("laptop-switch", ranks), sizes, "bf16", {"splits": "3"})
    run = EmulatedRun(schedule, lowering.emit(schedule), 5)
    run.call()
    run.finish()
    ((_, outputs),) = run.calls
    assert all(torch.equal(outputs[0][0], one[0]) for one in outputs)


def test_a_merge_is_explained_and_its_choices_are_pins() -> None:
    machine = topologies.load("h100-nvswitch", 2)
    sizes = {"B": 1, "S": 8192, "Q": 64, "G": 8, "D": 128}
    spec = spec_of("heads", How(lengths=True))
    plan = spec.plan_for(machine, sizes, "bf16", {})
    (launch,) = plan.launches
    assert isinstance(launch, StateMerge) and launch.programs <= 132
    assert spec.plan_for(machine, sizes, "bf16", dict(plan.choices)) == plan
    assert Schedule.from_json(plan.to_json()) == Schedule.of(plan)
    assert "states of out" in str([one.what for one in account_of(plan, machine).critical])


@tilelink.overlap
def layer(
    q: Tensor(B, Q, D),  # type: ignore[valid-type]
    k: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
    v: Tensor(B, S, G, D, placement=Shard(1)),  # type: ignore[valid-type]
    lengths: Tensor(B, dtype="int32"),  # type: ignore[valid-type]
    w: Tensor(Q * D, H, placement=Shard(0)),  # type: ignore[valid-type]
) -> Tensor:
    y = tilelink.reduce_scatter(tilelink.attention(q, k, v, lengths=lengths), dim=1)
    return tilelink.reduce_scatter(tilelink.flatten(y) @ w, dim=0)


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
@pytest.mark.parametrize(
    ("ranks", "sizes", "pins"),
    [
        (2, {"B": 4, "S": 150, "Q": 8, "G": 2, "D": 64, "H": 96}, {}),
        (3, {"B": 6, "S": 150, "Q": 6, "G": 3, "D": 16, "H": 48}, {"splits": "3"}),
        (4, {"B": 8, "S": 64, "Q": 12, "G": 1, "D": 32, "H": 64}, {"out.protocol": "simple"}),
        (2, {"B": 2, "S": 64, "Q": 2, "G": 1, "D": 16, "H": 32}, {"out.mover": "Library()", "y.protocol": "ll"}),
    ],
)
def test_a_projection_follows_in_the_same_spec(
    ranks: int, sizes: dict[str, int], pins: dict[str, str], target: str
) -> None:
    machine = topologies.load("laptop-switch", ranks)
    bound = bind(layer.spec, sizes, ranks, "bf16")
    schedule = layer.plan_for(machine, sizes, "bf16", {})
    named = {name.replace("y.", f"{schedule.launches[0].out}."): value for name, value in pins.items()}  # type: ignore[union-attr]
    schedule = layer.plan_for(machine, sizes, "bf16", named)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule, target), calls=2).equal
    run = EmulatedRun(schedule, lowering.emit(schedule, target), 1)
    run.call()
    run.finish()
    ((inputs, outputs),) = run.calls
    attended = meaning_by_definition(How(lengths=True), inputs, ranks)
    w = torch.cat([one["w"] for one in inputs]).double()
    exact = attended.flatten(1) @ w
    for rank, (out,) in enumerate(outputs):
        part = cut(exact, bound.value("out").placement, rank, ranks)
        assert (out.double() - part).abs().max() <= 0.05


def test_what_is_flattened_is_read_in_one_form() -> None:
    q, keys = Tensor(B, Q, D), Tensor(B, S, G, D, placement=Shard(1))

    @tilelink.overlap
    def twice(q: q, k: keys, v: keys):  # type: ignore[no-untyped-def, valid-type]
        y = tilelink.all_reduce(tilelink.attention(q, k, v))
        return y, tilelink.flatten(y)

    @tilelink.overlap
    def given(q: q, k: keys, v: keys, x: q):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.all_reduce(tilelink.attention(q, k, v)), tilelink.flatten(x)

    machine, sizes = topologies.load("laptop-switch", 2), {"B": 1, "S": 64, "Q": 4, "G": 2, "D": 16}
    for spec, says in ((twice, "read as it is, too"), (given, "not what all_reduce")):
        with pytest.raises(BadAttention, match=says):
            spec.plan_for(machine, sizes, "bf16", {})


_TOP = ("tl.maximum(tl.max(log, axis=0), -1e30)", "tl.max(log, axis=0)")
_COUNTED = ("tl.where(weights > 0, mean * weights, 0.0)", "mean * weights")
_DIVISOR = ("tl.where(weight > 0, weight, 1.0)", "weight")


@pytest.mark.slow
@pytest.mark.parametrize("planted", [(_TOP, _COUNTED), (_DIVISOR,)], ids=["-inf minus -inf", "0 by 0"])
@pytest.mark.parametrize("merge", [False, True])
def test_what_no_rank_has_seen_is_no_number_without_its_guards(
    merge: bool, planted: tuple[tuple[str, str], ...]
) -> None:
    """Planted in the emitted text. A highest logarithm of -inf alone is harmless: what it makes of weights is not counted."""
    how, machine = How(merge=merge, lengths=not merge), topologies.load("laptop-switch", 2)
    sizes = {"T": 8, "H": 32, "D": 16} if merge else {"B": 8, "S": 64, "Q": 4, "G": 2, "D": 16}
    schedule = spec_of("heads", how).plan_for(machine, sizes, "bf16", {})
    source, seed = lowering.emit(schedule), 3  # of its lengths some are 0
    assert run_emulated(schedule, source, calls=1, seed=seed).equal
    for guarded, plain in planted:
        assert source.count(guarded) == 1
        source = source.replace(guarded, plain)
    assert not run_emulated(schedule, source, calls=1, seed=seed).equal
