"""The public names, which `tilelink` has as its own. To import this module is to import planner, proof and lowering."""

from __future__ import annotations

from tilelink.declaration import Overlap, overlap
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
from tilelink.plan import Plan

__all__ = [
    "Algorithm",
    "CommSms",
    "CopyEngine",
    "Fused",
    "Nest",
    "Overlap",
    "Partial",
    "Plan",
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

_NO_OPERATION = ("axes", "dims", "op", "overlap")


def unknown(name: str) -> UnknownOp:
    """What is raised where a user asks the package for a name that it does not have."""
    known = [word for word in __all__ if word.islower() and word not in _NO_OPERATION]
    return UnknownOp(here(), name=name, hint=did_you_mean(name, __all__), known=", ".join(known))
