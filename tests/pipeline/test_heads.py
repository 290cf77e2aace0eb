"""Attention between projections: heads are columns of matrices, and no element moves. Against torch on whole tensors."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import lowering
import tilelink
import topologies
from tests.pipeline.layer_specs import B, D, G, H, Q, S, by_heads, by_tokens, rows_gathered
from tilelink import Shard, Tensor
from tilelink.declaration import Overlap
from tilelink.errors import AttentionPlacement, BadAttention, BadShape, TileLinkError
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.meaning import cut, whole_inputs
from tilelink.runtime.run import run_emulated

SPECS = {"heads": by_heads, "tokens": by_tokens, "rows": rows_gathered}


def definition(kind: str, heads: int, keys: int, sequences: int, given: dict[str, torch.Tensor]) -> torch.Tensor:
    """In float64, head by head and row by row."""
    x, wq, wk, wv, wo = (given[name].double() for name in ("x", "wq", "wk", "wv", "wo"))
    tokens, width = x.shape[0] // sequences, wq.shape[1] // heads
    made = torch.zeros(x.shape[0], wq.shape[1], dtype=torch.float64)
    for b in range(sequences):
        rows = slice(b * tokens, (b + 1) * tokens)
        for head in range(heads):
            shared = head * keys // heads
            q = (x @ wq)[rows, head * width : (head + 1) * width]
            k, v = ((x @ w)[rows, shared * width : (shared + 1) * width] for w in (wk, wv))
            for i in range(tokens):
                last = tokens if kind == "rows" else i + 1
                weights = torch.softmax(k[:last] @ q[i] / math.sqrt(width), 0)
                made[b * tokens + i, head * width : (head + 1) * width] = weights @ v[:last]
    return made @ wo + (x if kind == "rows" else 0)


@pytest.mark.quick(3)
@pytest.mark.parametrize("seed", range(36))
def test_a_random_schedule_of_a_layer_is_what_the_definition_says(seed: int) -> None:
    rng = random.Random(seed)
    kind, ranks = rng.choice(list(SPECS)), rng.choice([2, 2, 3, 4])
    keys = rng.choice([1, 2]) * (ranks if kind == "heads" else 1)
    sequences, width = rng.choice([1, 2, 3]) if kind == "heads" else 1, rng.choice([16, 32])
    sizes = {"S": ranks * rng.randint(2, 14), "Q": keys * rng.choice([1, 2]), "G": keys, "D": width, "H": 32}
    sizes |= {"B": sequences} if kind == "heads" else {}
    spec = bind(SPECS[kind].spec, sizes, ranks, rng.choice(["bf16", "fp16"]))
    machine = topologies.load(rng.choice(["laptop-switch", "h100-nvswitch"]), ranks)
    schedule = sample_schedule(spec, machine, rng)
    assert not verify(schedule).findings
    source = lowering.emit(schedule)
    assert run_emulated(schedule, source, calls=2).equal
    run = EmulatedRun(schedule, source, seed)
    run.call()
    run.finish()
    ((inputs, outputs),) = run.calls
    exact = definition(kind, sizes["Q"], keys, sequences, whole_inputs(spec, inputs))
    far = {"bf16": 0.02, "fp16": 0.003}[spec.inputs[0].dtype] * float(exact.abs().max())
    for rank, (out,) in enumerate(outputs):
        part = cut(exact, spec.value(spec.outputs[0]).placement, rank, ranks)
        assert (out.double() - part).abs().max() <= far


def test_a_whole_layer_is_planned_with_whole_sizes() -> None:
    sizes = {"B": 1, "S": 4096, "Q": 32, "G": 8, "D": 128, "H": 4096}
    schedule = by_heads.plan_for(topologies.load("h200-nvswitch", 4), sizes, "bf16", {})
    assert verify(schedule).proved
    assert lowering.emit(schedule)


@pytest.mark.parametrize("shape", ["flat", "heads"])
def test_either_shape_may_be_returned(shape: str) -> None:
    @tilelink.overlap
    def returned(
        q: Tensor(B, S, Q, D, placement=Shard(2)),  # type: ignore[valid-type]
        k: Tensor(B, S, G, D, placement=Shard(2)),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D, placement=Shard(2)),  # type: ignore[valid-type]
        x: Tensor(B * S, H),  # type: ignore[valid-type]
        w: Tensor(H, Q * D, placement=Shard(1)),  # type: ignore[valid-type]
    ) -> Tensor:
        if shape == "flat":
            return tilelink.flatten(tilelink.attention(q, k, v))
        return tilelink.unflatten(x @ w, B, S, Q, D)

    sizes = {"B": 2, "S": 24, "Q": 4, "G": 2, "D": 16, "H": 32}
    schedule = returned.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {})
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal


def refused(make: Callable[..., Any], sizes: dict[str, int]) -> TileLinkError:
    with pytest.raises(TileLinkError) as caught:
        operator: Overlap = tilelink.overlap(make)
        operator.plan_for(topologies.load("laptop-switch", 2), sizes, "bf16", {})
    return caught.value


def test_what_is_no_view_is_refused() -> None:
    def partial(x: Tensor(S, H, placement=Shard(1)), w: Tensor(H, Q * D, placement=Shard(0))) -> Tensor:  # type: ignore[valid-type]
        return tilelink.unflatten(x @ w, 1, S, Q, D)

    def other_size(x: Tensor(S, H)) -> Tensor:  # type: ignore[valid-type]
        return tilelink.unflatten(x, 1, S, Q, D)

    def three(x: Tensor(S, Q * D)) -> Tensor:  # type: ignore[valid-type]
        return tilelink.unflatten(x, S, Q, D)

    def matrix(x: Tensor(S, H)) -> Tensor:  # type: ignore[valid-type]
        return tilelink.flatten(x)

    def parameter(x: Tensor(S, Q * D)) -> Tensor:  # type: ignore[valid-type]
        return tilelink.unflatten(x, 1, S, Q, D)

    def several(q: Tensor(B, S, Q, D, placement=Shard(1)), k: Tensor(B, S, Q, D), v: Tensor(B, S, Q, D)) -> Tensor:  # type: ignore[valid-type]
        return tilelink.flatten(tilelink.attention(q, k, v))

    def of_rows(q: Tensor(B, S, Q, D), x: Tensor(B * S, Q * D, placement=Shard(0))) -> Tensor:  # type: ignore[valid-type]
        k = tilelink.unflatten(tilelink.all_gather(x, dim=0), B, S, Q, D)
        return tilelink.attention(q, k, k)

    sizes = {"B": 2, "S": 32, "Q": 2, "D": 16, "H": 64}

    def found(make: Callable[..., Any], *names: str) -> TileLinkError:
        return refused(make, {name: sizes[name] for name in names})

    assert isinstance(found(partial, "S", "H", "Q", "D"), AttentionPlacement)
    assert isinstance(found(other_size, "S", "H", "Q", "D"), BadAttention)
    assert isinstance(found(three, "S", "Q", "D"), BadShape)
    assert isinstance(found(matrix, "S", "H"), BadShape)
    assert "parameter is no result" in str(found(parameter, "S", "Q", "D"))
    assert "some tokens of each of the 2 sequences" in str(found(several, "B", "S", "Q", "D"))
    assert "unflatten comes first" in str(found(of_rows, "B", "S", "Q", "D"))


@pytest.mark.parametrize("reader", ["flatten", "queries", "caller", "keys"])
def test_gathered_tokens_of_several_sequences_are_for_keys_alone(reader: str) -> None:
    """They lie rank by rank, so that no sequence is in one piece."""

    @tilelink.overlap
    def gathered(
        x: Tensor(B, S, Q, D, placement=Shard(1)),  # type: ignore[valid-type]
        y: Tensor(B, S, Q, D),  # type: ignore[valid-type]
        w: Tensor(Q * D, H),  # type: ignore[valid-type]
    ) -> Any:
        whole = tilelink.all_gather(x, dim=1)
        if reader == "flatten":
            return tilelink.matmul(tilelink.flatten(whole), w)
        if reader == "caller":
            return whole
        return tilelink.attention(whole, y, y) if reader == "queries" else tilelink.attention(y, whole, whole)

    machine, sizes = topologies.load("laptop-switch", 2), {"B": 2, "S": 32, "Q": 2, "D": 16, "H": 32}
    if reader != "keys":
        with pytest.raises(BadAttention, match="lie rank by rank"):
            gathered.plan_for(machine, sizes, "bf16", {})
    for sequences in (1, 2) if reader == "keys" else (1,):
        schedule = gathered.plan_for(machine, sizes | {"B": sequences}, "bf16", {})
        assert run_emulated(schedule, lowering.emit(schedule), calls=2).equal
