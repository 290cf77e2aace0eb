"""Attention over ranks: random schedules of random specs on emulated ranks, each element against the definition."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import lowering
import tilelink
import topologies
from lowering.selfcheck.attention import attention_of
from lowering.selfcheck.compare import Comparison
from lowering.selfcheck.near import Near
from tests.pipeline.attention_runs import farthest
from tests.pipeline.attention_specs import HEADS, KINDS, ROWS, B, D, G, How, Q, S, T, by_definition, drawn, spec_of
from tilelink import Shard, Tensor
from tilelink.compiled.check import check_compiled
from tilelink.errors import AttentionPlacement, BadAttention, BadShape, NoLegalSchedule
from tilelink.ir.spec import bind
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source
from tilelink.runtime.meaning import evaluate
from tilelink.runtime.run import run_emulated


@pytest.mark.quick(6)
@pytest.mark.parametrize("seed", range(120))
def test_a_random_schedule_computes_what_the_definition_says(seed: int) -> None:
    found = drawn(random.Random(seed))
    schedule = found.schedule
    assert not verify(schedule).findings
    source = lowering.emit(schedule, found.target)
    assert run_emulated(schedule, source, calls=2).equal
    assert farthest(schedule, source, found.how, seed) <= 1


SHARED = {"tile": "128x16x64/4w2s2g", "mover": "CopyEngine()"}


@pytest.mark.quick(2)
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
@pytest.mark.parametrize("pins", [{}, {"cut": "columns", "chunks": "2"}, {"transfer": "pull"}], ids=str)
@pytest.mark.parametrize("how", [How(), How(causal=True), How(soft_cap=4.0)], ids=str)
@pytest.mark.parametrize("ranks", [2, 3])
def test_two_warpgroups_share_a_tile(ranks: int, how: How, pins: dict[str, str], target: str) -> None:
    sizes = {"B": 1, "S": ranks * 256, "Q": 4, "G": 2, "D": 16}
    machine = topologies.load("h100-nvswitch", ranks)
    schedule = spec_of("gathered", how).plan_for(machine, sizes, "bf16", SHARED | pins)
    assert verify(schedule).proved
    source = lowering.emit(schedule, target)
    assert ("gl.warp_specialize" in source) is (target == "triton")
    assert run_emulated(schedule, source, calls=2).equal


@pytest.mark.parametrize("keys", [32, 128])
def test_producer_and_consumers_follow_an_edited_tile_of_keys(keys: int) -> None:
    """A consumer takes the first tile in front of the loop: what is left has to follow from the same constant."""
    machine, sizes = topologies.load("h100-nvswitch", 2), {"B": 1, "S": 512, "Q": 2, "G": 2, "D": 16}
    schedule = spec_of("gathered", How()).plan_for(machine, sizes, "bf16", SHARED)
    source, tile = lowering.emit(schedule), "TILE_K = tl.constexpr({})"
    assert source.count(tile.format(64)) == 1
    assert run_emulated(schedule, source.replace(tile.format(64), tile.format(keys)), calls=2).equal


@pytest.mark.parametrize(
    ("sizes", "how", "says"),
    [
        ({}, How(causal=True, window=100), "behind a window"),
        ({"S": 640}, How(causal=True, zigzag=True), "blocks of 160 tokens"),
    ],
)
def test_what_two_warpgroups_do_not_share(sizes: dict[str, int], how: How, says: str) -> None:
    with pytest.raises(NoLegalSchedule) as caught:
        spec_of("gathered", how).plan_for(
            topologies.load("h100-nvswitch", 2), {"B": 1, "S": 512, "Q": 4, "G": 2, "D": 16} | sizes, "bf16", SHARED
        )
    assert says in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [How(), How(causal=True), How(True, 5, 3.0, 0.2), How(True, zigzag=True)])
def test_a_spec_means_what_its_definition_says(kind: str, how: How) -> None:
    if kind == "cross" and how.causal:
        pytest.skip("other tokens are not behind these")
    if how.zigzag and kind != "gathered":
        pytest.skip("no rank has some of the tokens")
    sizes = {"B": 1, "S": 24, "T": 20, "Q": 8, "G": 4, "D": 16}
    needed = spec_of(kind, how).spec.symbols()
    spec = bind(spec_of(kind, how).spec, {name: sizes[name] for name in needed}, 4, "bf16")
    generator = torch.Generator().manual_seed(3)
    inputs = {one.name: torch.randn(one.shape, generator=generator, dtype=torch.float64) for one in spec.inputs}
    found = evaluate(spec, inputs)[spec.outputs[0]]
    assert torch.allclose(found, by_definition(how, 4, *inputs.values()), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("how", [How(), How(causal=True), How(causal=True, zigzag=True)])
def test_of_real_sizes_it_is_proved_and_compiled_in_order(how: How) -> None:
    sizes = {"B": 1, "S": 8192, "Q": 64, "G": 8, "D": 128}
    schedule = spec_of("gathered", how).plan_for(topologies.load("h100-nvswitch", 2), sizes, "bf16", {})
    proof = verify(schedule)
    assert not proof.findings and proof.seconds < 5
    report = check_compiled(load_source(lowering.emit(schedule), "attention"), 2, "sm_90")
    assert not report.findings and not report.unknown


def test_an_emitted_file_takes_what_its_caller_has() -> None:
    sizes = {"B": 2, "S": 64, "Q": 4, "G": 2, "D": 16}
    schedule = spec_of("gathered", How()).plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {})
    assert "Takes q [2, 32, 4, 16] bf16, k [2, 32, 2, 16] bf16, v [2, 32, 2, 16] bf16." in lowering.emit(schedule)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["triton", "triton-distributed"])
def test_a_descriptor_behind_a_wait_in_an_outer_loop_is_compiled(target: str) -> None:
    sizes = {"B": 1, "S": 2048, "Q": 8, "G": 2, "D": 128}
    pins = {"tile": "128x128x64/8w3s", "mover": "CopyEngine()"}
    schedule = spec_of("gathered", How(causal=True)).plan_for(topologies.load("h100-nvswitch", 2), sizes, "bf16", pins)
    report = check_compiled(load_source(lowering.emit(schedule, target), "attention"), 2, "sm_90")
    assert not report.findings and report.kernels


# ---- what is refused ----


def traced(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tilelink.Overlap:
    @tilelink.overlap
    def one(q: q, k: k, v: v) -> Any:  # type: ignore[valid-type]
        return tilelink.attention(q, k, v, **options)

    return one


APART, ALL_KEYS = Tensor(B, S, Q, D, placement=ROWS), Tensor(B, S, G, D)


@pytest.mark.parametrize(
    ("q", "k", "v", "options", "says"),
    [
        (Tensor(B, S, Q, D), Tensor(B, T, G, D), Tensor(B, S, G, D), {}, "one shape"),
        (Tensor(B, S, Q, D), Tensor(B, T, G, T), Tensor(B, T, G, T), {}, "elements of a head"),
        (Tensor(B, S, Q, D), Tensor(S, T, G, D), Tensor(S, T, G, D), {}, "sequences"),
        (Tensor(B, S, Q, D), Tensor(B, T, G, D), Tensor(B, T, G, D), {"causal": True}, "as many of both"),
        (Tensor(B, S, Q, D), Tensor(B, T, G, D), Tensor(B, T, G, D), {"window": 4}, "causal=True"),
        (Tensor(B, S, Q, D), Tensor(B, T, G, D), Tensor(B, T, G, D), {"soft_cap": -1.0}, "positive"),
        (Tensor(B, S, Q, D), Tensor(B, S, G, D), Tensor(B, S, G, D), {"causal": True, "zigzag": True}, "Shard(1)"),
        (APART, ALL_KEYS, ALL_KEYS, {"zigzag": True}, "causal=False"),
        (APART, ALL_KEYS, ALL_KEYS, {"causal": True, "window": 3, "zigzag": True}, "window=3"),
    ],
)
def test_shapes_and_options(q: Tensor, k: Tensor, v: Tensor, options: dict[str, object], says: str) -> None:
    with pytest.raises(BadAttention) as caught:
        traced(q, k, v, **options).spec  # noqa: B018 (it is traced here)
    assert says in str(caught.value) and "test_attention.py" in str(caught.value)


def test_placements() -> None:
    for q, k in ((ROWS, ROWS), (HEADS, ROWS), (Shard(3), Shard(3))):
        sides = Tensor(B, S, Q, D, placement=q), *(Tensor(B, S, G, D, placement=k) for _ in range(2))
        with pytest.raises(AttentionPlacement) as caught:
            traced(*sides).spec  # noqa: B018
        assert "Shard(1) over Replicate() -> Shard(1)" in str(caught.value)


def test_other_dimensions() -> None:
    with pytest.raises(BadShape):
        traced(Tensor(S, Q, D), Tensor(S, G, D), Tensor(S, G, D)).spec  # noqa: B018
    with pytest.raises(BadShape):

        @tilelink.overlap
        def gathered(x: Tensor(S, Q, D, placement=Shard(0))) -> Tensor:  # type: ignore[valid-type]
            return tilelink.all_gather(x, dim=0)

        gathered.spec  # noqa: B018


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"Q": 3, "G": 2}, "do not share"),
        ({"D": 24}, "16, 32, 64, 128, 256"),
    ],
)
def test_sizes(sizes: dict[str, int], says: str) -> None:
    with pytest.raises(BadAttention) as caught:
        bind(spec_of("given", How()).spec, {"B": 1, "S": 8, "Q": 2, "G": 2, "D": 16} | sizes, 2, "bf16")
    assert says in str(caught.value)


def test_tokens_in_zigzag() -> None:
    zigzag, sizes = How(causal=True, zigzag=True), {"B": 1, "Q": 2, "G": 2, "D": 16}
    with pytest.raises(BadAttention, match="20 tokens are not two blocks for each of 4 ranks"):
        bind(spec_of("gathered", zigzag).spec, sizes | {"S": 20}, 4, "bf16")
    with pytest.raises(BadAttention, match="k is not gathered"):
        spec_of("given", zigzag).plan_for(topologies.load("laptop-switch", 2), sizes | {"S": 64}, "bf16", {})


def test_a_library_that_merges_pieces_may_round_each_of_them() -> None:
    """Means of two pieces that nearly cancel: what is left is smaller than their roundings."""
    q, k, v = (torch.zeros(1, 2048, 1, 16, dtype=torch.bfloat16) for _ in range(3))
    v[:, :1024], v[:, 1024:] = 1.0, -1.0
    v[:, 0:1024:2] = 1.0078125  # whose mean is no number of bf16
    pieces = [v[0, first : first + 1024, 0].double().mean(0).bfloat16().double() for first in (0, 1024)]
    merged = ((pieces[0] + pieces[1]) / 2).bfloat16().expand(1, 2048, 1, 16)
    x, y, z = map(Near, (q, k, v))
    how: dict[str, Any] = {"causal": False, "window": 0, "soft_cap": 0.0, "scale": 0.25}
    ours = attention_of(x, y, z, torch.bfloat16, **how).rounded(torch.bfloat16)
    theirs = attention_of(x, y, z, torch.bfloat16, **how, library=torch.bfloat16).rounded(torch.bfloat16)
    assert Comparison.of(merged, ours).wrong == merged.numel()
    assert Comparison.of(merged, theirs).equal
