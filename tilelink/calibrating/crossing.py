"""Which ranks copy to which while a number of the descriptor is measured."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.calibrating.errors import CannotCalibrate
from topologies.topology import Fabric, Level, Topology


@dataclass(frozen=True, slots=True)
class Crossing:
    """Ranks that cross one level. `peers[r]`: ranks to which r copies in their order behind r, none for a rank that waits."""

    level: Level
    pair: tuple[int, int]
    peers: tuple[tuple[int, ...], ...]
    neighbours: tuple[int | None, ...]  # of them the one to whom a copy engine pushes

    def senders(self, rank: int) -> tuple[int, ...]:
        """Who copies to `rank`, in the order of ranks behind it."""
        ranks = len(self.peers)
        behind = ((rank + 1 + step) % ranks for step in range(ranks - 1))
        return tuple(one for one in behind if rank in self.peers[one])

    def said(self) -> str:
        """For provenance: who copies at once."""
        if all(self.peers):
            return "all ranks at once"
        first, second = self.pair
        if self.level.fabric is Fabric.HOST_BRIDGE:
            return f"rank {first} to rank {second}, others idle"
        return f"ranks {first} and {second}, others idle"


def crossings(topology: Topology) -> tuple[Crossing, ...]:
    """One for each level of a topology that is cut to the group, from inside out. Raises CannotCalibrate for a network.

    Where one level joins all ranks, they copy all at once, as a collective does. What lies behind a bridge shares its rate, and
    its number is that of one direction alone. Of several levels, one pair crosses each: rank 0, and the nearest rank beyond.
    """
    found, joined, ranks = list[Crossing](), 1, topology.num_ranks
    for level in topology.levels:
        if level.fabric is Fabric.NETWORK:
            raise CannotCalibrate(
                missing=f"level {level.name} of {topology.name} is a network",
                why="kernels of one host are what is timed",
                legal="Legal: the ranks of one host, or --like with a descriptor whose first level joins them.",
            )
        pair = (0, joined)
        if level.fabric is not Fabric.HOST_BRIDGE and len(topology.levels) == 1:
            peers = tuple(tuple((rank + 1 + step) % ranks for step in range(ranks - 1)) for rank in range(ranks))
        else:
            back = () if level.fabric is Fabric.HOST_BRIDGE else (0,)
            peers = tuple((joined,) if rank == 0 else back if rank == joined else () for rank in range(ranks))
        found.append(Crossing(level, pair, peers, tuple(some[0] if some else None for some in peers)))
        joined *= level.size
    return tuple(found)
