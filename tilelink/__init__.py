"""tilelink: declare the tile graph of compute and collectives, get a proven overlapped multi-GPU kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tilelink.errors import TileLinkError, UnknownOp, did_you_mean
from tilelink.ir.location import here
from tilelink.ir.nodes import Algorithm, CommSms, CopyEngine, Fused, TileShape, Transfer
from tilelink.ir.ops import (
    add,
    all_gather,
    all_reduce,
    div,
    gelu,
    matmul,
    mul,
    neg,
    op,
    reduce_scatter,
    relu,
    send_recv,
    silu,
    sub,
)
from tilelink.ir.order import Nest
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.tensor import Tensor, dims
from tilelink.ir.user_op import axes
from tilelink.overlap import Overlap, overlap

__all__ = [
    "Algorithm",
    "CommSms",
    "CopyEngine",
    "Fused",
    "Nest",
    "Overlap",
    "Partial",
    "Replicate",
    "Schedule",
    "Shard",
    "Tensor",
    "TileLinkError",
    "TileShape",
    "Transfer",
    "add",
    "all_gather",
    "all_reduce",
    "axes",
    "dims",
    "div",
    "gelu",
    "matmul",
    "mul",
    "neg",
    "op",
    "overlap",
    "reduce_scatter",
    "relu",
    "send_recv",
    "silu",
    "sub",
]

if not TYPE_CHECKING:  # type checkers would take every name for one that exists

    def __getattr__(name: str) -> NoReturn:
        """A name that the package does not have. Raises UnknownOp."""
        if name.startswith("__"):  # what tools ask for; they expect this very class
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        known = [word for word in __all__ if word.islower() and word not in ("axes", "dims", "op", "overlap")]
        raise UnknownOp(here(), name=name, hint=did_you_mean(name, __all__), known=", ".join(known))
