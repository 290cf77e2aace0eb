"""Calls of NVSHMEM's device library from kernels in stock Triton, emulated: puts are late, and overtake each other."""

from __future__ import annotations

from tilelink.compat.dialects import openshmem
from tilelink.emulator.extra import CALLS


def install() -> None:
    """Emulated ranks know these functions from now on."""
    CALLS.update(
        nvshmemx_putmem_nbi_block=openshmem.putmem_nbi_block,
        nvshmemx_putmem_signal_nbi_block=openshmem.putmem_signal_nbi_block,
        nvshmemx_signal_op=_signal_op,
        nvshmem_quiet=openshmem.quiet,
    )


def _signal_op(word: object, value: object, how: object, rank: object) -> None:
    """Set behind what the program has put before: a kernel has asked for that by `quiet`, or it tells of stores alone."""
    openshmem.signal_op(word, value, how, rank)
