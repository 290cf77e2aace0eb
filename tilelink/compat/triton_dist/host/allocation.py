"""Pieces of one symmetric heap: first fit, the same on every rank that asks for the same sizes in the same order."""

from __future__ import annotations

import os
import re

from tilelink.compat.triton_dist.host.errors import HeapFull, IllegalSize, NotFromHeap

SIZE_VARIABLE = "NVSHMEM_SYMMETRIC_SIZE"  # as NVSHMEM has it
_DEFAULT_BYTES = 2 << 30
_ALIGNMENT_BYTES = 512
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def heap_bytes() -> int:
    """The size of a rank's heap: of the environment, by default 2 GiB. Raises `IllegalSize`."""
    value = os.environ.get(SIZE_VARIABLE)
    if value is None:
        return _DEFAULT_BYTES
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)", value.strip().upper())
    if match is None or float(match[1]) <= 0:
        raise IllegalSize(variable=SIZE_VARIABLE, value=value)
    return _rounded(int(float(match[1]) * _UNITS[match[2]]))


class Allocator:
    """Offsets of pieces in [start, end)."""

    def __init__(self, start: int, end: int) -> None:
        self._size = end
        self._free = [(start, end)]  # by offset, never adjacent
        self._taken: dict[int, int] = {}

    def take(self, num_bytes: int) -> int:
        """The offset of a piece of `num_bytes`, a multiple of 512. Raises `HeapFull`."""
        size = _rounded(max(num_bytes, 1))
        for place, (start, end) in enumerate(self._free):
            if end - start >= size:
                self._free[place : place + 1] = [(start + size, end)] if start + size < end else []
                self._taken[start] = size
                return start
        longest = max((end - start for start, end in self._free), default=0)
        raise HeapFull(asked_bytes=num_bytes, free_bytes=longest, heap_bytes=self._size, variable=SIZE_VARIABLE)

    def give(self, offset: int) -> None:
        """Return a piece. Raises `NotFromHeap`."""
        size = self._taken.pop(offset, None)
        if size is None:
            raise NotFromHeap(
                function="nvshmem_free_tensor_sync", found=f"offset {offset} of the heap, where no piece begins"
            )
        pieces = sorted([*self._free, (offset, offset + size)])
        self._free = pieces[:1]
        for start, end in pieces[1:]:
            last, until = self._free[-1]
            if until == start:
                self._free[-1] = (last, end)
            else:
                self._free.append((start, end))


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
