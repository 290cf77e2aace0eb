"""What ops and collectives of a library compute, on arrays: numbers are exact, nothing is rounded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilelink.ir.dtype import DTYPES

Array = NDArray[np.float64]
Op = Callable[..., Array | tuple[Array, ...]]

OPS: dict[str, Op] = {
    "dot": lambda a, b, c: c + a @ b,
    "trans": lambda x: x.T,
    "copy": lambda x: x,
    "halves": lambda x: tuple(np.split(x, 2, axis=-1)),
    **dict.fromkeys((f"in_{name}" for name in DTYPES), lambda x: x),  # numbers here are exact
    "neg": lambda x: -x,
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "combined": lambda total, rows, weight, expert, own, first: (
        total + np.where((expert >= first) & (expert < first + own), rows * weight, 0)
    ),
}


COLLECTIVES: dict[str, Callable[[list[Array], int], Array]] = {
    "all_gather": lambda parts, rank: np.stack(parts),
    "reduce_scatter": lambda parts, rank: np.split(np.sum(parts, axis=0), len(parts))[rank],
    "all_reduce": lambda parts, rank: np.sum(parts, axis=0),
}
