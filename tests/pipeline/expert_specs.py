"""Specs with experts, and what they mean by definition: token by token, on whole tensors, without a line of the project."""

from __future__ import annotations

from collections.abc import Sequence

import torch

import tilelink
from tilelink import Shard, Tensor, dims

T, H, F, E, K = dims("T H F E K")


@tilelink.overlap
def ag_moe(
    x: Tensor(T, H, placement=Shard(0)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32"),  # type: ignore[valid-type]
    w: Tensor(E, H, F, placement=Shard(2)),  # type: ignore[valid-type]
) -> Tensor:
    routing = tilelink.route(ids, num_experts=E)
    return tilelink.grouped_matmul(tilelink.all_gather(x, dim=0), w, routing)


@tilelink.overlap
def moe_rs(
    h: Tensor(T * K, F, placement=Shard(1)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32"),  # type: ignore[valid-type]
    weights: Tensor(T, K, dtype="fp32"),  # type: ignore[valid-type]
    w: Tensor(E, F, H, placement=Shard(1)),  # type: ignore[valid-type]
) -> Tensor:
    routing = tilelink.route(ids, num_experts=E)
    return tilelink.reduce_scatter(tilelink.combine(tilelink.grouped_matmul(h, w, routing), routing, weights), dim=0)


@tilelink.overlap
def moe_ar(
    h: Tensor(T * K, F, placement=Shard(1)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32"),  # type: ignore[valid-type]
    weights: Tensor(T, K, dtype="fp32"),  # type: ignore[valid-type]
    w: Tensor(E, F, H, placement=Shard(1)),  # type: ignore[valid-type]
) -> Tensor:
    routing = tilelink.route(ids, num_experts=E)
    return tilelink.all_reduce(tilelink.combine(tilelink.grouped_matmul(h, w, routing), routing, weights))


@tilelink.overlap
def moe_layer(
    x: Tensor(T, H, placement=Shard(0)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32"),  # type: ignore[valid-type]
    weights: Tensor(T, K, dtype="fp32"),  # type: ignore[valid-type]
    gate: Tensor(E, H, F, placement=Shard(2)),  # type: ignore[valid-type]
    up: Tensor(E, H, F, placement=Shard(2)),  # type: ignore[valid-type]
    down: Tensor(E, F, H, placement=Shard(1)),  # type: ignore[valid-type]
) -> Tensor:
    """Experts of a layer, each cut along its width over the ranks."""
    routing = tilelink.route(ids, num_experts=E)
    xf = tilelink.all_gather(x, dim=0)
    h = tilelink.silu(tilelink.grouped_matmul(xf, gate, routing)) * tilelink.grouped_matmul(xf, up, routing)
    return tilelink.reduce_scatter(tilelink.combine(tilelink.grouped_matmul(h, down, routing), routing, weights), dim=0)


@tilelink.overlap
def ep_layer(
    x: Tensor(T, H, placement=Shard(0)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32", placement=Shard(0)),  # type: ignore[valid-type]
    weights: Tensor(T, K, dtype="fp32", placement=Shard(0)),  # type: ignore[valid-type]
    gate: Tensor(E, H, F, placement=Shard(0)),  # type: ignore[valid-type]
    up: Tensor(E, H, F, placement=Shard(0)),  # type: ignore[valid-type]
    down: Tensor(E, F, H, placement=Shard(0)),  # type: ignore[valid-type]
) -> Tensor:
    """Experts of a layer, some on each rank."""
    routing = tilelink.route(ids, num_experts=E)
    rows = tilelink.dispatch(x, routing)
    h = tilelink.silu(tilelink.grouped_matmul(rows, gate, routing)) * tilelink.grouped_matmul(rows, up, routing)
    return tilelink.combine(tilelink.grouped_matmul(h, down, routing), routing, weights)


@tilelink.overlap
def there_and_back(
    x: Tensor(T, H, placement=Shard(0)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32", placement=Shard(0)),  # type: ignore[valid-type]
    weights: Tensor(T, K, dtype="fp32", placement=Shard(0)),  # type: ignore[valid-type]
) -> Tensor:
    """Rows go to the ranks of their experts, which do nothing with them."""
    routing = tilelink.route(ids, num_experts=E)
    return tilelink.combine(tilelink.dispatch(x, routing), routing, weights)


@tilelink.overlap
def of_functions(
    x: Tensor(T, H, placement=Shard(0)),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32", placement=Shard(0)),  # type: ignore[valid-type]
    weights: Tensor(T, K, dtype="fp32", placement=Shard(0)),  # type: ignore[valid-type]
    up: Tensor(E, H, F, placement=Shard(0)),  # type: ignore[valid-type]
) -> Tensor:
    """Dispatched rows are read by a function of single elements, and by a matmul."""
    routing = tilelink.route(ids, num_experts=E)
    rows = tilelink.dispatch(x, routing)
    y = tilelink.grouped_matmul(tilelink.relu(rows), up, routing) + tilelink.grouped_matmul(rows, up, routing)
    return tilelink.combine(y, routing, weights)


@tilelink.overlap
def alone(
    x: Tensor(T, H),  # type: ignore[valid-type]
    ids: Tensor(T, K, dtype="int32"),  # type: ignore[valid-type]
    weights: Tensor(T, K, dtype="fp32"),  # type: ignore[valid-type]
    gate: Tensor(E, H, F),  # type: ignore[valid-type]
    up: Tensor(E, H, F),  # type: ignore[valid-type]
    down: Tensor(E, F, H),  # type: ignore[valid-type]
) -> Tensor:
    """Every rank has all experts, and all tokens."""
    routing = tilelink.route(ids, num_experts=E)
    h = tilelink.silu(tilelink.grouped_matmul(x, gate, routing)) * tilelink.grouped_matmul(x, up, routing)
    return tilelink.combine(tilelink.grouped_matmul(h, down, routing), routing, weights)


SPECS = {one.name: one for one in (ag_moe, moe_rs, moe_ar, moe_layer, ep_layer, there_and_back, of_functions)}
OF_RANKS = ("ep_layer", "there_and_back", "of_functions")  # experts are on ranks


def _is_expert(number: int, experts: int) -> bool:
    return 0 <= number < experts


def grouped(rows: torch.Tensor, ids: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Row by row: token t at its j-th expert."""
    tokens, choices = ids.shape
    out = torch.zeros(tokens * choices, w.shape[2], dtype=torch.float64)
    for t in range(tokens):
        for j in range(choices):
            row = rows[t] if len(rows) == tokens else rows[t * choices + j]
            if _is_expert(int(ids[t, j]), len(w)):
                out[t * choices + j] = row @ w[int(ids[t, j])]
    return out


def combined(rows: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, experts: int) -> torch.Tensor:
    tokens, choices = ids.shape
    out = torch.zeros(tokens, rows.shape[1], dtype=torch.float64)
    for t in range(tokens):
        for j in range(choices):
            if _is_expert(int(ids[t, j]), experts):
                out[t] += weights[t, j] * rows[t * choices + j]
    return out


def by_definition(name: str, inputs: Sequence[torch.Tensor], experts: int = 0) -> torch.Tensor:
    """The whole result of a spec, from whole inputs in float64. `experts`: where no input says how many."""
    if name == "there_and_back":
        x, ids, weights = inputs
        return combined(x.repeat_interleave(ids.shape[1], 0), ids, weights, experts)
    if name == "ag_moe":
        x, ids, w = inputs
        return grouped(x, ids, w)
    if name in ("moe_layer", "ep_layer"):
        x, ids, weights, gate, up, down = inputs
        g = grouped(x, ids, gate)
        h = g * torch.sigmoid(g) * grouped(x, ids, up)
        return combined(grouped(h, ids, down), ids, weights, len(down))
    if name == "of_functions":
        x, ids, weights, up = inputs
        return combined(grouped(x.clamp(min=0), ids, up) + grouped(x, ids, up), ids, weights, len(up))
    h, ids, weights, w = inputs
    return combined(grouped(h, ids, w), ids, weights, len(w))
