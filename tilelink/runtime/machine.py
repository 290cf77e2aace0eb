"""For which machine to plan where nobody says it: the GPUs that are here, or the one that emulated ranks stand for."""

from __future__ import annotations

from pathlib import Path

import topologies
from topologies.topology import Topology

PLANNED_FOR = "h200-nvswitch"  # by `plan` and `emit`, which need no GPU
EMULATED = "laptop-switch"  # few SMs, so that programs go through several tiles


def named(topology: object, num_ranks: int | None) -> Topology:
    """A descriptor by name, path or as it is, cut to `num_ranks` where these are given.

    Raises UnknownTopology, UnreadableDescriptor, MalformedDescriptor, IllegalRanks.
    """
    if isinstance(topology, Topology):
        return topology if num_ranks is None else topologies.with_ranks(topology, num_ranks)
    if isinstance(topology, str | Path):
        return topologies.load(str(topology), num_ranks)
    raise topologies.UnknownTopology(name=topology, hint="", legal=", ".join(topologies.names()))


def of_group(group: object, num_ranks: int, hosts: int = 1) -> Topology:
    """The machine of a fabric or a process group, whose ranks run on so many hosts. GPUs are looked at, never guessed.

    Raises NothingDetected, UnknownGpu, IllegalRanks.
    """
    if is_fabric(group):
        return topologies.load(EMULATED, num_ranks)
    if hosts == 1:
        return topologies.detect(num_ranks)
    kind = topologies.detect(max(2, num_ranks // hosts)).name  # of what kind they are
    return topologies.load(kind, num_ranks, hosts)


def is_fabric(group: object) -> bool:
    """Whether `group` is a fabric, such as one of `tilelink.emulator.World`, and not a process group."""
    return hasattr(group, "symmetric")
