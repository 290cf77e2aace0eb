"""Specs of attention over ranks, and what they mean by definition: query by query, without a line of the project."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

import tilelink
import topologies
from tilelink import Shard, Tensor, dims
from tilelink.declaration import Overlap
from tilelink.ir.nodes import CopyProgram
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.sample import sample_schedule

B, S, T, Q, G, D = dims("B S T Q G D")
ROWS, HEADS = Shard(1), Shard(2)


@dataclass(frozen=True)
class How:
    causal: bool = False
    window: int = 0
    soft_cap: float = 0.0
    scale: float = 0.0
    zigzag: bool = False
    lse: bool = False
    base2: bool = False


@cache
def spec_of(kind: str, how: How) -> Overlap:
    """`gathered`: keys and values of all ranks; `cross`: other tokens than those of the queries, which all ranks have; `heads`:
    each rank has its own; `given`: all ranks have all keys and values."""
    options: dict[str, Any] = {
        "causal": how.causal,
        "window": how.window,
        "soft_cap": how.soft_cap,
        "softmax_scale": how.scale,
    }
    options["zigzag"] = how.zigzag
    if how.lse:
        options |= {"return_lse": True, "base2": how.base2}

    if kind == "gathered":

        @tilelink.overlap
        def gathered(
            q: Tensor(B, S, Q, D, placement=ROWS),  # type: ignore[valid-type]
            k: Tensor(B, S, G, D, placement=ROWS),  # type: ignore[valid-type]
            v: Tensor(B, S, G, D, placement=ROWS),  # type: ignore[valid-type]
        ) -> Any:
            keys, values = tilelink.all_gather(k, dim=1), tilelink.all_gather(v, dim=1)
            return tilelink.attention(q, keys, values, **options)

        return gathered
    if kind == "cross":

        @tilelink.overlap
        def cross(
            q: Tensor(B, S, Q, D),  # type: ignore[valid-type]
            k: Tensor(B, T, G, D, placement=ROWS),  # type: ignore[valid-type]
            v: Tensor(B, T, G, D, placement=ROWS),  # type: ignore[valid-type]
        ) -> Any:
            keys, values = tilelink.all_gather(k, dim=1), tilelink.all_gather(v, dim=1)
            return tilelink.attention(q, keys, values, **options)

        return cross
    if kind == "heads":

        @tilelink.overlap
        def heads(
            q: Tensor(B, S, Q, D, placement=HEADS),  # type: ignore[valid-type]
            k: Tensor(B, S, G, D, placement=HEADS),  # type: ignore[valid-type]
            v: Tensor(B, S, G, D, placement=HEADS),  # type: ignore[valid-type]
        ) -> Any:
            return tilelink.attention(q, k, v, **options)

        return heads
    assert kind == "given"

    @tilelink.overlap
    def given(
        q: Tensor(B, S, Q, D, placement=ROWS),  # type: ignore[valid-type]
        k: Tensor(B, S, G, D),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D),  # type: ignore[valid-type]
    ) -> Any:
        return tilelink.attention(q, k, v, **options)

    return given


def sizes_of(operator: Overlap, sizes: Mapping[str, int]) -> dict[str, int]:
    """Those that the operator knows."""
    names = {str(one) for value in operator.spec.inputs for one in value.shape}
    return {name: size for name, size in sizes.items() if name in names}


KINDS = ("gathered", "cross", "heads", "given")


def by_definition(how: How, ranks: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query after the other, in float64."""
    if how.zigzag:  # in the order of tokens, and back
        size = q.shape[1] // (2 * ranks)
        places = [
            block * size + i for rank in range(ranks) for block in (rank, 2 * ranks - 1 - rank) for i in range(size)
        ]
        plain, out = [torch.empty_like(one) for one in (q, k, v)], torch.empty(q.shape, dtype=torch.float64)
        for place, token in enumerate(places):
            for one, given in zip(plain, (q, k, v), strict=True):
                one[:, token] = given[:, place]
        found = by_definition(replace(how, zigzag=False), ranks, *plain)
        for place, token in enumerate(places):
            out[:, place] = found[:, token]
        return out
    out = torch.zeros(q.shape, dtype=torch.float64)
    scale = how.scale or 1 / math.sqrt(q.shape[3])
    for b in range(q.shape[0]):
        for head in range(q.shape[2]):
            group = head * k.shape[2] // q.shape[2]
            for i in range(q.shape[1]):
                first = max(0, i + 1 - how.window) if how.window else 0
                last = i + 1 if how.causal else k.shape[1]
                scores = (k[b, first:last, group].double() * q[b, i, head].double()).sum(1) * scale
                if how.soft_cap:
                    scores = (scores / how.soft_cap).tanh() * how.soft_cap
                weights = (scores - scores.max()).exp()
                out[b, i, head] = (weights[:, None] * v[b, first:last, group].double()).sum(0) / weights.sum()
    return out


def logs_by_definition(how: How, ranks: int, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The logarithm of the sum of the weights of each query, in float64."""
    token = list(range(q.shape[1]))
    if how.zigzag:
        size = q.shape[1] // (2 * ranks)
        token = [b * size + i for rank in range(ranks) for b in (rank, 2 * ranks - 1 - rank) for i in range(size)]
    keys = token if how.causal else list(range(k.shape[1]))
    out, scale = torch.empty(q.shape[:3], dtype=torch.float64), how.scale or 1 / math.sqrt(q.shape[3])
    for b in range(q.shape[0]):
        for head in range(q.shape[2]):
            group = head * k.shape[2] // q.shape[2]
            for place, mine in enumerate(token):
                seen = [j for j, key in enumerate(keys) if not how.causal or key <= mine]
                seen = [j for j in seen if not how.window or keys[j] > mine - how.window]
                scores = (k[b, seen, group].double() * q[b, place, head].double()).sum(1) * scale
                if how.soft_cap:
                    scores = (scores / how.soft_cap).tanh() * how.soft_cap
                top = float(scores.max())
                total = sum(math.exp(float(one) - top) for one in scores)
                out[b, place, head] = (top + math.log(total)) / (math.log(2) if how.base2 else 1)
    return out


@dataclass(frozen=True)
class Drawn:
    kind: str
    how: How
    schedule: Schedule
    target: str

    @property
    def sizes(self) -> Mapping[str, int]:
        return dict(self.schedule.spec.sizes)


def drawn(rng: random.Random, *, lse: bool = False) -> Drawn:
    """A random schedule of a random spec: ragged lengths, shared heads, masks; any machine, dtype and target."""
    ranks, kind = rng.choice([2, 2, 3, 4, 8]), rng.choice(KINDS)
    causal = rng.random() < 0.6 and kind != "cross"
    window = rng.choice([0, 0, 1, 3, 17, 40]) if causal else 0
    zigzag = causal and not window and kind == "gathered" and rng.random() < 0.5
    how = How(causal, window, rng.choice([0.0, 0.0, 5.0]), rng.choice([0.0, 0.3]), zigzag)
    if lse:
        how = replace(how, lse=True, base2=rng.random() < 0.5)
    groups = rng.choice([1, 2, 3]) * (ranks if kind == "heads" else 1)
    tokens = ranks * (32 * rng.randint(1, 3) if zigzag else rng.randint(1, 90 // ranks))
    sizes = {
        "B": rng.choice([1, 1, 2, 3]) * (ranks if kind == "batch" else 1),
        "S": tokens,
        "Q": groups * rng.choice([1, 2, 4]),
        "G": groups,
        "D": rng.choice([16, 32]),
    }
    if kind == "cross":
        sizes["T"] = ranks * rng.randint(1, 90 // ranks)
    spec = bind(spec_of(kind, how).spec, sizes, ranks, rng.choice(["bf16", "fp16", "fp32"]))
    machine = rng.choice(["laptop-switch", "laptop-mesh", "h100-nvswitch"])
    schedule = sample_schedule(spec, topologies.load(machine, ranks), rng)
    copies = any(isinstance(launch, CopyProgram) for launch in schedule.launches)
    # a copy stream takes an SM on Triton-distributed, and the sample leaves none
    return Drawn(kind, how, schedule, "triton" if copies else rng.choice(["triton", "triton-distributed"]))
