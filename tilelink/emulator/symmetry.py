"""Which addresses of the ranks are the same place of one symmetric allocation, and its multicast address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelink.emulator.memory import MemoryMap


@dataclass(frozen=True, slots=True)
class Multicast:
    """A range of addresses that stands for the copies of one allocation, of all ranks of a node."""

    start: int
    num_bytes: int
    copies: tuple[int, ...]  # where the copy of each of these ranks starts
    reserved: torch.Tensor  # holds the range, so that nothing else gets these addresses; never read or written


class Symmetry:
    """The allocations of one world. `has_multicast`: links have it, one address for each `ranks_per_node` in a row."""

    def __init__(self, memory: MemoryMap, has_multicast: bool, ranks_per_node: int) -> None:
        self.has_multicast, self.ranks_per_node = has_multicast, ranks_per_node
        self._memory = memory
        self._copies: dict[int, tuple[int, ...]] = {}  # by the first address of any rank's copy
        self._tensors: dict[int, tuple[torch.Tensor, ...]] = {}  # by the same
        self._multicasts: dict[int, Multicast] = {}  # by the first address of the copy of a node's first rank

    def add(self, peers: Sequence[torch.Tensor]) -> None:
        """One allocation, rank by rank. An empty one has no address and is left out."""
        if peers[0].numel():
            copies = tuple(peer.data_ptr() for peer in peers)
            self._copies.update(dict.fromkeys(copies, copies))
            self._tensors.update(dict.fromkeys(copies, tuple(peers)))

    def place(self, address: int, rank: int) -> tuple[int, tuple[int, ...]] | str:
        """The offset of rank `rank`'s address in its allocation and all ranks' copies, or why there is none."""
        owner = self._memory.owner(address)
        copies = None if owner is None else self._copies.get(owner.start)
        if owner is None or copies is None:
            return "which is in no symmetric buffer"
        if owner.rank != rank:
            return f"which is the copy of rank {owner.rank} already"
        return address - owner.start, copies

    def same_at(self, tensor: torch.Tensor, rank: int, peer: int) -> torch.Tensor | str:
        """What is at rank `peer` where `tensor`, of rank `rank`, is here; or why there is nothing."""
        found = self.place(tensor.data_ptr(), rank)
        if isinstance(found, str):
            return found
        here, there = (self._tensors[found[1][rank]][one] for one in (rank, peer))
        offset = tensor.storage_offset() - here.storage_offset() + there.storage_offset()
        return there.as_strided(tensor.size(), tensor.stride(), offset)

    def multicast(self, copies: tuple[int, ...], rank: int) -> Multicast | None:
        """The multicast range of the allocation with these copies, for the node of `rank`; None where the links have none."""
        if not self.has_multicast:
            return None
        node = rank // self.ranks_per_node * self.ranks_per_node
        of_node = copies[node : node + self.ranks_per_node]
        found = self._multicasts.get(of_node[0])
        if found is None:
            owner = self._memory.owner(of_node[0])
            assert owner is not None
            reserved = torch.empty(owner.end - owner.start, dtype=torch.uint8)
            found = Multicast(reserved.data_ptr(), reserved.numel(), of_node, reserved)
            self._multicasts[of_node[0]] = found
        return found

    def multicast_of(self, first: int, end: int) -> Multicast | None:
        """The range that holds all of [first, end)."""
        ranges = self._multicasts.values()
        return next((r for r in ranges if r.start <= first and end <= r.start + r.num_bytes), None)
