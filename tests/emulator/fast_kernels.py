"""Kernels that go through the operators which the emulator shortens."""

# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def integers(out, a, b):
    """40 results, scalar and block, of two int32."""
    lane = tl.arange(0, 16)
    block = lane * 0 + a
    tl.store(out + lane, block + b)
    tl.store(out + 16 + lane, block - b)
    tl.store(out + 32 + lane, block * b)
    tl.store(out + 48 + lane, block // b)
    tl.store(out + 64 + lane, block % b)
    tl.store(out + 80 + lane, a + b)
    tl.store(out + 96 + lane, a - b)
    tl.store(out + 112 + lane, a * b)
    tl.store(out + 128 + lane, a // b)
    tl.store(out + 144 + lane, a % b)
    tl.store(out + 160 + lane, a // 4)
    tl.store(out + 176 + lane, a % 4)
    tl.store(out + 192 + lane, 100 - block)
    tl.store(out + 208 + lane, 100 - a)
    tl.store(out + 224 + lane, 3 * block + 5)
    tl.store(out + 240 + lane, 3 + a * 5)
    tl.store(out + 256 + lane, (block < b).to(tl.int32))
    tl.store(out + 272 + lane, (block >= 7).to(tl.int32))
    tl.store(out + 288 + lane, (7 > block).to(tl.int32))  # noqa: SIM300
    tl.store(out + 304 + lane, (a == b).to(tl.int32))
    tl.store(out + 320 + lane, (a != 7).to(tl.int32))
    tl.store(out + 336 + lane, block + lane)
    tl.store(out + 352 + lane, lane - block)
    tl.store(out + 368 + lane, (block.to(tl.int64) * b).to(tl.int32))
    tl.store(out + 384 + lane, ((block.to(tl.int64) + lane.to(tl.int64)) > 7).to(tl.int32))
    tl.store(out + 400 + lane, ((block < b) & (lane < 8)).to(tl.int32))
    tl.store(out + 416 + lane, ((block < b) | (a == 7)).to(tl.int32))
    tl.store(out + 432 + lane, block & 12)
    tl.store(out + 448 + lane, block | lane)
    tl.store(out + 464 + lane, block ^ b)
    tl.store(out + 639 - lane, lane + 3)  # negative offsets
    tl.store(out + lane + 600, -lane)


@triton.jit
def floats(x, out, number):
    lane = tl.arange(0, 8)
    values = tl.load(x + lane)
    tl.store(out + lane, values + number)
    tl.store(out + 8 + lane, values * 1.5)
    tl.store(out + 16 + lane, values - 1e-35)
    tl.store(out + 24 + lane, 2.0 - values)
    tl.store(out + 32 + lane, values + 1e-40)
    tl.store(out + 40 + lane, values * 2)
    tl.store(out + 48 + lane, (values < number).to(tl.float32))
    tl.store(out + 56 + lane, (values == 1.5).to(tl.float32))
    tl.store(out + 64 + lane, values + lane)
    tl.store(out + 72 + lane, values * values)
    tl.store(out + 80 + lane, values / 3.0)
    tl.store(out + 88 + lane, number * values + number)


@triton.jit
def masks(out, rows, columns):
    row = tl.arange(0, 32)
    column = tl.arange(0, 32)
    place = out + row[:, None] * 32 + column[None, :]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(place, row[:, None] + column[None, :], mask=inside)
    tl.store(place + 1024, inside.to(tl.int32))
    tl.store(place + 2048, (row[:, None] * column[None, :]), mask=(row < rows)[:, None])
    tl.store(place + 3072, tl.where(inside, row[:, None], column[None, :]))
    tl.store(place + 4096, tl.load(place, mask=inside, other=-3))
    tl.store(place + 5120, rows + 0 * row[:, None] + column[None, :], mask=(column % 2 == 0)[None, :])


@triton.jit
def misfit(out):
    tl.store(out + tl.arange(0, 32), tl.arange(0, 32) + tl.arange(0, 64))


@triton.jit
def copy_tile(x, out, rows, columns, row_stride, column_stride):
    row = tl.arange(0, 32)[:, None]
    column = tl.arange(0, 32)[None, :]
    offsets = row * row_stride + column * column_stride
    inside = (row < rows) & (column < columns)
    tl.store(out + offsets, tl.load(x + offsets, mask=inside, other=-2.0), mask=inside)


@triton.jit
def descriptor_tiles(x, out):
    """Inside, over the lower edge, over both, before the first row, all outside."""
    own = tl.make_tensor_descriptor(out, [160, 32], [32, 1], [32, 32])
    own.store([0, 0], x.load([8, 0]))
    own.store([32, 0], x.load([20, 32]))
    own.store([64, 0], x.load([33, 40]))
    own.store([96, 0], x.load([-4, 8]))
    own.store([128, 0], x.load([64, 0]))
