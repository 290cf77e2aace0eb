"""Layers of attention between projections, by heads and by tokens; benchmarks take them, too."""

from __future__ import annotations

import tilelink
from tilelink import Shard, Tensor, dims

B, S, Q, G, D, H = dims("B S Q G D H")


@tilelink.overlap
def by_heads(
    x: Tensor(B * S, H, placement=Shard(0)),  # type: ignore[valid-type]
    wq: Tensor(H, Q * D, placement=Shard(1)),  # type: ignore[valid-type]
    wk: Tensor(H, G * D, placement=Shard(1)),  # type: ignore[valid-type]
    wv: Tensor(H, G * D, placement=Shard(1)),  # type: ignore[valid-type]
    wo: Tensor(Q * D, H, placement=Shard(0)),  # type: ignore[valid-type]
) -> Tensor:
    """A layer whose heads are sharded: gather, projections, attention, projection, scatter."""
    rows = tilelink.all_gather(x, dim=0)
    q = tilelink.unflatten(rows @ wq, B, S, Q, D)
    k, v = (tilelink.unflatten(rows @ w, B, S, G, D) for w in (wk, wv))
    return tilelink.reduce_scatter(tilelink.flatten(tilelink.attention(q, k, v, causal=True)) @ wo, dim=0)


@tilelink.overlap
def by_tokens(
    x: Tensor(S, H, placement=Shard(0)),  # type: ignore[valid-type]
    wq: Tensor(H, Q * D),  # type: ignore[valid-type]
    wk: Tensor(H, G * D),  # type: ignore[valid-type]
    wv: Tensor(H, G * D),  # type: ignore[valid-type]
    wo: Tensor(Q * D, H),  # type: ignore[valid-type]
) -> Tensor:
    """A layer whose tokens are sharded: keys and values are made where their tokens are, and gathered."""
    q = tilelink.unflatten(x @ wq, 1, S, Q, D)
    k, v = (tilelink.all_gather(tilelink.unflatten(x @ w, 1, S, G, D), dim=1) for w in (wk, wv))
    return tilelink.matmul(tilelink.flatten(tilelink.attention(q, k, v, causal=True)), wo)


@tilelink.overlap
def rows_gathered(
    x: Tensor(S, H, placement=Shard(0)),  # type: ignore[valid-type]
    wq: Tensor(H, Q * D),  # type: ignore[valid-type]
    wk: Tensor(H, G * D),  # type: ignore[valid-type]
    wv: Tensor(H, G * D),  # type: ignore[valid-type]
    wo: Tensor(Q * D, H),  # type: ignore[valid-type]
) -> Tensor:
    """The same, and what is gathered are rows of matrices; the result is that of attention, flat."""
    q = tilelink.unflatten(x @ wq, 1, S, Q, D)
    k, v = (tilelink.unflatten(tilelink.all_gather(x @ w, dim=0), 1, S, G, D) for w in (wk, wv))
    flat = tilelink.flatten(tilelink.attention(q, k, v))
    return tilelink.add(flat @ wo, x)
