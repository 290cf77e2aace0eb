"""A layer of attention whose heads lie on all ranks, as one graph: gather, projections, attention, projection, scatter.

Rank r has the r-th part of the tokens before and behind the layer, and computes the r-th part of the heads for all of them.
"""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

# sequences, tokens, heads of queries, heads of keys and values, elements of a head, width of the model
B, S, Q, G, D, H = dims("B S Q G D H")


@tilelink.overlap
def attention_layer(
    x: Tensor(B * S, H, placement=Shard(0)),
    wq: Tensor(H, Q * D, placement=Shard(1)),
    wk: Tensor(H, G * D, placement=Shard(1)),
    wv: Tensor(H, G * D, placement=Shard(1)),
    wo: Tensor(Q * D, H, placement=Shard(0)),
):
    rows = tilelink.all_gather(x, dim=0)
    q = tilelink.unflatten(rows @ wq, B, S, Q, D)
    k = tilelink.unflatten(rows @ wk, B, S, G, D)
    v = tilelink.unflatten(rows @ wv, B, S, G, D)
    heads = tilelink.attention(q, k, v, causal=True)
    return tilelink.reduce_scatter(tilelink.flatten(heads) @ wo, dim=0)


def main() -> None:
    schedule = attention_layer.plan(topology="h200-nvswitch", num_ranks=4, B=1, S=4096, Q=32, G=8, D=128, H=4096)
    print(schedule)

    small = attention_layer.plan(topology="laptop-switch", num_ranks=4, B=2, S=48, Q=8, G=4, D=16, H=64)
    result = run_emulated(small, lowering.emit(small), calls=4)
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
