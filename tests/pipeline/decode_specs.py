"""Specs of one query a sequence over tokens of all ranks, and of states that the caller has; what they mean by definition: token
by token, from what each rank has, without a line of the project."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

import tilelink
from tilelink import Partial, Shard, Tensor, dims
from tilelink.declaration import Overlap
from tilelink.ir.spec import BoundSpec, bind

B, S, Q, G, D, N, L, P, T, H = dims("B S Q G D N L P T H")
TOKENS, POOL, COLUMNS = Shard(1), Shard(0), Shard(1)
KINDS = ("heads", "sequences", "all")  # what a rank has of the result


@dataclass(frozen=True)
class How:
    """`merge`: states that the caller has, in `base2` or not; `lse`: with logarithms; the rest is of attention."""

    lengths: bool = False
    pages: bool = False
    window: int = 0
    soft_cap: float = 0.0
    scale: float = 0.0
    merge: bool = False
    base2: bool = False
    lse: bool = False


def _reduced(kind: str, x: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(_reduced(kind, one) for one in x)
    if kind == "all":
        return tilelink.all_reduce(x)
    return tilelink.reduce_scatter(x, dim=1 if kind == "heads" else 0)


@cache
def spec_of(kind: str, how: How) -> Overlap:
    """`heads` and `sequences`: each rank gets some of them; `all`: each has the whole result."""
    if how.merge:
        return _merge(kind, how)
    return _paged(kind, how) if how.pages else _in_a_row(kind, how)


def _options(how: How) -> dict[str, Any]:
    options: dict[str, Any] = {"window": how.window, "soft_cap": how.soft_cap, "softmax_scale": how.scale}
    return options | {"return_lse": True, "base2": how.base2} if how.lse else options


def _merge(kind: str, how: How) -> Overlap:
    options: dict[str, Any] = {"return_lse": True} if how.lse else {}

    @tilelink.overlap
    def merge(
        means: Tensor(T, H, D, placement=Partial()),  # type: ignore[valid-type]
        lse: Tensor(T, H, dtype="fp32", placement=Partial()),  # type: ignore[valid-type]
    ) -> Any:
        states = tilelink.merge_states(means, lse, base2=how.base2, **options)
        return _reduced(kind, states)

    return merge


def _in_a_row(kind: str, how: How) -> Overlap:
    options = _options(how)
    if how.lengths:

        @tilelink.overlap
        def decode_of_lengths(
            q: Tensor(B, Q, D),  # type: ignore[valid-type]
            k: Tensor(B, S, G, D, placement=TOKENS),  # type: ignore[valid-type]
            v: Tensor(B, S, G, D, placement=TOKENS),  # type: ignore[valid-type]
            lengths: Tensor(B, dtype="int32"),  # type: ignore[valid-type]
        ) -> Any:
            y = tilelink.attention(q, k, v, lengths=lengths, **options)
            return _reduced(kind, y)

        return decode_of_lengths

    @tilelink.overlap
    def decode(
        q: Tensor(B, Q, D),  # type: ignore[valid-type]
        k: Tensor(B, S, G, D, placement=TOKENS),  # type: ignore[valid-type]
        v: Tensor(B, S, G, D, placement=TOKENS),  # type: ignore[valid-type]
    ) -> Any:
        y = tilelink.attention(q, k, v, **options)
        return _reduced(kind, y)

    return decode


def _paged(kind: str, how: How) -> Overlap:
    options = _options(how)
    if how.lengths:

        @tilelink.overlap
        def paged_decode(
            q: Tensor(B, Q, D),  # type: ignore[valid-type]
            k: Tensor(N, L, G, D, placement=POOL),  # type: ignore[valid-type]
            v: Tensor(N, L, G, D, placement=POOL),  # type: ignore[valid-type]
            lengths: Tensor(B, dtype="int32"),  # type: ignore[valid-type]
            table: Tensor(B, P, dtype="int32", placement=COLUMNS),  # type: ignore[valid-type]
        ) -> Any:
            y = tilelink.attention(q, k, v, lengths=lengths, pages=table, **options)
            return _reduced(kind, y)

        return paged_decode

    @tilelink.overlap
    def full_pages(
        q: Tensor(B, Q, D),  # type: ignore[valid-type]
        k: Tensor(N, L, G, D, placement=POOL),  # type: ignore[valid-type]
        v: Tensor(N, L, G, D, placement=POOL),  # type: ignore[valid-type]
        table: Tensor(B, P, dtype="int32", placement=COLUMNS),  # type: ignore[valid-type]
    ) -> Any:
        y = tilelink.attention(q, k, v, pages=table, **options)
        return _reduced(kind, y)

    return full_pages


@dataclass(frozen=True)
class Drawn:
    kind: str
    how: How
    spec: BoundSpec

    @property
    def sizes(self) -> Mapping[str, int]:
        return dict(self.spec.sizes)


def drawn(rng: random.Random, ranks: int) -> Drawn:
    """A random spec of any kind, option and dtype: ragged tokens, shared heads, pages that sequences share or that nobody has."""
    kind = rng.choice(KINDS)
    merge, pages = rng.random() < 0.25, rng.random() < 0.5
    width, dtype = rng.choice([64, 128]), rng.choice(["bf16", "fp16", "fp32"])
    sequences = rng.choice([b for b in range(1, max(8, ranks) + 1) if kind != "sequences" or b % ranks == 0])
    if merge:
        heads = rng.choice([h for h in range(1, 33) if kind != "heads" or h % ranks == 0])
        how = How(merge=True, base2=rng.random() < 0.5)
        return _bound(kind, how, {"T": sequences, "H": heads, "D": width}, ranks, dtype)
    groups = rng.choice([1, 2, 4])
    shared = rng.choice([one for one in range(1, max(8, ranks) + 1) if kind != "heads" or groups * one % ranks == 0])
    soft_cap, scale = rng.choice([0.0, 0.0, 5.0]), rng.choice([0.0, 0.0, 0.3])
    how = How(rng.random() < 0.7, pages, rng.choice([0, 0, 1, 17, 100, 1000]), soft_cap, scale)
    sizes = {"B": sequences, "Q": groups * shared, "G": groups, "D": width}
    if not pages:
        return _bound(kind, how, sizes | {"S": ranks * rng.randint(1, 600 // ranks)}, ranks, dtype)
    size = rng.choice([16, 32])
    columns = rng.randint(1, max(1, 600 // (ranks * size)))
    pool = rng.choice([1, columns, sequences * columns, sequences * columns + 3])
    return _bound(kind, how, sizes | {"N": ranks * pool, "L": size, "P": ranks * columns}, ranks, dtype)


def _bound(kind: str, how: How, sizes: Mapping[str, int], ranks: int, dtype: str) -> Drawn:
    return Drawn(kind, how, bind(spec_of(kind, how).spec, sizes, ranks, dtype))


def meaning_by_definition(how: How, inputs_of_ranks: Sequence[Mapping[str, torch.Tensor]], ranks: int) -> torch.Tensor:
    """The whole result in float64."""
    assert len(inputs_of_ranks) == ranks
    return _merged(how, inputs_of_ranks) if how.merge else _decoded(how, inputs_of_ranks)


def logs_by_definition(how: How, inputs_of_ranks: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
    """The logarithms of all sums of weights in float64: a weight is added for each token, or for each rank that has a state."""
    first = inputs_of_ranks[0]["means" if how.merge else "q"]
    out = torch.empty(first.shape[:2], dtype=torch.float64)
    base = 2.0 if how.base2 else math.e
    for b in range(out.shape[0]):
        tokens = [] if how.merge else tokens_of(how, inputs_of_ranks, b)
        for head in range(out.shape[1]):
            if how.merge:
                powers = [float(one["lse"][b, head]) for one in inputs_of_ranks]
            else:
                groups = inputs_of_ranks[0]["k"].shape[2]
                keys = [key[head // (out.shape[1] // groups)].double() for _, key, _ in tokens]
                scores = [float(key @ first[b, head].double()) * (how.scale or first.shape[2] ** -0.5) for key in keys]
                scores = [how.soft_cap * math.tanh(s / how.soft_cap) for s in scores] if how.soft_cap else scores
                powers = [one / math.log(base) for one in scores]
            most = max(powers, default=-math.inf)
            total = sum(base ** (one - most) for one in powers) if most > -math.inf else 0.0
            out[b, head] = most + math.log(total, base) if total else -math.inf
    return out


def _merged(how: How, inputs_of_ranks: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
    out = torch.zeros(inputs_of_ranks[0]["means"].shape, dtype=torch.float64)
    for t in range(out.shape[0]):
        for head in range(out.shape[1]):
            seen = [(float(one["lse"][t, head]), one["means"][t, head].double()) for one in inputs_of_ranks]
            seen = [(log, mean) for log, mean in seen if log != -math.inf]
            if seen:
                most = max(log for log, _ in seen)
                weights = [2 ** (log - most) if how.base2 else math.exp(log - most) for log, _ in seen]
                for weight, (_, mean) in zip(weights, seen, strict=True):
                    out[t, head] += weight * mean
                out[t, head] /= sum(weights)
    return out


def _decoded(how: How, inputs_of_ranks: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
    first = inputs_of_ranks[0]
    q, groups = first["q"].double(), first["k"].shape[2]
    out = torch.zeros(q.shape, dtype=torch.float64)
    for b in range(q.shape[0]):
        tokens = tokens_of(how, inputs_of_ranks, b)
        if not tokens:
            continue
        keys, values = torch.stack([key for _, key, _ in tokens]), torch.stack([value for _, _, value in tokens])
        for head in range(q.shape[1]):
            group = head // (q.shape[1] // groups)
            scores = (keys[:, group] * q[b, head]).sum(1) * (how.scale or 1 / math.sqrt(q.shape[2]))
            if how.soft_cap:
                scores = (scores / how.soft_cap).tanh() * how.soft_cap
            weights = (scores - scores.max()).exp()
            out[b, head] = (weights[:, None] * values[:, group]).sum(0) / weights.sum()
    return out


def tokens_of(
    how: How, inputs_of_ranks: Sequence[Mapping[str, torch.Tensor]], b: int
) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """The rank, and key and value [G, D], of each token that the query of sequence `b` sees, in order."""
    found = []
    for rank, row, slot in places_of(how, inputs_of_ranks, b):
        held = inputs_of_ranks[rank]
        found.append((rank, held["k"][row, slot].double(), held["v"][row, slot].double()))
    return found


def places_of(how: How, inputs_of_ranks: Sequence[Mapping[str, torch.Tensor]], b: int) -> list[tuple[int, int, int]]:
    """The rank of each of these tokens, and where it lies in keys and values there: sequence and token, or page and slot."""
    first = inputs_of_ranks[0]
    size = first["k"].shape[1]
    each = size * (first["table"].shape[1] if how.pages else 1)  # tokens of a rank
    length = each * len(inputs_of_ranks)
    if how.lengths:
        length = max(0, min(length, int(first["lengths"][b])))
    found = []
    for token in range(max(0, length - how.window) if how.window else 0, length):
        rank, place = token // each, token % each
        if how.pages:
            page = int(inputs_of_ranks[rank]["table"][b, place // size])
            assert page >= 0
            found.append((rank, page, place % size))
        else:
            found.append((rank, b, place))
    return found
