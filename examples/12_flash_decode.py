"""Flash decode with a cache that lies on all ranks: each has some tokens of all sequences, and a state of softmax from these.

One query of a sequence sees all its tokens. A rank finds the mean of its own values by weight, and the sum of the weights; these
travel, and no key or value does. The merged states are in order of heads, as the projection behind attention shares them out:
`reduce_scatter(dim=1)`. Where attention is a kernel of your own that writes such states, `merge_states` merges these alone.
With `return_lse` there are the logarithms of the sums of weights, too: a prefix that many sequences share is merged by these.
"""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Partial, Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

B, S, Q, G, D = dims("B S Q G D")  # sequences, tokens, heads of queries, heads of keys and values, elements of a head
H = dims("H")[0]  # elements of the model's hidden state


@tilelink.overlap
def flash_decode(
    q: Tensor(B, Q, D),
    k: Tensor(B, S, G, D, placement=Shard(1)),
    v: Tensor(B, S, G, D, placement=Shard(1)),
    lengths: Tensor(B, dtype="int32"),  # tokens of each sequence on all ranks together, up to S
):
    y = tilelink.attention(q, k, v, lengths=lengths)  # Partial: every rank holds a state
    return tilelink.reduce_scatter(y, dim=1)


@tilelink.overlap
def decode_and_project(
    q: Tensor(B, Q, D),
    k: Tensor(B, S, G, D, placement=Shard(1)),
    v: Tensor(B, S, G, D, placement=Shard(1)),
    lengths: Tensor(B, dtype="int32"),
    w: Tensor(Q * D, H, placement=Shard(0)),  # rows of the heads that a rank gets
):
    y = tilelink.reduce_scatter(tilelink.attention(q, k, v, lengths=lengths), dim=1)
    return tilelink.all_reduce(tilelink.flatten(y) @ w)


@tilelink.overlap
def merge(means: Tensor(B, Q, D, placement=Partial()), lse: Tensor(B, Q, dtype="fp32", placement=Partial())):
    return tilelink.all_reduce(tilelink.merge_states(means, lse))


@tilelink.overlap
def decode_and_keep(
    q: Tensor(B, Q, D),
    k: Tensor(B, S, G, D, placement=Shard(1)),
    v: Tensor(B, S, G, D, placement=Shard(1)),
    lengths: Tensor(B, dtype="int32"),
):
    y, lse = tilelink.attention(
        q, k, v, lengths=lengths, return_lse=True
    )  # the state of all tokens, for one more merge
    return tilelink.reduce_scatter(y, dim=1), tilelink.reduce_scatter(lse, dim=1)


def main() -> None:
    schedule = flash_decode.plan(topology="h200-nvswitch", num_ranks=4, B=1, S=131072, Q=64, G=8, D=128)
    print(schedule)

    for small in (
        flash_decode.plan(topology="laptop-switch", num_ranks=4, B=3, S=132, Q=8, G=2, D=16),
        decode_and_project.plan(topology="laptop-switch", num_ranks=4, B=3, S=132, Q=8, G=2, D=16, H=64),
        merge.plan(topology="laptop-switch", num_ranks=4, B=3, Q=8, D=16),
        decode_and_keep.plan(topology="laptop-switch", num_ranks=4, B=3, S=132, Q=8, G=2, D=16),
    ):
        result = run_emulated(small, lowering.emit(small), calls=4)
        print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
