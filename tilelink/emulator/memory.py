"""Who owns an address: the buffers that emulated kernels may touch."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ALIGNMENT_BYTES = 256
_LEAST_GUARD_BYTES = 1 << 14


@dataclass(slots=True, eq=False)
class Buffer:
    """One contiguous piece of memory. `shape` and `dtype` are those it was allocated or first passed with."""

    name: str
    rank: int
    start: int  # byte address
    end: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    symmetric: bool
    users: int = 1  # running launches that were given it; a symmetric buffer stays for ever

    def element(self, address: int) -> str:
        """`signal[2, 3]` for an address inside."""
        index = (address - self.start) // self.dtype.itemsize
        if math.prod(self.shape) * self.dtype.itemsize != self.end - self.start:
            return f"{self.name}[byte {address - self.start}]"
        position: list[int] = []
        for size in reversed(self.shape):
            position.append(index % size)
            index //= size
        return f"{self.name}[{', '.join(map(str, reversed(position)))}]"


class MemoryMap:
    """Buffers by address; they do not overlap."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._by_start: dict[int, Buffer] = {}
        self._last: Buffer | None = None  # accesses come in runs: most hit the buffer of the one before
        self._spanned: NDArray[np.uint64] | None = None  # an access is looked at before it happens and after it
        self._span = (0, 0)

    def allocate(self, name: str, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A zeroed symmetric tensor between guard zones, so that a run over its end hits no other buffer."""
        num_bytes = math.prod(shape) * dtype.itemsize
        guard = max(_LEAST_GUARD_BYTES, num_bytes)
        arena = torch.empty(num_bytes + 2 * guard + _ALIGNMENT_BYTES, dtype=torch.uint8)
        offset = guard + -(arena.data_ptr() + guard) % _ALIGNMENT_BYTES
        tensor = arena[offset : offset + num_bytes].zero_().view(dtype).view(shape)
        start = arena.data_ptr() + offset
        if num_bytes:
            self._add(Buffer(name, rank, start, start + num_bytes, shape, dtype, symmetric=True))
        return tensor

    def lend(self, name: str, rank: int, tensor: torch.Tensor) -> Buffer | None:
        """Let kernels touch the storage of `tensor` until `release`; None if it needs no registration."""
        owner = self.owner(tensor.data_ptr())
        if owner is not None:
            owner.users += 1
            return owner
        storage = tensor.untyped_storage()
        start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        if start == end:
            return None
        whole = tensor.numel() * tensor.element_size() == end - start
        shape = tuple(tensor.shape) if whole else (storage.nbytes() // tensor.element_size(),)
        buffer = Buffer(name, rank, start, end, shape, tensor.dtype, symmetric=False)
        self._add(buffer)
        return buffer

    def release(self, buffer: Buffer) -> None:
        """Undo one `lend`."""
        buffer.users -= 1
        if buffer.users == 0 and not buffer.symmetric:
            self._starts.remove(buffer.start)
            del self._by_start[buffer.start]
            self._last = None

    def owner(self, address: int) -> Buffer | None:
        """The buffer that holds the byte at `address`."""
        last = self._last
        if last is not None and last.start <= address < last.end:
            return last
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return None
        buffer = self._by_start[self._starts[place]]
        if address >= buffer.end:
            return None
        self._last = buffer
        return buffer

    def span(self, addresses: NDArray[np.uint64]) -> tuple[int, int]:
        """The lowest and the highest of the addresses, which nobody changes."""
        if addresses.size == 1:
            address = int(addresses.item())
            return address, address
        if addresses is not self._spanned:
            low, high = np.minimum.reduce(addresses, axis=None), np.maximum.reduce(addresses, axis=None)
            self._spanned, self._span = addresses, (int(low), int(high))
        return self._span

    def first_outside(self, addresses: NDArray[np.uint64], item_bytes: int) -> int | None:
        """The first element's address that is not wholly inside a buffer, or None."""
        low, high = self.span(addresses)
        owner = self.owner(low)
        if owner is not None and high + item_bytes <= owner.end:
            return None
        for address in addresses.flat:
            owner = self.owner(int(address))
            if owner is None or int(address) + item_bytes > owner.end:
                return int(address)
        return None

    def by_owner(self, addresses: NDArray[np.uint64]) -> list[NDArray[np.uint64]]:
        """The addresses of each buffer by themselves, in the order in which buffers come first."""
        found: dict[int, list[int]] = {}
        flat = addresses.ravel()
        for lane, address in enumerate(flat):
            owner = self.owner(int(address))
            found.setdefault(owner.start if owner else -1, []).append(lane)
        return [flat[lanes] for lanes in found.values()]

    def named(self, name: str, rank: int) -> Buffer | None:
        """The first symmetric buffer of that name."""
        found = (one for one in self._by_start.values() if one.symmetric and (one.name, one.rank) == (name, rank))
        return next(found, None)

    def describe(self, address: int) -> str:
        """`signal[3] of rank 1`."""
        owner = self.owner(address)
        return f"{owner.element(address)} of rank {owner.rank}" if owner else f"address {address:#x}"

    def nearest(self, address: int) -> str:
        """How far an outside address is from the closest buffer."""
        buffers = self._by_start.values()
        if not buffers:
            return "there is no buffer at all"
        closest = min(buffers, key=lambda b: min(abs(address - b.start), abs(address - b.end)))
        item = closest.dtype.itemsize
        name = f"{closest.name}{list(closest.shape)} of rank {closest.rank}"
        if address >= closest.end:
            return f"it is {(address - closest.end) // item + 1} elements behind the last one of {name}"
        if address >= closest.start:
            return f"it reaches over the end of {name}"
        return f"it is {-((address - closest.start) // item)} elements before the first one of {name}"

    def _add(self, buffer: Buffer) -> None:
        insort(self._starts, buffer.start)
        self._by_start[buffer.start] = buffer
