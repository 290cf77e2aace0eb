"""This process as a rank that torchrun has started: its GPU, its process group, and how to call the machine."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

# the hardware's multicast is left alone unless the caller's environment says otherwise: a program that dies with it in
# use can leave the fabric of a shared host in need of a reset
MULTICAST_OFF = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
_OVERLAP = (
    "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES"  # torch refuses symmetric memory of two ranks on one GPU without it
)


def join() -> None:
    """A GPU of its own and NCCL; nothing where the process is in a group already."""
    if not dist.is_initialized():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))


def join_shared() -> None:
    """GPU LOCAL_RANK modulo the GPUs that there are, and gloo: NCCL takes one rank a GPU."""
    os.environ[_OVERLAP] = "1"
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("gloo")


def join_parts() -> None:
    """A part of GPU LOCAL_RANK modulo the GPUs that there are, and NCCL by sockets, as if each rank were a host of its own.

    Ranks run beside each other under NVIDIA's multi-process service, which gives each of them a percentage of the SMs
    (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE); NVSHMEM takes several ranks of one GPU only so.
    """
    alone = {"NCCL_HOSTID": f"host-{os.environ['RANK']}", "NCCL_SOCKET_IFNAME": "lo", _OVERLAP: "1"}
    os.environ.update(alone | {"NVSHMEM_DISABLE_NCCL": "1", "NVSHMEM_REMOTE_TRANSPORT": "none"})
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))


def gpus_are_shared() -> bool:
    """Whether this group has more ranks than the host has GPUs; times say nothing then."""
    return dist.get_world_size() > torch.cuda.device_count()


def machine() -> str:
    """The GPUs that the ranks run on, for records: "2 x NVIDIA H200", or "4 ranks on 2 x NVIDIA H200"."""
    ranks, found, name = dist.get_world_size(), torch.cuda.device_count(), torch.cuda.get_device_name()
    return f"{ranks} ranks on {found} x {name}" if gpus_are_shared() else f"{ranks} x {name}"
