"""Prefill with a sequence that lies on all ranks: each attends with its own queries to the keys and values of all.

Rank r has the r-th part of the tokens, so that the last rank sees most keys. With `zigzag=True` tokens are cut into two blocks
for each rank: r has number r and the last but r, and all ranks compute as much.
"""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

B, S, Q, G, D = dims("B S Q G D")  # sequences, tokens, heads of queries, heads of keys and values, elements of a head


@tilelink.overlap
def prefill(
    q: Tensor(B, S, Q, D, placement=Shard(1)),
    k: Tensor(B, S, G, D, placement=Shard(1)),
    v: Tensor(B, S, G, D, placement=Shard(1)),
):
    return tilelink.attention(q, tilelink.all_gather(k, dim=1), tilelink.all_gather(v, dim=1), causal=True)


def main() -> None:
    schedule = prefill.plan(topology="h200-nvswitch", num_ranks=4, B=1, S=8192, Q=64, G=8, D=128)
    print(schedule)

    small = prefill.plan(topology="laptop-switch", num_ranks=4, B=1, S=132, Q=4, G=2, D=16)
    result = run_emulated(small, lowering.emit(small), calls=4)
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
