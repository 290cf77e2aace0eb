"""Where a benchmark runs: GPU, driver, versions, clocks. Asked once before and once after all rows."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version

import torch

import topologies
from tilelink.bench.record import Machine
from tilelink.runtime.machine import PLANNED_FOR

DEFAULT_TOPOLOGY = PLANNED_FOR  # on a machine without GPUs, which can only plan
_TELLING = ("NCCL_", "TORCH_NCCL_", "TORCH_SYMM_MEM_", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_VISIBLE_DEVICES", "CUBLAS")
_QUERY = "index,name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw"


def topology_of_gpus() -> str:
    """Name of the descriptor of this machine's GPUs. Raises NothingDetected and UnknownGpu where there are GPUs that none has."""
    if not torch.cuda.device_count():
        return DEFAULT_TOPOLOGY
    return topologies.detect(2).name  # of what kind they are: how many there are is checked elsewhere


def gpu_state() -> tuple[str, ...]:
    """One line a GPU, as nvidia-smi writes it; empty without it."""
    try:
        command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def describe_machine(num_ranks: int, topology: str) -> Machine:
    state = gpu_state()
    has_gpu = torch.cuda.is_available()
    return Machine(
        gpu=torch.cuda.get_device_name() if has_gpu else platform.machine(),
        num_gpus=torch.cuda.device_count(),
        driver=state[0].split(",")[2].strip() if state and state[0].count(",") >= 2 else "",
        num_ranks=num_ranks,
        topology=topology,
        versions=_versions(),
        environment={name: value for name, value in sorted(os.environ.items()) if name.startswith(_TELLING)},
        state_before=state,
        state_after=(),
    )


def _versions() -> dict[str, str]:
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    has_gpu = torch.cuda.is_available()
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if has_gpu else ""  # type: ignore[no-untyped-call]
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": triton,
        "cuda": str(torch.version.cuda or ""),
        "nccl": nccl,
    }
