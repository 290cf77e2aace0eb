"""How many hosts a process group spans, and what a schedule must be to run there."""

from __future__ import annotations

import os
import socket
from itertools import groupby
from pathlib import Path

import torch.distributed as dist

from tilelink.elaborate.rails import puts_words
from tilelink.errors import OtherHosts, StoresAcrossHosts, UnevenHosts
from tilelink.ir.schedule import Schedule
from topologies.topology import Topology

_BOOT = Path("/proc/sys/kernel/random/boot_id")  # two hosts may have one name


def this_host() -> str:
    """What ranks of one host have in common. NCCL_HOSTID says it instead, as it does to NCCL."""
    found = os.environ.get("NCCL_HOSTID")
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return found or f"{socket.gethostname()} {boot}"


def hosts_of(group: dist.ProcessGroup | None) -> int:
    """Hosts of a group, by default the world. All ranks call this alike. Raises UnevenHosts."""
    found: list[str] = [""] * dist.get_world_size(group)
    dist.all_gather_object(found, this_host(), group)
    ranks = [(name, len(list(some))) for name, some in groupby(found)]
    if len({name for name, _ in ranks}) < len(ranks) or len({many for _, many in ranks}) > 1:
        hosts = list(dict.fromkeys(found))
        raise UnevenHosts(ranks="; ".join(f"rank {rank} on host {hosts.index(one)}" for rank, one in enumerate(found)))
    return len(ranks)


def target_on(hosts: int, schedule: Schedule, topology: Topology, target: str | None) -> str:
    """In which language a schedule for `topology` runs on so many hosts: by NVSHMEM what is put there, if `target` says nothing
    else; what the library sends there needs none. GPUs of one host may pretend to be nodes.

    Raises OtherHosts, StoresAcrossHosts.
    """
    if hosts == 1:
        return target or "triton"
    if topology.num_nodes != hosts:
        raise OtherHosts(operator=schedule.name, topology=topology.name, nodes=topology.num_nodes, hosts=hosts)
    puts = puts_words(schedule)
    if puts and target == "triton":
        raise StoresAcrossHosts(operator=schedule.name, target=target)
    return target or ("triton-nvshmem" if puts else "triton")
