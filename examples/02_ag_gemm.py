"""AllGather + GEMM: rows of x arrive from the other ranks while tiles of the rows that are here are computed."""

from __future__ import annotations

import lowering
import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")


@tilelink.overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)


def main() -> None:
    schedule = ag_gemm.plan(topology="h200-nvswitch", num_ranks=4, M=8192, K=4096, N=14336)
    print(schedule)

    small = ag_gemm.plan(topology="laptop-switch", num_ranks=4, M=260, K=72, N=96)
    result = run_emulated(small, lowering.emit(small))
    print("\n".join(result.lines()))


if __name__ == "__main__":
    main()
