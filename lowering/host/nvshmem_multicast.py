"""The fabric of ranks that put by NVSHMEM, and store at all ranks of their node at once."""

from __future__ import annotations

from typing import Any

import torch

from lowering.host.at_once import all_at_once
from lowering.host.nvshmem import NvshmemFabric, NvshmemSymmetric
from lowering.host.nvshmem_libraries import host_library

_RANKS_OF_NODE = 2  # NVSHMEMX_TEAM_NODE of NVSHMEM 3.4.5


class MulticastSymmetric(NvshmemSymmetric):
    """One buffer on every rank, and `multicast`: its address on all of the node at once, int64[1] on the device."""

    multicast: torch.Tensor


class NvshmemMulticastFabric(NvshmemFabric):
    """The ranks of a torch process group, on GPUs of any hosts that NVSHMEM joins, whose links inside of hosts have multicast."""

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        """Raises NoMulticast."""
        found = MulticastSymmetric(shape, dtype, self.device, self.group)
        address = host_library().nvshmemx_mc_ptr(_RANKS_OF_NODE, found.local.data_ptr())
        found.multicast = all_at_once(address, "NVSHMEM_DISABLE_NVLS", self.device)
        return found
