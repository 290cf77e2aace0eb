"""An AllGather + GEMM as an emitted file would be: kernels and a host class, over the fabric interface alone.

Signals carry device-resident epochs: call e waits for signals of at least e, and pushes into a peer's buffer
only after that peer has freed it in call e - 1.
"""

# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

M = tl.constexpr(256)
N = tl.constexpr(64)
K = tl.constexpr(64)
TILE_M = tl.constexpr(32)
TILE_N = tl.constexpr(32)
TILE_K = tl.constexpr(32)


@triton.jit
def notify(signal, value):
    tl.debug_barrier()
    tl.atomic_xchg(signal, value, sem="release", scope="sys")


@triton.jit
def wait(signal, value):
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") < value:
        pass


@triton.jit
def peer_pointer(pointers, peer, dtype: tl.constexpr):
    return tl.multiple_of(tl.load(pointers + peer).to(tl.pointer_type(dtype)), 16)


@triton.jit
def begin(epoch, free, rank, num_ranks: tl.constexpr):
    current = tl.load(epoch) + 1
    for step in range(1, num_ranks):
        wait(free + (rank + step) % num_ranks, current - 1)
    tl.store(epoch, current)


@triton.jit
def push(x, epoch, full_pointers, signal_pointers, rank, num_ranks: tl.constexpr, NOTIFY: tl.constexpr):
    peer = (rank + 1 + tl.program_id(0)) % num_ranks
    rows: tl.constexpr = M // num_ranks // 16 * 16
    columns = tl.arange(0, K)
    full = peer_pointer(full_pointers, peer, tl.bfloat16)
    for row in range(0, rows, TILE_M):
        lines = row + tl.arange(0, TILE_M)
        mask = (lines < rows)[:, None] & (columns < K)[None, :]
        tile = tl.load(x + lines[:, None] * K + columns[None, :], mask=mask)
        tl.store(full + (rank * rows + lines)[:, None] * K + columns[None, :], tile, mask=mask)
    if NOTIFY:
        notify(peer_pointer(signal_pointers, peer, tl.int32) + rank, tl.load(epoch))


@triton.jit
def gemm(x, full, w, out, epoch, signal, rank, num_ranks: tl.constexpr):
    rows: tl.constexpr = M // num_ranks // 16 * 16
    total: tl.constexpr = rows * num_ranks
    num_m = tl.cdiv(total, TILE_M)
    num_n = tl.cdiv(N, TILE_N)
    current = tl.load(epoch)
    for tile in tl.range(tl.program_id(0), num_m * num_n, tl.num_programs(0), flatten=False):
        tile_m = (tile // num_n + rank * (rows // TILE_M)) % num_m
        tile_n = tile % num_n
        line = tile_m * TILE_M + tl.arange(0, TILE_M)
        column = tile_n * TILE_N + tl.arange(0, TILE_N)
        first = tile_m * TILE_M // rows
        last = tl.minimum(tile_m * TILE_M + TILE_M - 1, total - 1) // rows
        for source in range(first, last + 1):
            if source != rank:
                wait(signal + source, current)
        acc = tl.zeros((TILE_M, TILE_N), tl.float32)
        for k in range(0, K, TILE_K):
            depth = k + tl.arange(0, TILE_K)
            local = (line >= rank * rows) & (line < (rank + 1) * rows)
            remote = ~local & (line < total)
            a_full = tl.load(full + line[:, None] * K + depth[None, :], mask=remote[:, None], other=0.0)
            mine = line - rank * rows
            a_own = tl.load(x + mine[:, None] * K + depth[None, :], mask=local[:, None], other=0.0)
            b = tl.load(w + depth[:, None] * N + column[None, :])
            acc = tl.dot(tl.where(local[:, None], a_own, a_full), b, acc)
        tl.store(out + line[:, None] * N + column[None, :], acc.to(tl.bfloat16), mask=(line < total)[:, None])


@triton.jit
def finish(epoch, free_pointers, rank, num_ranks: tl.constexpr):
    current = tl.load(epoch)
    for step in tl.static_range(1, num_ranks):
        notify(peer_pointer(free_pointers, (rank + step) % num_ranks, tl.int32) + rank, current)


class AgGemm:
    """out[num_ranks * rows, N] = all_gather(x[rows, K]) @ w[K, N] in bf16; `by` is "copy engine" or "SMs".

    With three ranks a rank has 80 rows, so that some tiles of 32 rows straddle two ranks and wait for both.
    """

    def __init__(self, fabric: Any, by: str, programs: int = 4, drop_notify: bool = False) -> None:
        self.fabric = fabric
        self.by = by
        self.programs = programs
        self.drop_notify = drop_notify
        ranks = fabric.num_ranks
        self.rows = M.value // ranks // 16 * 16
        self.full = fabric.symmetric((self.rows * ranks, K.value), torch.bfloat16)
        self.signal = fabric.symmetric((ranks,), torch.int32)
        self.free = fabric.symmetric((ranks,), torch.int32)
        self.epoch = torch.zeros(1, dtype=torch.int32, device=fabric.device)
        fabric.barrier()

    def __call__(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        fabric, rank, ranks = self.fabric, self.fabric.rank, self.fabric.num_ranks
        main, side = fabric.main(), fabric.stream("push")
        out = torch.empty((self.rows * ranks, N.value), dtype=x.dtype, device=fabric.device)
        main.launch(begin, (1,), self.epoch, self.free.local, rank, num_ranks=ranks)
        side.after(main)
        if self.by == "copy engine":
            rows = self.rows
            for step in range(1, ranks):
                peer = (rank - step) % ranks
                side.copy(self.full.peers[peer][rank * rows : (rank + 1) * rows], x)
                if not self.drop_notify:
                    side.copy(self.signal.peers[peer][rank : rank + 1], self.epoch)
        else:
            tables = self.full.pointers, self.signal.pointers
            notify = not self.drop_notify
            side.launch(push, (ranks - 1,), x, self.epoch, *tables, rank, num_ranks=ranks, NOTIFY=notify)
        buffers = x, self.full.local, w, out, self.epoch, self.signal.local
        main.launch(gemm, (self.programs,), *buffers, rank, num_ranks=ranks, num_warps=8)
        main.after(side)
        main.launch(finish, (1,), self.epoch, self.free.pointers, rank, num_ranks=ranks)
        return out
