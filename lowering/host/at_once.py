"""Addresses of a buffer on all ranks of a node at once, for stores by multicast."""

from __future__ import annotations

import torch


class NoMulticast(RuntimeError):
    """Kernels of this file store at all ranks of a node at once, and the memory of these ranks has no address for that."""


def all_at_once(address: int | None, switch: str, device: torch.device) -> torch.Tensor:
    """`address` as int64[1] on the device. Raises NoMulticast without one; `switch`: the variable that can be the cause."""
    if not address:
        raise NoMulticast(
            f"the GPUs or their links have no multicast, or the environment switches it off ({switch}). "
            "Legal: a file that was planned without multicast=yes."
        )
    return torch.tensor([address], dtype=torch.int64, device=device)
