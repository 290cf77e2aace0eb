"""The descriptor of the machine this runs on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topologies.errors import NothingDetected, UnknownGpu
from topologies.loader import load, load_descriptor, names

if TYPE_CHECKING:
    from topologies.topology import Topology


@dataclass(frozen=True, slots=True)
class _Seen:
    """A GPU as torch describes it."""

    name: str
    arch: str  # "sm_90", "gfx942"
    num_sms: int


def detect(num_ranks: int | None = None) -> Topology:
    """The shipped topology whose GPU is the one that torch sees, with as many ranks as torch sees of them.

    With `num_ranks` it has that many, however many GPUs this process sees: ranks may share GPUs, or see one each.
    It looks at device names and their count only: the same GPUs on a different board look alike.
    Raises NothingDetected, UnknownGpu where no descriptor has these GPUs; IllegalRanks where the GPUs are known but not in
    this number.
    """
    gpus = _gpu_names()
    kinds = sorted(set(gpus))
    if not gpus:
        raise _nothing("torch sees no GPU")
    if len(kinds) > 1:
        raise _nothing(f"torch sees GPUs of several kinds ({', '.join(kinds)})")
    if len(gpus) == 1 and num_ranks is None:
        raise _nothing(f"torch sees a single GPU ({kinds[0]}), which has no peer")
    for name in names():
        if kinds[0] in load_descriptor(name).device_names:
            return load(name, len(gpus) if num_ranks is None else num_ranks)
    seen = _seen()
    count = "GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    raise UnknownGpu(
        found=f"no descriptor has the {count} that torch sees ({seen.name}, {seen.arch}, {seen.num_sms} SMs)",
        nearest=_nearest(seen),
        legal=", ".join(names()),
    )


def _nearest(seen: _Seen) -> str:
    """The descriptor of the most similar GPU: of the same architecture if there is one, then by the number of SMs."""
    known = [load_descriptor(name) for name in names()]
    real = [one.topology for one in known if one.device_names]

    def distance(topology: Topology) -> tuple[bool, bool, float]:
        gpu = topology.gpu
        family = seen.arch[:3] == gpu.arch[:3]  # sm_ or gfx: the vendor
        return not family, gpu.arch != seen.arch, abs(gpu.num_sms - seen.num_sms) / gpu.num_sms

    return min(real, key=distance).name


def _nothing(found: str) -> NothingDetected:
    return NothingDetected(found=found, legal=", ".join(names()))


def _gpu_names() -> tuple[str, ...]:
    import torch  # here, because reading a descriptor must not cost the import of torch

    return tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))


def _seen() -> _Seen:
    import torch

    found = torch.cuda.get_device_properties(0)
    amd = str(getattr(found, "gcnArchName", "")).partition(":")[0]
    arch = amd if amd.startswith("gfx") else f"sm_{found.major}{found.minor}"
    return _Seen(found.name, arch, found.multi_processor_count)
