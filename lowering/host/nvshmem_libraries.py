"""Where NVSHMEM's libraries lie, and what streams call of it, whoever has set it up. Written for NVSHMEM 3.4.5."""

from __future__ import annotations

import ctypes
import functools
import os
import sysconfig


def library(name: str) -> str:
    """Path of a library of NVSHMEM. Raises RuntimeError without it."""
    folder = os.environ.get("NVSHMEM_LIB_DIR") or os.path.join(
        sysconfig.get_path("purelib"), "nvidia", "nvshmem", "lib"
    )
    found = os.path.join(folder, name)
    if not os.path.exists(found):
        raise RuntimeError(
            f"{found} does not exist: ranks of other nodes are reached by NVSHMEM. Install nvidia-nvshmem-cu13 of the version "
            "that torch asks for, or set NVSHMEM_LIB_DIR to the folder of its libraries."
        )
    return found


@functools.cache
def host_library() -> ctypes.CDLL:
    """What streams call of NVSHMEM."""
    found, address = ctypes.CDLL(library("libnvshmem_host.so.3")), ctypes.c_void_p
    found.nvshmemx_putmem_on_stream.argtypes = (address, address, ctypes.c_size_t, ctypes.c_int, address)
    found.nvshmemx_quiet_on_stream.argtypes = (address,)
    found.nvshmemx_mc_ptr.argtypes, found.nvshmemx_mc_ptr.restype = (ctypes.c_int, address), address
    return found
