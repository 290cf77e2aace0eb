"""`triton_dist.utils`: ranks, symmetric tensors, meetings, launch options."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from tilelink.compat.triton_dist.device import meetings
from tilelink.compat.triton_dist.host import runtime
from tilelink.compat.triton_dist.host.device import GpuRuntime
from tilelink.compat.triton_dist.host.errors import UnknownRanks

NVSHMEM_SIGNAL_DTYPE = torch.int64


def initialize_distributed(seed: int | None = None, initialize_shmem: bool = True) -> Any:
    """The group of all ranks: this process's GPU joins torch.distributed and, if asked, gets its symmetric heap.

    On an emulated rank there is nothing to join. `seed`: of torch's and Python's random numbers, on every rank.
    Raises `UnknownRanks`, `IllegalSize`.
    """
    if seed is not None:
        torch.manual_seed(seed)
        random.seed(seed)
    if runtime.is_initialized():
        return runtime.current("initialize_distributed").group
    if not dist.is_initialized():
        missing = [name for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE") if name not in os.environ]
        if missing:
            raise UnknownRanks(missing=", ".join(missing))
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    group = dist.distributed_c10d._get_default_group()
    if initialize_shmem:
        init_nvshmem_by_torch_process_group(group)
    return group


def init_nvshmem_by_torch_process_group(pg: Any) -> None:
    """Make the symmetric heap of the ranks of `pg`."""
    if not runtime.is_initialized():
        runtime.enter(GpuRuntime(pg))


def finalize_distributed() -> None:
    """All ranks are done with symmetric memory; on GPUs the process group ends as well."""
    held = runtime.current("finalize_distributed")
    if isinstance(held, GpuRuntime):
        held.close()
        runtime.leave(held)
        dist.destroy_process_group()


def nvshmem_create_tensor(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """This rank's part of a symmetric tensor, not zeroed; all ranks call in one order. Raises `HeapFull`."""
    return runtime.current("nvshmem_create_tensor").create(tuple(shape), dtype)


def nvshmem_create_tensors(
    shape: Sequence[int], dtype: torch.dtype, rank: int, local_world_size: int
) -> list[torch.Tensor]:
    """All ranks' parts of a symmetric tensor, not zeroed; [rank] is this rank's. One node: ranks are local ranks."""
    held = runtime.current("nvshmem_create_tensors")
    return held.peers(held.create(tuple(shape), dtype))


def rocshmem_create_tensor_list_intra_node(shape: Sequence[int], dtype: torch.dtype) -> list[torch.Tensor]:
    """`nvshmem_create_tensors` by the name that `pyrocshmem` has for it."""
    held = runtime.current("rocshmem_create_tensor_list_intra_node")
    return held.peers(held.create(tuple(shape), dtype))


def nvshmem_free_tensor_sync(t: torch.Tensor) -> None:
    """Give back what `nvshmem_create_tensor` returned, on all ranks. Raises `NotFromHeap`."""
    runtime.current("nvshmem_free_tensor_sync").free(t)


def nvshmem_barrier_all_on_stream(stream: Any = None) -> None:
    """Enqueue a kernel of one program in which all ranks meet. It is graph-safe: nothing of the call is baked in."""
    with runtime.current("nvshmem_barrier_all_on_stream").on_stream(stream):
        meetings.meet_on_stream[(1,)]()


def launch_cooperative_grid_options() -> dict[str, bool]:
    """Options of a launch whose programs must all be resident: refused by the driver where they do not fit."""
    return {"launch_cooperative_grid": True}


def is_nvshmem_multimem_supported() -> bool:
    """False: the shim never takes the multicast path by itself, since no machine has run it."""
    return False


def has_nvshmemi_bc_built() -> bool:
    """False: there is no bitcode of NVSHMEM, and no `putmem_rma`."""
    return False


def supports_p2p_native_atomic() -> bool:
    """Whether atomics reach the memory of every peer."""
    if not isinstance(runtime.current("supports_p2p_native_atomic"), GpuRuntime):
        return True
    here, count = torch.cuda.current_device(), torch.cuda.device_count()
    return all(torch.cuda.can_device_access_peer(here, peer) for peer in range(count) if peer != here)


def has_fullmesh_nvlink() -> bool:
    """Whether each GPU of the node reaches each other one."""
    return supports_p2p_native_atomic()


def has_tma() -> bool:
    """Whether the GPU has the tensor memory accelerator; emulated ranks have it."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] >= 9
