"""`triton_dist.kernels.nvidia.common_ops`: stream waits, writes and copies, and meetings of ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tilelink.compat.triton_dist.device.meetings import (
    barrier_all_intra_node_atomic_cas_block,
    barrier_all_intra_node_non_atomic,
    barrier_all_intra_node_non_atomic_block,
    barrier_on_this_grid,
)
from tilelink.compat.triton_dist.host import runtime
from tilelink.compat.triton_dist.host.utils import nvshmem_barrier_all_on_stream

__all__ = [
    "BarrierAllContext",
    "_memcpy_async_cuda",
    "_set_signal_cuda",
    "_wait_eq_cuda",
    "barrier_all_intra_node_atomic_cas_block",
    "barrier_all_intra_node_non_atomic",
    "barrier_all_intra_node_non_atomic_block",
    "barrier_all_on_stream",
    "barrier_on_this_grid",
    "set_signal",
    "wait_eq",
]


@dataclass(frozen=True, slots=True)
class BarrierAllContext:
    """How ranks meet; one node knows one way."""

    is_intra_node: bool


def barrier_all_on_stream(ctx: BarrierAllContext, stream: Any = None) -> None:
    """Enqueue a meeting of all ranks, on the stream that is given, and graph-safe: both are more than the original does."""
    nvshmem_barrier_all_on_stream(stream)


def _wait_eq_cuda(signal_tensor: torch.Tensor, signal: int, stream: Any = None) -> None:
    """The stream waits until the word is equal to `signal`; it takes no SM. int32 or int64."""
    runtime.current("_wait_eq_cuda").wait_equal(signal_tensor, signal, stream)


def _set_signal_cuda(signal_tensor: torch.Tensor, signal: int, stream: Any = None) -> None:
    """The stream writes the word behind all that it did before; it takes no SM. int32 or int64, a peer's as well."""
    runtime.current("_set_signal_cuda").write(signal_tensor, signal, stream)


def _memcpy_async_cuda(dst: torch.Tensor, src: torch.Tensor, nbytes: int, stream: Any = None) -> None:
    """The stream copies `nbytes` bytes, by a copy engine unless both are on this GPU."""
    runtime.current("_memcpy_async_cuda").copy(dst, src, nbytes, stream)


wait_eq = _wait_eq_cuda
set_signal = _set_signal_cuda
