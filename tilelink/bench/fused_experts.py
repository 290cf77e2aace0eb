"""A fused loop over experts in Triton: a baseline that uses nothing of this project.

It goes by the published description of such loops. An index sorts assignments by expert and cuts each expert's into tiles. A
grouped matmul gathers rows through that order inside of its loop over depth, so that no permuted copy is made. A last kernel
sums the rows of each token. An assignment is a token at one of its experts: number `token * choices + j`.

Nothing is read by the host. Grids are those of the worst routing, and programs without a tile return at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_ONE_HOT = 16384  # elements of assignments x experts that one program of the index holds
_MOST_PARTS = 128  # programs of the index, each of which reads the counts of all
_SUM_COLS = 1024


@dataclass(frozen=True, slots=True)
class Tile:
    """Of a grouped matmul. With two weights `cols` are those of both together."""

    rows: int
    cols: int
    depth: int
    warps: int
    stages: int
    described: bool = False  # weights are loaded by descriptor, not by pointers
    group: int = 8  # tiles below each other that follow one another, since they read the same weights

    def __str__(self) -> str:
        by = " by descriptor" if self.described else ""
        return f"{self.rows}x{self.cols}x{self.depth}/{self.warps}w{self.stages}s{by}"


_FEW = (Tile(16, 64, 128, 4, 4), Tile(16, 128, 64, 4, 5), Tile(16, 128, 128, 4, 3), Tile(16, 128, 128, 4, 4, True))
_SOME = (
    Tile(32, 128, 128, 4, 3),
    Tile(64, 128, 64, 4, 4),
    Tile(64, 128, 64, 4, 4, True),
    Tile(64, 256, 64, 4, 4, True),
    Tile(128, 128, 64, 8, 4, True),
)
_MANY = (
    Tile(64, 256, 64, 4, 4, True),
    Tile(128, 128, 64, 8, 4),
    Tile(128, 256, 64, 8, 3),
    Tile(128, 256, 64, 8, 3, True),
    Tile(128, 256, 64, 8, 4, True),
)


def tiles_for(rows_per_expert: float) -> tuple[Tile, ...]:
    """Tiles worth a try where experts have so many rows in the mean."""
    return _FEW if rows_per_expert < 24 else _SOME if rows_per_expert < 96 else _MANY


@dataclass(frozen=True, slots=True)
class Index:
    """Assignments of the local experts, an expert after the other. Tiles end with their expert, so none needs padding."""

    order: torch.Tensor  # assignments
    table: torch.Tensor  # of each tile: its expert, where it begins in `order`, where its expert's assignments end
    number: torch.Tensor  # of tiles
    tile_rows: int

    @property
    def most_tiles(self) -> int:
        return self.table.shape[1]


@triton.jit  # type: ignore[untyped-decorator]
def _one_hot(ids, at, assignments, first, EXPERTS: tl.constexpr, SLOTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Of each assignment `at` and each local expert: 1 if they belong together."""
    chosen = tl.load(ids + at, mask=at < assignments, other=-1)
    here = (at < assignments) & (chosen >= first) & (chosen < first + EXPERTS)
    return (tl.where(here, chosen - first, -1)[:, None] == tl.arange(0, SLOTS)[None, :]).to(tl.int32)


@triton.jit  # type: ignore[untyped-decorator]
def count_kernel(  # type: ignore[no-untyped-def]
    ids,
    counts,
    assignments,
    first,
    EXPERTS: tl.constexpr,
    SLOTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    """Each program counts a part of the assignments: a row of `counts`. Without atomics nothing has to be cleared."""
    part = tl.program_id(0)
    found = tl.zeros([SLOTS], tl.int32)
    for chunk in range(CHUNKS):
        at = (part * CHUNKS + chunk) * CHUNK + tl.arange(0, CHUNK)
        found += tl.sum(_one_hot(ids, at, assignments, first, EXPERTS, SLOTS), 0)
    tl.store(counts + part * SLOTS + tl.arange(0, SLOTS), found)


@triton.jit  # type: ignore[untyped-decorator]
def place_kernel(  # type: ignore[no-untyped-def]
    ids,
    counts,
    order,
    table,
    number,
    assignments,
    first,
    tile_rows,
    most_tiles,
    EXPERTS: tl.constexpr,
    SLOTS: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    PARTS: tl.constexpr,
    PARTS_SLOTS: tl.constexpr,
    TABLE: tl.constexpr,
):
    """Each program places its part of the assignments, and writes its part of the table of tiles."""
    part = tl.program_id(0)
    if PARTS == 1:  # then nobody has counted
        total = tl.zeros([SLOTS], tl.int32)
        for chunk in range(CHUNKS):
            total += tl.sum(_one_hot(ids, chunk * CHUNK + tl.arange(0, CHUNK), assignments, first, EXPERTS, SLOTS), 0)
        before = tl.zeros([SLOTS], tl.int32)
    else:
        parts = tl.arange(0, PARTS_SLOTS)[:, None]
        counted = tl.load(counts + parts * SLOTS + tl.arange(0, SLOTS)[None, :], mask=parts < PARTS, other=0)
        total = tl.sum(counted, 0)
        before = tl.sum(tl.where(parts < part, counted, 0), 0)
    begin = tl.cumsum(total, 0) - total
    tiles = (total + tile_rows - 1) // tile_rows
    tiles_end = tl.cumsum(tiles, 0)
    used = tl.sum(tiles, 0)
    if part == 0:
        tl.store(number, used)
    for low in range(part * TABLE, used, PARTS * TABLE):
        tile = low + tl.arange(0, TABLE)
        expert = tl.sum((tiles_end[None, :] <= tile[:, None]).to(tl.int32), 1)
        is_its = expert[:, None] == tl.arange(0, SLOTS)[None, :]
        row = begin[None, :] + (tile[:, None] - (tiles_end - tiles)[None, :]) * tile_rows
        tl.store(table + tile, expert, mask=tile < used)
        tl.store(table + most_tiles + tile, tl.sum(tl.where(is_its, row, 0), 1), mask=tile < used)
        end = tl.sum(tl.where(is_its, (begin + total)[None, :], 0), 1)
        tl.store(table + 2 * most_tiles + tile, end, mask=tile < used)
    base = begin + before
    for chunk in range(CHUNKS):
        at = (part * CHUNKS + chunk) * CHUNK + tl.arange(0, CHUNK)
        chosen = _one_hot(ids, at, assignments, first, EXPERTS, SLOTS)
        place = tl.sum(chosen * (base[None, :] + tl.cumsum(chosen, 0) - 1), 1)
        tl.store(order + place, at, mask=tl.sum(chosen, 1) > 0)
        base += tl.sum(chosen, 0)


def indexed(ids: torch.Tensor, first: int, experts: int, tile_rows: int) -> Index:
    """Of the `experts` from number `first` on; ids of no such expert have no place."""
    assignments, device = ids.numel(), ids.device
    slots = max(16, triton.next_power_of_2(experts))
    chunk = min(1024, max(64, _ONE_HOT // slots))
    chunks = triton.cdiv(triton.cdiv(assignments, chunk), _MOST_PARTS)
    parts = triton.cdiv(assignments, chunk * chunks)
    most_tiles = assignments // tile_rows + min(experts, assignments)
    counts = torch.empty(parts, slots, dtype=torch.int32, device=device)
    order = torch.empty(assignments, dtype=torch.int32, device=device)
    table = torch.empty(3, most_tiles, dtype=torch.int32, device=device)
    number = torch.empty(1, dtype=torch.int32, device=device)
    cut = {"EXPERTS": experts, "SLOTS": slots, "CHUNK": chunk, "CHUNKS": chunks, "num_warps": 8}
    if parts > 1:
        count_kernel[(parts,)](ids, counts, assignments, first, **cut)
    cut |= {"PARTS": parts, "PARTS_SLOTS": triton.next_power_of_2(parts)}
    cut |= {"TABLE": min(256, max(16, _ONE_HOT // slots))}
    place_kernel[(parts,)](ids, counts, order, table, number, assignments, first, tile_rows, most_tiles, **cut)
    return Index(order, table, number, tile_rows)


@triton.jit  # type: ignore[untyped-decorator]
def matmul_kernel(  # type: ignore[no-untyped-def]
    a,
    w,
    w_up,
    out,
    order,
    table,
    number,
    weights,
    MOST_TILES: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    CHOICES: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
    GATED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DESCRIBED: tl.constexpr,
):
    """Row `i` of `out`: assignment i, row `i // CHOICES` of `a` by the weights of its expert."""
    tiles = tl.load(number)
    across: tl.constexpr = (N + COLS - 1) // COLS
    program = tl.program_id(0)
    if program >= tiles * across:
        return
    first = program // (GROUP * across) * GROUP
    high = tl.minimum(tiles - first, GROUP)
    inside = program % (GROUP * across)
    tile = first + inside % high
    left = inside // high * COLS

    expert = tl.load(table + tile)
    row = tl.load(table + MOST_TILES + tile) + tl.arange(0, ROWS)
    is_row = row < tl.load(table + 2 * MOST_TILES + tile)
    assignment = tl.load(order + row, mask=is_row, other=0)  # rows behind the last one load some row and are not stored
    cols = left + tl.arange(0, COLS)
    depth = tl.arange(0, DEPTH)
    a_at = a + (assignment // CHOICES).to(tl.int64)[:, None] * K + depth[None, :]
    if not DESCRIBED:
        w_offset = expert.to(tl.int64) * (K * N) + depth[:, None] * N + cols[None, :]
        w_at = w + w_offset
        up_at = w_up + w_offset
    total = tl.zeros([ROWS, COLS], tl.float32)
    up = tl.zeros([ROWS, COLS], tl.float32)
    for k in range(0, K, DEPTH):
        x = tl.load(a_at) if K % DEPTH == 0 else tl.load(a_at, mask=(depth < K - k)[None, :], other=0.0)
        if DESCRIBED:
            total = tl.dot(x, w.load([expert * K + k, left]), total)
            if GATED:
                up = tl.dot(x, w_up.load([expert * K + k, left]), up)
        else:
            if K % DEPTH == 0 and N % COLS == 0:
                total = tl.dot(x, tl.load(w_at), total)
                if GATED:
                    up = tl.dot(x, tl.load(up_at), up)
            else:
                is_there = (depth < K - k)[:, None] & (cols < N)[None, :]
                total = tl.dot(x, tl.load(w_at, mask=is_there, other=0.0), total)
                if GATED:
                    up = tl.dot(x, tl.load(up_at, mask=is_there, other=0.0), up)
            w_at += DEPTH * N
            up_at += DEPTH * N
        a_at += DEPTH
    if GATED:
        total = total * tl.sigmoid(total) * up
    if WEIGHTED:
        total *= tl.load(weights + assignment)[:, None]
    out_at = out + assignment.to(tl.int64)[:, None] * N + cols[None, :]
    tl.store(out_at, total.to(out.dtype.element_ty), mask=is_row[:, None] & (cols < N)[None, :])


def products(
    a: torch.Tensor,
    w: torch.Tensor,
    index: Index,
    tile: Tile,
    *,
    up: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """A row for each assignment, from a row of `a` for each, or for each token; rows of no local expert hold anything.

    `up` makes it `silu(a @ w) * (a @ up)`. `weights` of assignments multiply rows. Weights lie as [experts, depth, cols].
    """
    assignments, (experts, depth, n) = len(index.order), w.shape
    if tile.rows != index.tile_rows:
        raise ValueError(f"tiles of {tile.rows} rows, but the index has tiles of {index.tile_rows}")
    if assignments % len(a) or a.shape[1] != depth or not (a.is_contiguous() and w.is_contiguous()):
        raise ValueError(f"rows {list(a.shape)} and weights {list(w.shape)} do not fit or are not contiguous")
    cols = tile.cols if up is None else max(16, tile.cols // 2)
    out = torch.empty(assignments, n, dtype=a.dtype, device=a.device)
    other = w if up is None else up
    right: list[Any] = [w, other]
    if tile.described and depth % tile.depth == 0:  # otherwise a tile would hold rows of the next expert
        flat = [one.view(experts * depth, n) for one in right]
        right = [TensorDescriptor.from_tensor(one, [tile.depth, cols]) for one in flat]
    matmul_kernel[(index.most_tiles * triton.cdiv(n, cols),)](
        a,
        *right,
        out,
        index.order,
        index.table,
        index.number,
        index.number if weights is None else weights,
        MOST_TILES=index.most_tiles,
        N=n,
        K=depth,
        CHOICES=assignments // len(a),
        ROWS=tile.rows,
        COLS=cols,
        DEPTH=tile.depth,
        GROUP=tile.group,
        GATED=up is not None,
        WEIGHTED=weights is not None,
        DESCRIBED=isinstance(right[0], TensorDescriptor),
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def sum_kernel(  # type: ignore[no-untyped-def]
    rows,
    ids,
    weights,
    out,
    first,
    EXPERTS: tl.constexpr,
    CHOICES: tl.constexpr,
    N: tl.constexpr,
    COLS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros([COLS], tl.float32)
    for j in tl.static_range(CHOICES):
        expert = tl.load(ids + token * CHOICES + j)
        # rows of no local expert are not loaded: they may hold nan
        is_here = (cols < N) & (expert >= first) & (expert < first + EXPERTS)
        row = tl.load(rows + (token * CHOICES + j) * N + cols, mask=is_here, other=0.0)
        total += tl.load(weights + token * CHOICES + j) * row.to(tl.float32)
    tl.store(out + token * N + cols, total.to(out.dtype.element_ty), mask=cols < N)


def token_sums(rows: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, first: int, experts: int) -> torch.Tensor:
    """Weighted sums of the rows of each token, in fp32, without those of no local expert."""
    (tokens, choices), n = ids.shape, rows.shape[1]
    out = torch.empty(tokens, n, dtype=rows.dtype, device=rows.device)
    cols = min(_SUM_COLS, triton.next_power_of_2(n))
    sum_kernel[(tokens, triton.cdiv(n, cols))](
        rows, ids, weights, out, first, EXPERTS=experts, CHOICES=choices, N=n, COLS=cols, num_warps=4
    )
    return out
