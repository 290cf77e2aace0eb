"""The word of each loaded module that tells its kernels where the table of this process is.

A kernel is compiled once for all ranks, and the disk cache may be shared, since nothing of a rank is baked into it. When a
module is loaded that has the word, the address of the table is written into it; and again when the table changes.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from triton import knobs

from tilelink.compat.triton_dist.host.errors import DriverFailed
from tilelink.compat.triton_dist.kernels import STATE_SYMBOL

try:
    import cuda.bindings.driver as driver
except ImportError:  # only a machine with GPUs needs it
    driver = None

__all__ = ["check", "driver", "loaded", "publish", "watch"]

_words: list[int] = []  # where each loaded module has the word
_address = 0


def check(function: str, status: Any) -> None:
    """Raises `DriverFailed`."""
    if status != driver.CUresult.CUDA_SUCCESS:
        raise DriverFailed(function=function, status=status)


def loaded(module: int, *_: object) -> None:
    """A module has been loaded: a hook of Triton."""
    if driver is None:
        return
    status, word, _ = driver.cuModuleGetGlobal(module, STATE_SYMBOL.encode())
    if status == driver.CUresult.CUDA_ERROR_NOT_FOUND:
        return  # a kernel that asks for no rank
    check("cuModuleGetGlobal", status)
    _words.append(int(word))
    _write(int(word))


def publish(table: torch.Tensor | None) -> None:
    """Kernels loaded so far and later read `table` (int64, on the device) from now on; None: there is none any more."""
    global _address
    _address = 0 if table is None else table.data_ptr()
    for word in _words:
        _write(word)


def watch() -> None:
    """Be told of every module that Triton loads; once is enough."""
    if loaded not in knobs.runtime.kernel_load_end_hook.calls:
        knobs.runtime.kernel_load_end_hook.add(loaded)


def _write(word: int) -> None:
    content = ctypes.c_uint64(_address)
    (status,) = driver.cuMemcpyHtoD(word, ctypes.addressof(content), 8)
    check("cuMemcpyHtoD", status)
