"""The fabric of ranks on several hosts, which reach each other's memory on their own host, and send to others by NCCL."""

from __future__ import annotations

import os
import socket
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

from lowering.host.symmetric_memory import SymmetricMemoryFabric


def this_host() -> str:
    """What ranks have in common that map each other's memory."""
    boot = "/proc/sys/kernel/random/boot_id"  # two hosts may have one name
    if not os.path.exists(boot):
        return socket.gethostname()
    with open(boot) as file:
        return f"{socket.gethostname()} {file.read().strip()}"


class Node(NamedTuple):
    """The ranks of one host, as they are numbered among all `num_ranks`, and their group."""

    num_ranks: int
    ranks: tuple[int, ...]
    group: dist.ProcessGroup


def node_of(group: dist.ProcessGroup, per_node: int | None) -> Node:
    """That of this rank; or one of `per_node` ranks that follow each other. All ranks call it alike."""
    found: list[str] = [""] * group.size()
    dist.all_gather_object(found, this_host() if per_node is None else str(group.rank() // per_node), group=group)
    mine = tuple(rank for rank, host in enumerate(found) if host == found[group.rank()])
    if len(mine) < len(found):
        every = dist.get_process_group_ranks(group)
        group = dist.new_group([every[rank] for rank in mine], use_local_synchronization=True)
    return Node(len(found), mine, group)


class NodeSymmetric:
    """One buffer on every rank: `local` of this rank, `peers[r]` of rank r and `pointers` int64[num_ranks] on the device. Ranks
    of other hosts have None and 0."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, node: Node) -> None:
        self.local = symm_mem.empty(shape, dtype=dtype, device=device)
        self.local.zero_()
        handle = symm_mem.rendezvous(self.local, node.group)
        peers: list[Any] = [None] * node.num_ranks
        for number, rank in enumerate(node.ranks):
            own = number == handle.rank
            peers[rank] = self.local if own else handle.get_remote_tensor(number, shape, dtype)
        self.peers = tuple(peers)
        addresses = [0 if peer is None else peer.data_ptr() for peer in peers]
        self.pointers = torch.tensor(addresses, dtype=torch.int64, device=device)


class HostsFabric(SymmetricMemoryFabric):
    """The ranks of a torch process group on several hosts; or on one host as if each `per_node` of them had one of their own."""

    def __init__(self, group: dist.ProcessGroup | None = None, per_node: int | None = None) -> None:
        super().__init__(group)
        self.node = node_of(self.group, per_node)

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        return NodeSymmetric(shape, dtype, self.device, self.node)
