"""What a calibration begins with: ranks on GPUs of their own, and the descriptor whose numbers it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

import topologies
from tilelink.calibrating.errors import CannotCalibrate, PeakUnknown
from topologies.descriptor import Descriptor
from topologies.errors import UnknownGpu
from topologies.loader import load_descriptor
from topologies.topology import Topology

_COMMAND = "torchrun --nproc-per-node N -m tilelink topo detect --calibrate -o my.toml"
_SHIPPED = "name a descriptor of `tilelink topo list` with --topology, or write one by hand"


@dataclass(frozen=True, slots=True)
class Seen:
    """A GPU as its driver describes it."""

    name: str
    arch: str
    num_sms: int
    l2_bytes: int | None  # None where the driver was not asked
    shared_bytes_per_sm: int | None
    num_copy_engines: int | None


@dataclass(frozen=True, slots=True)
class Start:
    """`descriptor` has all ranks that its fabric has. `another_gpu`: it is of a GPU like the one here, with `shipped_sms` SMs.
    `told`: origins of numbers that the driver or the user has told."""

    descriptor: Descriptor
    another_gpu: bool
    shipped_sms: int
    told: Mapping[str, str]

    def cut(self, num_ranks: int) -> Topology:
        """The topology of the group. Raises IllegalRanks."""
        return topologies.with_ranks(self.descriptor.topology, num_ranks)


def check_machine(environment: Mapping[str, str]) -> int:
    """Number of ranks that torchrun has started, each with a GPU. Raises CannotCalibrate."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if torch.version.hip is not None:
        raise _missing("these are GPUs of AMD", "tilelink runs nothing on them", f"Legal: {_SHIPPED}.")
    if not found:
        legal = f"Legal: run it on a machine with 2 or more GPUs ({_COMMAND}), or {_SHIPPED}."
        raise _missing("torch sees no GPU", "its numbers are times of GPUs", legal)
    if found == 1:
        legal = f"Legal: run it where 2 or more GPUs are visible (CUDA_VISIBLE_DEVICES), or {_SHIPPED}."
        raise _missing("torch sees a single GPU", "most numbers are of links between two", legal)
    legal = f"Legal: {_COMMAND}, with N from 2 to {found}."
    if "RANK" not in environment or "LOCAL_RANK" not in environment:
        raise _missing("no ranks were started", "each GPU is measured by a process of its own", legal)
    ranks = int(environment.get("WORLD_SIZE", "1"))
    local = int(environment.get("LOCAL_WORLD_SIZE", ranks))
    if ranks < 2:
        raise _missing("torchrun started one rank", "most numbers are of links between two", legal)
    if ranks != local:
        raise _missing(f"{ranks} ranks are on several hosts", "links of one host are what is measured", legal)
    if ranks > found:
        raise _missing(f"{ranks} ranks share {found} GPUs", "each GPU is measured by itself", legal)
    for rank in range(ranks):
        for peer in range(ranks):
            if rank != peer and not torch.cuda.can_device_access_peer(rank, peer):
                why = f"GPU {rank} cannot address the memory of GPU {peer}"
                legal = f"Legal: GPUs with peer access (`nvidia-smi topo -p2p r`), or {_SHIPPED}."
                raise _missing("peer access is off", why, legal)
    return ranks


def _missing(missing: str, why: str, legal: str) -> CannotCalibrate:
    return CannotCalibrate(missing=missing, why=why, legal=legal)


def seen_here() -> Seen:
    """The current GPU."""
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Seen(
        name=found.name,
        arch=f"sm_{found.major}{found.minor}",
        num_sms=found.multi_processor_count,
        l2_bytes=getattr(found, "L2_cache_size", None),
        shared_bytes_per_sm=getattr(found, "shared_memory_per_multiprocessor", None),
        num_copy_engines=_copy_engines(),
    )


def _copy_engines() -> int | None:
    try:
        import cuda.bindings.driver as driver
    except ImportError:
        return None
    asked = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT
    status, found = driver.cuDeviceGetAttribute(asked, torch.cuda.current_device())
    return int(found) if status == driver.CUresult.CUDA_SUCCESS and found > 0 else None


def start(seen: Seen, num_ranks: int, like: str | None, tflops: float | None, month: str) -> Start:
    """What is measured replaces numbers of the descriptor `like`, else of the shipped one of this GPU, else of the shipped one of
    the same architecture that is nearest. `tflops`: the dense bf16 peak, where that one is not of this GPU.

    Raises CannotCalibrate, PeakUnknown, IllegalRanks, NothingDetected, and for `like` what loading raises.
    """
    base = load_descriptor(like) if like is not None else _shipped(seen, num_ranks)
    gpu, names = base.topology.gpu, base.device_names or (seen.name,)  # a file of the user's need not list names
    another = (gpu.arch, gpu.num_sms) != (seen.arch, seen.num_sms) or seen.name not in names
    if another and tflops is None:
        raise PeakUnknown(gpu=seen.name, like=base.topology.name)
    topology, told = base.topology, dict[str, str]()
    if another:
        topology, reported = _of_this_gpu(topology, seen)
        told |= dict.fromkeys(reported, f"measured {month} 1x{short(seen.name)}: as the driver reports")
    if tflops is not None:
        topology = _with_peak(topology, tflops)
        for dtype, _ in topology.gpu.dense_tflops:
            ratio = "" if dtype == "bf16" else f"; ratio to bf16 as in {base.topology.name}"
            told[f"gpu.dense_tflops.{dtype}"] = f"estimate: bf16 as given by --tflops{ratio}"
    return Start(Descriptor(topology, (seen.name,) if another else base.device_names), another, gpu.num_sms, told)


def _shipped(seen: Seen, num_ranks: int) -> Descriptor:
    try:
        return load_descriptor(topologies.detect(num_ranks).name)
    except UnknownGpu as error:
        nearest = load_descriptor(str(error.facts["nearest"]))
        if nearest.topology.gpu.arch == seen.arch:
            return nearest
        raise _missing(
            f"no descriptor has {seen.name} or another GPU of {seen.arch}",
            "some facts, as what joins the GPUs, have to be told",
            f"Legal: --like NAME|FILE and --tflops X, to begin with another descriptor; the nearest is {nearest.topology.name}.",
        ) from None


def _of_this_gpu(topology: Topology, seen: Seen) -> tuple[Topology, list[str]]:
    """With what the driver reports, and the keys of these numbers."""
    gpu = replace(
        topology.gpu,
        name=seen.name,
        arch=seen.arch,
        num_sms=seen.num_sms,
        l2_bytes=seen.l2_bytes or topology.gpu.l2_bytes,
        shared_bytes_per_sm=seen.shared_bytes_per_sm or topology.gpu.shared_bytes_per_sm,
        num_copy_engines=seen.num_copy_engines or topology.gpu.num_copy_engines,
        tensor_descriptors=int(seen.arch.removeprefix("sm_")) >= 90,
    )
    names = ("num_sms", "l2_bytes", "shared_bytes_per_sm", "num_copy_engines")
    return replace(topology, gpu=gpu), [f"gpu.{name}" for name in names if getattr(seen, name)]


def _with_peak(topology: Topology, tflops: float) -> Topology:
    """Peaks of other dtypes keep their ratio to bf16."""
    ratio = tflops / topology.gpu.tflops("bf16")
    peaks = tuple((dtype, float(f"{peak * ratio:.4g}")) for dtype, peak in topology.gpu.dense_tflops)
    return replace(topology, gpu=replace(topology.gpu, dense_tflops=peaks))


def short(gpu: str) -> str:
    """The name of a GPU without its maker."""
    return gpu.removeprefix("NVIDIA ")
