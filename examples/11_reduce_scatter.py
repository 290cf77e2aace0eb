"""ReduceScatter across nodes, alone: ranks of a node add what they have for another one, and put the sum along their rail."""

from __future__ import annotations

import lowering
import tilelink
import topologies
from tilelink import Partial, Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

M, N = dims("M N")


@tilelink.overlap
def reduce_scatter(x: Tensor(M, N, placement=Partial())):
    return tilelink.reduce_scatter(x, dim=0)


@tilelink.overlap
def all_gather(x: Tensor(M, N, placement=Shard(0))):
    """The way back: a part is put once to each node, and handed on there."""
    return tilelink.all_gather(x, dim=0)


def main() -> None:
    schedule = reduce_scatter.plan(topology="h800-2-nodes", M=8192, N=12288, pin={"mover": "Rails(16)"})
    print(schedule)

    two_nodes = topologies.load("laptop-switch", 4, nodes=2)
    for overlap in (reduce_scatter, all_gather):
        small = overlap.plan(two_nodes, M=260, N=96, pin={"mover": "Rails(2)"})
        print(small)
        for target in ("triton", "triton-nvshmem"):
            result = run_emulated(small, lowering.emit(small, target))
            print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
