"""Multicast addresses in the dialect of Triton-distributed, whose device library is that of NVSHMEM."""

# mypy: ignore-errors
from __future__ import annotations

import triton_dist
from triton_dist.language.extra import libshmem_device


@triton_dist.jit
def on_ranks_of_node(pointer):
    """What `pointer` is here, on all ranks of this node at once, for stores by multicast."""
    return libshmem_device.remote_mc_ptr(libshmem_device.NVSHMEMX_TEAM_NODE, pointer)
