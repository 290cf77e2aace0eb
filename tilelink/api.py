"""The public names, which `tilelink` has as its own. To import this module is to import planner, proof and lowering."""

from __future__ import annotations

from tilelink.declaration import Overlap, overlap
from tilelink.errors import TileLinkError, UnknownOp, did_you_mean
from tilelink.ir import functions
from tilelink.ir.collective import Landing
from tilelink.ir.enums import Protocol
from tilelink.ir.functions import *  # noqa: F403  # their list stands there, once
from tilelink.ir.location import here
from tilelink.ir.movers import (
    CommSms,
    CopyEngine,
    CopyWarps,
    Fused,
    Library,
    LibraryRails,
    NeededRails,
    NeededRows,
    OwnKernel,
    PlacedRows,
    Rails,
    SocketRails,
    StreamRails,
    Transfer,
)
from tilelink.ir.nodes import TileShape
from tilelink.ir.order import Nest
from tilelink.ir.placement import Partial, Replicate, Shard
from tilelink.ir.schedule import Schedule
from tilelink.ir.tensor import Tensor, dims
from tilelink.ir.user_fold import fold
from tilelink.ir.user_op import axes
from tilelink.plan import Plan

__all__ = [
    "CommSms",
    "CopyEngine",
    "CopyWarps",
    "Fused",
    "Landing",
    "Library",
    "LibraryRails",
    "NeededRails",
    "NeededRows",
    "Nest",
    "Overlap",
    "OwnKernel",
    "Partial",
    "PlacedRows",
    "Plan",
    "Protocol",
    "Rails",
    "Replicate",
    "Schedule",
    "Shard",
    "SocketRails",
    "StreamRails",
    "Tensor",
    "TileLinkError",
    "TileShape",
    "Transfer",
    "axes",
    "dims",
    "fold",
    "overlap",
]
__all__ += functions.__all__

_NO_OPERATION = ("axes", "dims", "fold", "op", "overlap")


def unknown(name: str) -> UnknownOp:
    """What is raised where a user asks the package for a name that it does not have."""
    known = sorted(word for word in __all__ if word.islower() and word not in _NO_OPERATION)
    return UnknownOp(here(), name=name, hint=did_you_mean(name, __all__), known=", ".join(known))
