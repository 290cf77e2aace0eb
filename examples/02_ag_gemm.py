"""AllGather + GEMM: rows of x arrive from the other ranks while tiles of the rows that are here are computed."""

from __future__ import annotations

import tilelink
from tilelink import Shard, Tensor, dims

M, N, K = dims("M N K")


@tilelink.overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)


def main() -> None:
    schedule = ag_gemm.plan(topology="h200-nvswitch", num_ranks=4, M=8192, K=4096, N=14336)
    print(schedule)


if __name__ == "__main__":
    main()
