"""Every element of an output against its bound, and memory that holds nan before a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from lowering.selfcheck.near import Near

BLOCK_ROWS, BLOCK_COLS = 16, 64  # of the blocks of which the worst is reported


class Comparison(NamedTuple):
    """How far an output is from what it should be. Without a wrong element, ranges are (0, -1)."""

    elements: int
    wrong: int  # elements farther off than their bound; nan and infinity are
    error: float  # the largest of all elements, in units of the bound of that element
    rows: tuple[int, int]  # first and last row with a wrong element
    cols: tuple[int, int]
    block_rows: tuple[int, int]  # of the 16 x 64 elements of which the most are wrong
    block_cols: tuple[int, int]
    block_wrong: int
    at: tuple[int, int]  # row and column of the element that is farthest off, and its numbers
    got: float
    wanted: float
    bound: float

    @staticmethod
    def of(result: torch.Tensor, near: Near) -> Comparison:
        """All elements of `result` against `near`; a vector counts as one row. Raises ValueError for another shape."""
        far = distance(result, near).reshape(-1, result.shape[-1])
        bound = torch.zeros_like(near.value, dtype=torch.float32) + near.error
        found, wanted, bound = (tensor.reshape(far.shape) for tensor in (result, near.value, bound))
        wrong = far > 1
        count = int(wrong.sum())
        row, col = divmod(int(far.argmax()), far.shape[1]) if far.numel() else (0, 0)
        numbers = [float(tensor[row, col]) if far.numel() else 0.0 for tensor in (far, found, wanted, bound)]
        rows = cols = block_rows = block_cols = (0, -1)
        block_wrong = 0
        if count:
            rows, cols = range_of(wrong.any(1)), range_of(wrong.any(0))
            block_rows, block_cols, block_wrong = worst_block(wrong)
        return Comparison(
            far.numel(), count, numbers[0], rows, cols, block_rows, block_cols, block_wrong, (row, col), *numbers[1:]
        )

    @property
    def equal(self) -> bool:
        return self.wrong == 0

    def text(self) -> str:
        """What is wrong, in one line."""
        if self.equal:
            return f"all {self.elements} elements are within their bounds, the farthest {self.error:.2f} of it off"
        return (
            f"{self.wrong} of {self.elements} elements are wrong, in rows {self.rows[0]} to {self.rows[1]} and columns "
            f"{self.cols[0]} to {self.cols[1]}; worst block: {self.block_wrong} in rows {self.block_rows[0]} to "
            f"{self.block_rows[1]}, columns {self.block_cols[0]} to {self.block_cols[1]}; farthest off: "
            f"[{self.at[0]}, {self.at[1]}] is {self.got:.6g} and should be {self.wanted:.6g} ± {self.bound:.2g}"
        )


def distance(result: torch.Tensor, near: Near) -> torch.Tensor:
    """How far each element of `result` is off, in units of its bound: up to 1 is right. The host waits for nothing.

    Raises ValueError for another shape.
    """
    if result.shape != near.value.shape:
        raise ValueError(f"the result is {list(result.shape)} and should be {list(near.value.shape)}")
    found, wanted = result.double(), near.value.double()
    bound = torch.zeros_like(found, dtype=torch.float32) + near.error
    bound.nan_to_num_(nan=torch.inf, posinf=torch.inf)
    # equal infinities are no distance; nor is there one where anything is right, or nan is wanted and found
    far = torch.where(found == wanted, 0.0, (found - wanted).abs()).div_(bound.double().clamp_min(1e-300))
    far.masked_fill_(torch.isinf(bound) | (found.isnan() & wanted.isnan()), 0.0)
    return far.nan_to_num_(nan=torch.inf, posinf=torch.inf)


def range_of(flags: torch.Tensor) -> tuple[int, int]:
    """The first and the last index of a flag that is set."""
    found = flags.nonzero()
    return int(found[0]), int(found[-1])


def worst_block(wrong: torch.Tensor) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Rows and columns of the block with the most flags that are set, and how many these are."""
    rows, cols = wrong.shape
    padded = torch.nn.functional.pad(wrong, (0, -cols % BLOCK_COLS, 0, -rows % BLOCK_ROWS))
    blocks = padded.view(padded.shape[0] // BLOCK_ROWS, BLOCK_ROWS, padded.shape[1] // BLOCK_COLS, BLOCK_COLS)
    counts = blocks.sum((1, 3))
    row, col = divmod(int(counts.argmax()), counts.shape[1])
    first, left = row * BLOCK_ROWS, col * BLOCK_COLS
    last, right = min(first + BLOCK_ROWS, rows) - 1, min(left + BLOCK_COLS, cols) - 1
    return (first, last), (left, right), int(counts[row, col])


def poison(operator: object, meet: Callable[[], None]) -> None:
    """Fill all floating-point memory that an operator holds with nan: buffers, symmetric ones, places of pools. Words of
    protocols are integers and stay. Peers may read until their call ends, and write when their next one begins: so all ranks
    `meet` before and after."""
    meet()
    for held in vars(operator).values():
        for place in getattr(held, "places", [held]):
            memory = getattr(place, "local", place)
            if isinstance(memory, torch.Tensor) and memory.is_floating_point():
                memory.fill_(torch.nan)
    meet()


@contextlib.contextmanager
def nan_when_empty() -> Iterator[None]:
    """Inside, `torch.empty` gives floating-point tensors full of nan: outputs that a call allocates."""
    empty = torch.empty

    def filled(*shape: Any, **options: Any) -> torch.Tensor:
        tensor: torch.Tensor = empty(*shape, **options)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    torch.empty = filled
    try:
        yield
    finally:
        torch.empty = empty
