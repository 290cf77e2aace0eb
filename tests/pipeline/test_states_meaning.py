"""What states of ranks mean, against a definition token by token; and bounds, which hold for right results and for no others."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace
from functools import cache
from types import ModuleType

import pytest
import torch

import topologies
from lowering.entry import print_main
from lowering.libraries import library_values
from lowering.names import class_name
from lowering.selfcheck.compare import Comparison
from lowering.selfcheck.near import Near
from lowering.selfcheck.states import random_lengths, random_logs, random_pages
from lowering.targets import dialect
from tests.pipeline.attention_specs import How as OfAttention
from tests.pipeline.attention_specs import spec_of as attention_spec
from tests.pipeline.decode_specs import KINDS, How, drawn, meaning_by_definition, places_of, spec_of, tokens_of
from tilelink.adversary.subject import of_module
from tilelink.ir.placement import Replicate
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec, bind
from tilelink.measuring import spec_problem
from tilelink.runtime.bounds import TORCH_DTYPES, near_values
from tilelink.runtime.compare import outputs_with_bounds
from tilelink.runtime.load import load_source
from tilelink.runtime.meaning import cut, evaluate, whole_inputs
from tilelink.runtime.reference import expected, make_inputs

Inputs = list[dict[str, torch.Tensor]]
SIZES = {"B": 4, "Q": 8, "G": 2, "D": 64, "S": 360, "N": 24, "L": 32, "P": 12, "T": 4, "H": 8}


def bound(kind: str, how: How, ranks: int = 2, dtype: str = "bf16", **sizes: int) -> BoundSpec:
    spec = spec_of(kind, how).spec
    return bind(spec, {name: (SIZES | sizes)[name] for name in spec.symbols()}, ranks, dtype)


def spoiled(how: How, inputs: Inputs) -> Inputs:
    """The same, with nan or -1 in all that no result depends on."""
    if how.merge:
        for held in inputs:
            held["means"][held["lse"] == -math.inf] = math.nan
        return inputs
    seen = [place for b in range(len(inputs[0]["q"])) for place in places_of(how, inputs, b)]
    for rank, held in enumerate(inputs):
        hidden = torch.ones(held["k"].shape[:2], dtype=torch.bool)
        for _, row, slot in (place for place in seen if place[0] == rank):
            hidden[row, slot] = False
        held["k"][hidden], held["v"][hidden] = math.nan, math.nan
        for b, length in enumerate(held["lengths"].tolist() if how.lengths and how.pages else []):
            mine = -(-length // held["k"].shape[1]) - rank * held["table"].shape[1]
            held["table"][b, max(mine, 0) :] = -1
    return inputs


def by_ranks(spec: BoundSpec, how: How, inputs: Inputs, lost: int = -1) -> torch.Tensor:
    """A result as kernels compute it: in fp32, weights rounded to the dtype of values, a state of each rank but `lost`."""
    shape, dtype = spec.value(spec.outputs[0]).shape, TORCH_DTYPES[spec.inputs[0].dtype]
    means = torch.full((len(inputs), *shape), math.nan)
    logs = torch.full((len(inputs), *shape[:2]), -math.inf)
    for rank, held in enumerate(inputs):
        if how.merge and rank != lost:
            means[rank], logs[rank] = held["means"].float(), held["lse"] * (math.log(2) if how.base2 else 1)
    for b in range(0 if how.merge else shape[0]):
        tokens, q = tokens_of(how, inputs, b), inputs[0]["q"][b].float()
        for rank in {rank for rank, _, _ in tokens} - {lost}:
            mine = [(key, value) for held, key, value in tokens if held == rank]
            keys, values = (torch.stack(one).float() for one in zip(*mine, strict=True))
            keys, values = (one.repeat_interleave(shape[1] // one.shape[1], 1) for one in (keys, values))
            scores = torch.einsum("hd,thd->ht", q, keys) * (how.scale or shape[2] ** -0.5)
            scores = how.soft_cap * torch.tanh(scores / how.soft_cap) if how.soft_cap else scores
            weights = (scores - scores.amax(1, keepdim=True)).exp()
            sums = weights.sum(1)
            means[rank, b] = torch.einsum("ht,thd->hd", weights.to(dtype).float(), values) / sums[:, None]
            logs[rank, b] = sums.log() + scores.amax(1)
    return merged(means, logs).to(dtype)


def merged(means: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    weights = (logs - logs.amax(0).nan_to_num(neginf=0.0)).exp()
    total = torch.where(weights[..., None] > 0, weights[..., None] * means, 0).sum(0)
    return total / weights.sum(0).clamp_min(1)[..., None]


def whole_near(spec: BoundSpec, inputs: Inputs) -> Near:
    (near,) = near_values(spec, inputs, ())[spec.outputs[0]]
    return near


# ---- what it means ----


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", range(90))
def test_a_random_spec_means_what_its_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    ranks = rng.choice([2, 3, 4])
    one = drawn(rng, ranks)
    inputs = spoiled(one.how, make_inputs(one.spec, 1000 * rng.randrange(20)))
    wanted = meaning_by_definition(one.how, inputs, ranks)
    (name,) = one.spec.outputs
    torch.testing.assert_close(evaluate(one.spec, whole_inputs(one.spec, inputs))[name], wanted, rtol=0, atol=1e-12)
    for rank, (part,) in enumerate(expected(one.spec, inputs)):
        mine = cut(wanted, one.spec.value(name).placement, rank, ranks)
        torch.testing.assert_close(part, mine, rtol=0, atol=1e-12)
    near = whole_near(one.spec, inputs)
    torch.testing.assert_close(near.value, wanted, rtol=0, atol=1e-12)
    comparison = Comparison.of(by_ranks(one.spec, one.how, inputs), near)
    assert comparison.equal, (one, comparison.text())


@pytest.mark.parametrize("pages", [False, True])
@pytest.mark.parametrize(("window", "soft_cap"), [(0, 0.0), (40, 0.0), (0, 5.0)])
def test_lengths_end_at_nothing_and_at_all(pages: bool, window: int, soft_cap: float) -> None:
    how = How(lengths=True, pages=pages, window=window, soft_cap=soft_cap)
    spec = bound("all", how, B=6)
    inputs = make_inputs(spec, 0)
    for held in inputs:
        held["lengths"][:] = torch.tensor([0, -7, 1, 180, 100_000, 33])
    (found,) = expected(spec, inputs)[1]
    torch.testing.assert_close(found, meaning_by_definition(how, inputs, 2), rtol=0, atol=1e-12)
    assert not found[:2].any()
    near = whole_near(spec, inputs)
    assert not near.value[:2].any() and torch.as_tensor(near.error)[:2].max() < 1e-30
    first_value = inputs[0]["v"][inputs[0]["table"][2, 0] if pages else 2, 0].double()
    torch.testing.assert_close(found[2], first_value.repeat_interleave(4, 0))


@pytest.mark.parametrize("base2", [False, True])
def test_what_no_rank_has_seen_is_zero_and_what_one_has_seen_is_its_mean(base2: bool) -> None:
    how = How(merge=True, base2=base2)
    spec = bound("all", how)
    inputs = make_inputs(spec, 0)
    for rank, held in enumerate(inputs):
        held["lse"][:] = torch.tensor([[-math.inf], [-math.inf if rank else 90.0], [0.0], [float(rank)]])
    spoiled(how, inputs)
    (found,) = expected(spec, inputs)[0]
    means = [held["means"].double() for held in inputs]
    assert not found[0].any() and torch.equal(found[1], means[0][1])
    torch.testing.assert_close(found[2], (means[0][2] + means[1][2]) / 2)
    ratio = 2 if base2 else math.e
    torch.testing.assert_close(found[3], (means[0][3] + ratio * means[1][3]) / (1 + ratio))


# ---- what is right ----


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("how", [How(), How(pages=True), How(soft_cap=5.0), How(window=300), How(merge=True)], ids=str)
def test_a_lost_state_is_no_rounding(how: How, dtype: str) -> None:
    spec = bound("heads", how, 4, dtype)
    inputs = make_inputs(spec, 0)
    near = whole_near(spec, inputs)
    assert Comparison.of(by_ranks(spec, how, inputs), near).equal
    for lost in range(4):
        far = Comparison.of(by_ranks(spec, how, inputs, lost), near)
        assert far.wrong > far.elements // (4 if how.merge else 2), (lost, far.text())  # a -inf more or less is no loss


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("lengths", [False, True])
def test_another_page_is_no_rounding(lengths: bool, dtype: str) -> None:
    how = How(pages=True, lengths=lengths)
    spec = bound("all", how, 2, dtype, N=80)
    inputs = make_inputs(spec, 0)
    near = whole_near(spec, inputs)
    assert Comparison.of(by_ranks(spec, how, inputs), near).equal
    table = inputs[1]["table"]
    table[:2, 3] = table[:2, 3].flip(0)
    far = Comparison.of(by_ranks(spec, how, inputs), near)
    assert far.wrong > far.elements // 4, far.text()


def test_tokens_that_are_seen_again_err_the_same_way_again() -> None:
    how = How(pages=True, soft_cap=5.0)
    spec = bound("all", how, 2, "fp16", N=2, L=16, P=36)
    for seed in range(4):
        inputs = make_inputs(spec, seed)
        comparison = Comparison.of(by_ranks(spec, how, inputs), whole_near(spec, inputs))
        assert comparison.equal, comparison.text()


def test_a_merge_is_no_sum_of_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for how in (How(), How(merge=True)):
        spec = bound("sequences", how)
        inputs = make_inputs(spec, 0)
        (plain,), (called,) = (near_values(spec, inputs, names)[spec.outputs[0]] for names in ((), spec.outputs))
        assert torch.equal(torch.as_tensor(plain.error), torch.as_tensor(called.error))
        monkeypatch.setattr("lowering.entry.library_values", lambda _, made=spec.outputs: made)
        assert "library=" not in check_of(spec).partition("def reference(")[2]


# ---- what is drawn ----


def test_lengths_are_of_all_kinds() -> None:
    kinds = {"full": 0, "none": 0, "some": 0, "few": 0, "none or full": 0}
    for seed in range(40):
        found = random_lengths((64,), 500, seed, "cpu")
        assert found.dtype == torch.int32 and found.min() >= 0 and found.max() <= 500
        assert torch.equal(found, random_lengths((64,), 500, seed, "cpu"))
        if int(found.max()) <= 8:
            kinds["few" if found.any() else "none"] += 1
        elif ((found == 0) | (found == 500)).all():
            kinds["none or full" if (found == 0).any() else "full"] += 1
        else:
            kinds["some"] += 1
    assert kinds == {"full": 10, "none": 2, "some": 10, "few": 10, "none or full": 8}
    assert random_lengths((64,), 3, 2, "cpu").max() == 3


def test_no_page_is_seen_twice_while_there_are_enough() -> None:
    for pages in (12, 13, 100):
        found = random_pages((3, 4), pages, pages, "cpu")
        assert found.dtype == torch.int32 and len(set(found.flatten().tolist())) == 12 and found.max() < pages
    for seed in range(9):
        found = random_pages((3, 4), 5, seed, "cpu")
        assert found.max() < 5 and all(len(set(row)) == 4 for row in found.tolist())
    assert not random_pages((3, 4), 1, 1, "cpu").any()


def test_an_eighth_of_logarithms_are_of_nothing() -> None:
    found = random_logs((100, 100), 3, "cpu")
    assert found.dtype == torch.float32 and not found.isnan().any()
    assert 0.11 < float((found == -math.inf).float().mean()) < 0.14
    assert 2.9 < float(found[found > -math.inf].std()) < 3.1


@pytest.mark.quick(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [How(lengths=True), How(lengths=True, pages=True), How(pages=True), How(merge=True)])
def test_inputs_are_drawn_by_what_they_are(kind: str, how: How) -> None:
    spec = bound(kind, how)
    device = torch.device("cpu")
    measured = [spec_problem.make_inputs(spec, rank, 1, device) for rank in range(2)]
    names = [value.name for value in spec.inputs]
    of_measuring = [dict(zip(names, one, strict=True)) for one in measured]
    for ranks in (make_inputs(spec, 1), of_measuring, [carried(spec).make_inputs(rank, 1, "cpu") for rank in range(2)]):
        for value in spec.inputs:
            one, other = (held[value.name] for held in ranks)
            assert one.shape == other.shape == value.local and one.dtype == other.dtype == TORCH_DTYPES[value.dtype]
            assert torch.equal(one, other) is isinstance(value.placement, Replicate)
        if how.pages:
            assert all(len(held["table"].unique()) == SIZES["N"] // 2 for held in ranks)
        if how.lengths:
            assert ranks[0]["lengths"].min() >= 0 and ranks[0]["lengths"].max() <= 384
        if how.merge:
            assert all((held["lse"] == -math.inf).any() for held in ranks)
    wanted = [spec_problem.wanted_of(spec, measured, rank)[0] for rank in range(2)]
    result = by_ranks(spec, how, of_measuring)
    for rank, near in enumerate(wanted):
        assert Comparison.of(cut(result, spec.value(spec.outputs[0]).placement, rank, 2), near).equal


# ---- what emitted files carry ----


@cache
def of_attention() -> Schedule:
    sizes = {"B": 1, "S": 64, "Q": 2, "G": 1, "D": 16}
    return attention_spec("gathered", OfAttention()).plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {})


def check_of(spec: BoundSpec) -> str:
    """The end of an emitted file."""
    return print_main(replace(of_attention().program, spec=spec), dialect("triton", "sm_90"))


def carried(spec: BoundSpec) -> ModuleType:
    """That end, behind a host class that has inputs and nothing else."""
    inputs = {value.name: (value.local, TORCH_DTYPES[value.dtype]) for value in spec.inputs}
    head = "from typing import NamedTuple\nimport contextlib, torch\n"
    host = f"class {class_name(spec.name)}:\n    INPUTS = {inputs}\n"
    return load_source(f"from __future__ import annotations\n{head}{host}{check_of(spec)}", "carried")


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(40))
def test_emitted_files_carry_these_bounds(seed: int) -> None:
    rng = random.Random(1000 + seed)
    ranks = rng.choice([2, 3, 4])
    one = drawn(rng, ranks)
    inputs = spoiled(one.how, make_inputs(one.spec, 1000 * seed))
    ours = outputs_with_bounds(one.spec, inputs, library_values(of_attention()))
    for theirs, (near,) in zip(carried(one.spec).reference(inputs), ours, strict=True):
        torch.testing.assert_close(theirs[0].value, near.value, rtol=0, atol=1e-12)
        torch.testing.assert_close(theirs[0].error, near.error, rtol=1e-6, atol=1e-30)


def test_files_name_what_they_draw_and_nothing_else() -> None:
    paged = check_of(bound("all", How(lengths=True, pages=True)))
    assert 'LENGTHS = {"lengths": 384}\nPAGES = {"table": 12}\n' in paged and "LOGS" not in paged
    merge = check_of(bound("all", How(merge=True)))
    assert 'LOGS = {"lse"}\n' in merge and "random_pages" not in merge and "# a summand" not in merge
    for text in (paged, merge, check_of(of_attention().spec)):
        assert "EXPERTS" not in text and "random_ids" not in text
    assert not set(re.findall(r"LENGTHS|PAGES|LOGS|decoded|merged_states|random_\w+", check_of(of_attention().spec)))


def test_a_file_is_verified_with_inputs_that_it_names() -> None:
    ints, floats = torch.int32, torch.float32
    inputs = {"lengths": ((32,), ints), "table": ((32, 4), ints), "lse": ((32, 8), floats), "ids": ((32,), ints)}
    module = ModuleType("by_hand")
    host = type("Host", (), {"INPUTS": inputs, "__module__": module.__name__})
    vars(module).update(Host=host, REPLICATED={"lengths"}, LENGTHS={"lengths": 300}, PAGES={"table": 3}, LOGS={"lse"})
    one, other = of_module(module, "by_hand.py", 2).make_inputs(1)
    assert torch.equal(one["lengths"], other["lengths"]) and 8 < one["lengths"].max() <= 300
    assert not torch.equal(one["table"], other["table"]) and one["table"].max() == 2
    assert (one["lse"] == -math.inf).any() and one["ids"].max() < 8
    vars(module).update(LENGTHS=5, PAGES=(1, 2), LOGS=torch)  # of a file that means something else by them
    assert of_module(module, "by_hand.py", 2).make_inputs(1)[0]["lengths"].max() < 8
