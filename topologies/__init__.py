"""Hardware facts: what joins the GPUs, how fast, and who says so. No policy, and nothing else of tilelink.

>>> import topologies
>>> node = topologies.load("h200-nvswitch", num_ranks=4)
>>> node.link_gb_per_s(rank=0, peer=3)
389.0
"""

from __future__ import annotations

from topologies.detect import detect
from topologies.errors import (
    IllegalNodes,
    IllegalRanks,
    MalformedDescriptor,
    NoSuchPair,
    NothingDetected,
    TileLinkError,
    UnknownDtype,
    UnknownGpu,
    UnknownTopology,
    UnreadableDescriptor,
    UserError,
)
from topologies.loader import load, names, with_ranks
from topologies.picture import show
from topologies.topology import Fabric, Gpu, Level, Ramp, Topology, Vendor, numbers

__all__ = [
    "Fabric",
    "Gpu",
    "IllegalNodes",
    "IllegalRanks",
    "Level",
    "MalformedDescriptor",
    "NoSuchPair",
    "NothingDetected",
    "Ramp",
    "TileLinkError",
    "Topology",
    "UnknownDtype",
    "UnknownGpu",
    "UnknownTopology",
    "UnreadableDescriptor",
    "UserError",
    "Vendor",
    "detect",
    "load",
    "names",
    "numbers",
    "show",
    "with_ranks",
]
