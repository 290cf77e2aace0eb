"""Shortcuts past Triton's front end and gather loops give the values and types that the stock code gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.emulator import fast_kernels, kernels
from tilelink.emulator import KernelError, World, blocks, interpreter


def on_both_paths(patch: pytest.MonkeyPatch, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What `compute` gives, after checking that the stock code gives the same bits."""
    fast = compute()
    with patch.context() as inner:
        inner.setattr(interpreter, "operators", lambda stock: iter(()))
        inner.setattr(blocks, "load", blocks.stock_load)
        inner.setattr(blocks, "store", blocks.stock_store)
        stock = compute()
    assert torch.equal(fast.view(torch.uint8), stock.view(torch.uint8))
    return fast


def run(kernel: object, *args: object, **options: object) -> None:
    world = World(1)
    world.fabrics[0].main().launch(kernel, (1,), *args, **options)
    world.run()


def integers(a: int, b: int) -> torch.Tensor:
    out = torch.zeros(40 * 16, dtype=torch.int32)
    run(fast_kernels.integers, out, a, b)
    return out


@pytest.mark.parametrize(("a", "b"), [(7, 3), (-7, 3), (7, -3), (2**31 - 1, 2), (-(2**31), 1), (0, 5), (4096, 64)])
def test_integers(monkeypatch: pytest.MonkeyPatch, a: int, b: int) -> None:
    on_both_paths(monkeypatch, lambda: integers(a, b))


def test_integers_wrap_and_truncate() -> None:
    rows = integers(2**31 - 1, -2).view(40, 16)[:, 0].tolist()
    assert rows[:5] == [2**31 - 3, -(2**31) + 1, 2, -(2**30) + 1, 1]


def test_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    def floats() -> torch.Tensor:
        values = torch.tensor([0.0, -0.0, 1.5, -3e38, 3e38, 1e-40, float("inf"), float("nan")])
        out = torch.zeros(12 * 8)
        run(fast_kernels.floats, values, out, 3.25)
        return out

    on_both_paths(monkeypatch, floats)


def test_masks_and_broadcasts(monkeypatch: pytest.MonkeyPatch) -> None:
    def masks() -> torch.Tensor:
        out = torch.zeros(6, 32, 32, dtype=torch.int32)
        run(fast_kernels.masks, out, 9, 20)
        return out

    out = on_both_paths(monkeypatch, masks)
    row, column = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    inside = (row < 9) & (column < 20)
    assert torch.equal(out[0], torch.where(inside, row + column, 0).int())
    assert torch.equal(out[3], torch.where(inside, row, column).int())


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(KernelError, match="incompatible dimensions"):
        run(fast_kernels.misfit, torch.zeros(64))


@pytest.mark.parametrize("rows", [0, 1, 31, 32])
@pytest.mark.parametrize("columns", [0, 5, 32])
def test_tiles_with_cut_edges(monkeypatch: pytest.MonkeyPatch, rows: int, columns: int) -> None:
    x = torch.arange(40 * 48, dtype=torch.float32).view(40, 48)

    def copied(row_stride: int, column_stride: int) -> torch.Tensor:
        out = torch.full((40, 48), -1.0)
        run(fast_kernels.copy_tile, x, out, rows, columns, row_stride, column_stride)
        return out

    wanted = torch.full((40, 48), -1.0)
    wanted[:rows, :columns] = x[:rows, :columns]
    assert torch.equal(on_both_paths(monkeypatch, lambda: copied(48, 1)), wanted)
    on_both_paths(monkeypatch, lambda: copied(1, 40))  # the tile of a transposed matrix


def test_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(40 * 48, dtype=torch.float32).view(40, 48)

    def tiles() -> torch.Tensor:
        out = torch.zeros(5, 32, 32)
        run(fast_kernels.descriptor_tiles, TensorDescriptor.from_tensor(x, [32, 32]), out)
        return out

    padded = torch.zeros(64, 80)
    padded[:40, :48] = x
    out = on_both_paths(monkeypatch, tiles)
    assert torch.equal(out[0], x[8:40, :32])
    assert torch.equal(out[1], padded[20:52, 32:64])
    assert torch.equal(out[3][4:], x[:28, 8:40])
    assert not out[3][:4].any() and not out[4].any()


@pytest.mark.parametrize(
    "index",
    [
        lambda: np.arange(1024).reshape(32, 32),
        lambda: np.arange(32)[:, None] + np.arange(32)[None] * 32,
        lambda: (1023 - np.arange(1024)).reshape(32, 32),
        lambda: np.arange(32)[:, None] * 0 + np.arange(32)[None],  # every row is the same memory
        lambda: np.arange(32)[:, None] * 16 + np.arange(32)[None],  # rows overlap
        lambda: np.arange(1024) // 2 * 2,
        lambda: np.arange(1024) ** 2 % 1024,
        lambda: np.arange(1024) - np.arange(1024) % 2 * 4 + 4,
    ],
)
@pytest.mark.parametrize("masked", ["nothing", "rows", "one hole"])
def test_a_strided_copy_is_the_gather(index: Callable[[], NDArray[np.int64]], masked: str) -> None:
    memory = np.arange(2048, dtype=np.int32)
    addresses = (memory.ctypes.data + 4 * index()).astype(np.uint64)
    mask = np.ones(addresses.shape, bool)
    if masked == "rows":
        mask[20:] = False
    elif masked == "one hole":
        mask.reshape(-1)[100] = False
    other = np.full(addresses.shape, -5, np.int32)
    dtype = np.dtype(np.int32)
    assert np.array_equal(blocks.load(addresses, mask, other, dtype), blocks.stock_load(addresses, mask, other, dtype))
    values = np.arange(addresses.size, dtype=np.int32).reshape(addresses.shape) + 5000
    blocks.store(addresses, values, mask)
    found = memory.copy()
    memory[:] = np.arange(2048)
    blocks.stock_store(addresses, values, mask)
    assert np.array_equal(found, memory)


def test_shared_constants_are_not_changed() -> None:
    """A kernel that counts up from a constant starts from the same one in its next launch."""
    out = torch.zeros(1, dtype=torch.int32)
    for _ in range(2):
        run(kernels.capped_spin, torch.zeros(1, dtype=torch.int32), out, 50)
        assert out.item() == 50
