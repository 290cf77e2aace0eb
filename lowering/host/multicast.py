"""The fabric of ranks whose links store at all of them at once: torch symmetric memory, with multicast addresses."""

from __future__ import annotations

import torch
import torch.distributed._symmetric_memory as symm_mem

from lowering.host.at_once import all_at_once
from lowering.host.symmetric_memory import Symmetric, SymmetricMemoryFabric


class MulticastSymmetric(Symmetric):
    """One buffer on every rank, and `multicast`: its address on all of them at once, int64[1] on the device."""

    multicast: torch.Tensor


class MulticastFabric(SymmetricMemoryFabric):
    """The ranks of a torch process group, on GPUs of one host whose links have multicast."""

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> MulticastSymmetric:
        """Raises NoMulticast."""
        found = MulticastSymmetric(shape, dtype, self.device, self.group)
        address = symm_mem.rendezvous(found.local, self.group).multicast_ptr  # they have met: the same handle again
        found.multicast = all_at_once(address, "TORCH_SYMM_MEM_DISABLE_MULTICAST", self.device)
        return found
