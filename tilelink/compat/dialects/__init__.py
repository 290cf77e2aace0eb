"""What kernels of other people are written in: torch symmetric memory, OpenSHMEM, multimem.

`symm_mem` is for host code, `openshmem` and `multimem` hold functions that a `@triton.jit` kernel calls. The
functions have a meaning only while a world runs; a kernel that calls them cannot be compiled as it stands.
"""

from __future__ import annotations

from tilelink.compat.dialects.errors import (
    IllegalRendezvous,
    IllegalShmemArgument,
    IllegalSignal,
    IllegalSignalTensor,
    IllegalView,
    NotEmulated,
    NotSymmetric,
    OverlappingCollectives,
)
from tilelink.emulator.errors import NoMulticast

__all__ = [
    "IllegalRendezvous",
    "IllegalShmemArgument",
    "IllegalSignal",
    "IllegalSignalTensor",
    "IllegalView",
    "NoMulticast",
    "NotEmulated",
    "NotSymmetric",
    "OverlappingCollectives",
]
