"""Both parts of a state: means with the logarithms of the sums of their weights, reduced alike, against the definition."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

import lowering
import tilelink
import topologies
from tests.pipeline import attention_specs
from tests.pipeline.checked_calls import checked_calls
from tests.pipeline.decode_specs import Drawn, How, drawn, logs_by_definition, meaning_by_definition, spec_of
from tests.pipeline.test_attention import SHARED
from tests.pipeline.test_decode import _FAR, scheduled
from tests.proof.planted import Change, refuted
from tests.proof.test_attention import computed
from tilelink import Shard, Tensor, dims
from tilelink.compiled.check import check_compiled
from tilelink.errors import BadAttention, BadShape
from tilelink.ir.spec import bind
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import Index
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Compute, For, Step, Store

_LOG_FAR = {"bf16": 1e-3, "fp16": 1e-3, "fp32": 1e-4}  # products of bf16 and fp16 are exact; sums are of fp32
_SIZES = {"B": 3, "S": 132, "Q": 8, "G": 2, "D": 16}
B, S, Q, G, D, H = dims("B S Q G D H")
KEYS = Tensor(B, S, G, D, placement=Shard(1))


def with_logs(rng: random.Random, ranks: int) -> Drawn:
    """A random spec that returns logarithms, too."""
    found = drawn(rng, ranks)
    how = replace(found.how, lse=True, base2=rng.random() < 0.5)
    return Drawn(found.kind, how, bind(spec_of(found.kind, how).spec, found.sizes, ranks, found.spec.inputs[0].dtype))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_a_random_schedule_makes_both_parts(seed: int) -> None:
    rng = random.Random(7000 + seed)
    found = with_logs(rng, rng.choice([2, 2, 3, 3, 4, 8]))
    schedule, spec = scheduled(rng, found), found.spec
    for inputs, outputs in checked_calls(schedule, rng.choice(["triton", "triton-distributed"]), seed, 2):
        means = meaning_by_definition(found.how, inputs, spec.num_ranks)
        logs = logs_by_definition(found.how, inputs)
        for rank, (out, lse) in enumerate(outputs):
            placement = spec.value(spec.outputs[1]).placement
            assert placement == spec.value(spec.outputs[0]).placement
            part, log = (cut(one, placement, rank, spec.num_ranks) for one in (means, logs))
            assert (out.double() - part).abs().max() <= _FAR[spec.inputs[0].dtype]
            assert lse.dtype == torch.float32
            off = torch.where(lse.double() == log, 0, (lse.double() - log).abs())  # -inf is -inf
            assert (off <= _LOG_FAR[spec.inputs[0].dtype] * log.abs().clamp(1, 1e9)).all()


def _logs_only(new: Step | None) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Store) and step.value == "logs_row":
            return () if new is None else (new,)
        return (step,)

    return change


def _moved(dim: int) -> Change:
    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Store) and step.value == "logs_row":
            start = list(step.region.start)
            start[dim] = start[dim] + 1
            return (replace(step, region=replace(step.region, start=tuple(start))),)
        return (step,)

    return change


BUGS: dict[str, Change] = {
    "they are never stored": _logs_only(None),
    "of the next head": _moved(1),
    "of the next sequence": _moved(0),
    "of base 2": computed("in_base_e", lambda one: (replace(one, op="copy"),)),
    "natural ones twice": computed("in_base_e", lambda one: (one, one)),
    "the top as the weight": computed(
        "log_of_weights", lambda one: (replace(one, operands=("top", "top")),) if one.results == ("logs",) else (one,)
    ),
    "the mean in their place": computed(
        "in_base_e", lambda one: (one, Compute(("logs_row",), "copy", ("total",)))
    ),
    "in the place of the mean": _logs_only(Store("logs_row", Region("out_0", (Index("sequence"), Index("head"), 0), (1, 2, 1)))),
}  # fmt: skip


@pytest.mark.quick(3)
@pytest.mark.parametrize("bug", BUGS)
def test_a_wrong_logarithm_is_refuted(bug: str) -> None:
    spec = spec_of("heads", How(lengths=True, lse=True))
    schedule = spec.plan_for(topologies.load("laptop-switch", 4), _SIZES, "bf16", {})
    assert verify(schedule).proved
    assert refuted(schedule, BUGS[bug])


@pytest.mark.slow
def test_they_come_in_any_order_and_beside_a_projection() -> None:
    @tilelink.overlap
    def projected(q: Tensor(B, Q, D), k: KEYS, v: KEYS, w: Tensor(Q * D, H, placement=Shard(0))):  # type: ignore[no-untyped-def, valid-type]
        y, lse = tilelink.attention(q, k, v, return_lse=True)
        logs = tilelink.reduce_scatter(lse, dim=1)
        out = tilelink.all_reduce(tilelink.flatten(tilelink.reduce_scatter(y, dim=1)) @ w)
        return logs, out

    @tilelink.overlap
    def scaled(q: Tensor(B, Q, D), k: KEYS, v: KEYS):  # type: ignore[no-untyped-def, valid-type]
        y, lse = tilelink.attention(q, k, v, return_lse=True)
        return tilelink.all_reduce(lse) * math.log2(math.e), tilelink.all_reduce(y)

    for spec, more in ((projected, {"H": 64}), (scaled, {})):
        schedule = spec.plan_for(topologies.load("laptop-switch", 2), _SIZES | more, "fp32", {})
        assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


@pytest.mark.slow
def test_logarithms_that_nobody_needs_cost_nothing() -> None:
    @tilelink.overlap
    def plain(q: Tensor(B, Q, D), k: KEYS, v: KEYS):  # type: ignore[no-untyped-def, valid-type]
        y, lse = tilelink.attention(q, k, v, return_lse=True)
        tilelink.all_reduce(lse)
        return tilelink.all_reduce(y)

    schedule = plain.plan_for(topologies.load("laptop-switch", 2), _SIZES, "bf16", {})
    assert "logs_row" not in str(schedule)
    assert run_emulated(schedule, lowering.emit(schedule)).equal


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(60))
def test_attention_of_many_queries_makes_both_parts(seed: int) -> None:
    found = attention_specs.drawn(random.Random(9000 + seed), lse=True)
    schedule, spec = found.schedule, found.schedule.spec
    ((inputs, outputs),) = checked_calls(schedule, found.target, seed, 1)
    q, k, v = whole_inputs(spec, inputs).values()
    means = attention_specs.by_definition(found.how, spec.num_ranks, q, k, v)
    logs = attention_specs.logs_by_definition(found.how, spec.num_ranks, q, k)
    dtype, placement = spec.inputs[0].dtype, spec.value(spec.outputs[1]).placement
    for rank, (out, lse) in enumerate(outputs):
        part, log = (cut(one, placement, rank, spec.num_ranks) for one in (means, logs))
        assert (out.double() - part).abs().max() <= _FAR[dtype]
        assert lse.dtype == torch.float32 and lse.shape == log.shape
        assert ((lse.double() - log).abs() <= _LOG_FAR[dtype] * log.abs().clamp(min=1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", [attention_specs.How(), attention_specs.How(causal=True)], ids=str)
@pytest.mark.parametrize("base2", [False, True])
def test_groups_that_share_a_tile_store_logarithms_of_their_rows(how: attention_specs.How, base2: bool) -> None:
    spec = attention_specs.spec_of("gathered", replace(how, lse=True, base2=base2))
    sizes = {"B": 1, "S": 512, "Q": 4, "G": 2, "D": 16}
    schedule = spec.plan_for(topologies.load("h100-nvswitch", 2), sizes, "bf16", SHARED)
    assert verify(schedule).proved
    source = lowering.emit(schedule)
    assert "store_logs(" in source
    assert run_emulated(schedule, source, calls=2).equal
    report = check_compiled(load_source(source, "attention"), 2, "sm_90")
    assert not report.findings and report.kernels


def _of_the_next_head(step: Step) -> tuple[Step, ...]:
    if isinstance(step, Store) and step.value == "out_0_logs":
        row, head = step.region.start
        return (replace(step, region=replace(step.region, start=(row, head + 1))),)
    return (step,)


def _another_weight(step: Step) -> tuple[Step, ...]:
    if isinstance(step, Compute) and step.op == "log_of_weights":
        return (replace(step, operands=("out_0_weight", "out_0_top")),)
    return (step,)


def _without_last_keys(step: Step) -> tuple[Step, ...]:
    """The logarithm of a state that lacks the parts of other ranks."""
    if isinstance(step, For) and step.variable == "k_place":
        return Compute(("out_0_logs",), "log_of_weights", ("out_0_top", "out_0_weight")), step
    if isinstance(step, Compute) and step.op == "log_of_weights":
        return ()
    return (step,)


@pytest.mark.parametrize(
    "bug",
    [computed("in_base_e", lambda one: ()), _of_the_next_head, _another_weight, _without_last_keys],
    ids=["of base 2", "of the next head", "of another sum", "before the last keys"],
)
def test_a_wrong_logarithm_of_many_queries_is_refuted(bug: Change) -> None:
    spec = attention_specs.spec_of("gathered", attention_specs.How(causal=True, lse=True))
    sizes = {"B": 1, "S": 128, "Q": 4, "G": 2, "D": 16}
    schedule = spec.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {})
    assert verify(schedule).proved
    assert refuted(schedule, bug)


def test_logarithms_of_many_queries_are_results_and_nothing_else() -> None:
    apart = Tensor(B, S, Q, D, placement=Shard(1))

    def read(q: apart, k: Tensor(B, S, G, D), v: Tensor(B, S, G, D)):  # type: ignore[no-untyped-def, valid-type]
        y, lse = tilelink.attention(q, k, v, return_lse=True)
        return y, tilelink.all_gather(lse, dim=1)

    with pytest.raises(BadShape, match="q_lse has 3 dimensions"):
        tilelink.overlap(read)


@pytest.mark.slow
def test_states_of_the_same_operands_keep_their_logarithms_apart() -> None:
    """Of each call of `attention` those of its own base, and of means that are reduced twice one merge stores them."""

    @tilelink.overlap
    def decoded(q: Tensor(B, Q, D), k: KEYS, v: KEYS):  # type: ignore[no-untyped-def, valid-type]
        plain = tilelink.all_reduce(tilelink.attention(q, k, v))
        natural, of_2 = (tilelink.attention(q, k, v, return_lse=True, base2=base2) for base2 in (False, True))
        again = tilelink.all_reduce(natural[0])
        parts = [tilelink.all_reduce(part) for state in (natural, of_2) for part in state]
        return (plain, again, *parts)

    @tilelink.overlap
    def prefilled(q: Tensor(B, S, Q, D), k: Tensor(B, S, G, D), v: Tensor(B, S, G, D)):  # type: ignore[no-untyped-def, valid-type]
        plain = tilelink.attention(q, k, v)
        return (
            plain,
            *(one for base2 in (False, True) for one in tilelink.attention(q, k, v, return_lse=True, base2=base2)),
        )

    for spec in (decoded, prefilled):
        schedule = spec.plan_for(
            topologies.load("laptop-switch", 2), {"B": 2, "S": 24, "Q": 4, "G": 2, "D": 16}, "fp32", {}
        )
        assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def test_both_parts_are_reduced_alike() -> None:
    def alone(q: Tensor(B, Q, D), k: KEYS, v: KEYS):  # type: ignore[no-untyped-def, valid-type]
        return tilelink.all_reduce(tilelink.attention(q, k, v, return_lse=True)[1])

    def otherwise(q: Tensor(B, Q, D), k: KEYS, v: KEYS):  # type: ignore[no-untyped-def, valid-type]
        y, lse = tilelink.attention(q, k, v, return_lse=True)
        return tilelink.all_reduce(y), tilelink.reduce_scatter(lse, dim=1)

    for function in (alone, otherwise):
        with pytest.raises(BadAttention, match="the result that it belongs to is not"):
            tilelink.overlap(function).plan_for(topologies.load("laptop-switch", 2), _SIZES, "bf16", {})
