"""The spec that `tilelink demo` shows: AllGather + GEMM, the smallest operator with something to overlap."""

from __future__ import annotations

from tilelink.declaration import overlap
from tilelink.ir.functions import all_gather, matmul
from tilelink.ir.placement import Shard
from tilelink.ir.tensor import Tensor, dims

M, N, K = dims("M N K")


@overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return matmul(all_gather(x, dim=0), w)
