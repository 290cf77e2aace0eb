"""The descriptor of the machine this runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topologies.errors import NothingDetected
from topologies.loader import load, load_descriptor, names

if TYPE_CHECKING:
    from topologies.topology import Topology


def detect() -> Topology:
    """The shipped topology whose GPU is the one that torch sees, with as many ranks as torch sees of them.

    It looks at device names and their count only: the same GPUs on a different board look alike.
    Raises NothingDetected; IllegalRanks where the GPUs are known but not in this number.
    """
    gpus = _gpu_names()
    kinds = sorted(set(gpus))
    if not gpus:
        raise _nothing("torch sees no GPU")
    if len(kinds) > 1:
        raise _nothing(f"torch sees GPUs of several kinds ({', '.join(kinds)})")
    if len(gpus) == 1:
        raise _nothing(f"torch sees a single GPU ({kinds[0]}), which has no peer")
    for name in names():
        if kinds[0] in load_descriptor(name).device_names:
            return load(name, len(gpus))
    raise _nothing(f"no descriptor has the {len(gpus)} GPUs that torch sees ({kinds[0]})")


def _nothing(found: str) -> NothingDetected:
    return NothingDetected(found=found, legal=", ".join(names()))


def _gpu_names() -> tuple[str, ...]:
    import torch  # here, because reading a descriptor must not cost the import of torch

    return tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
