"""The names of `SymmMem` on GPUs: torch's own symmetric memory and streams, so that one file runs in both places."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from torch._C._distributed_c10d import _SymmetricMemory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MAIN = "main"


class TorchSymmMem:
    """Symmetric memory of one rank of a process group whose GPUs address each other's memory."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.num_ranks = dist.get_world_size(group)
        self.device = torch.device("cuda", torch.cuda.current_device())
        self._streams: dict[str, torch.cuda.Stream] = {}

    def empty(
        self, *size: int | Sequence[int], dtype: torch.dtype | None = None, device: object = None
    ) -> torch.Tensor:
        """Uninitialised symmetric memory on this rank's GPU; `device` is ignored."""
        shape = [extent for part in size for extent in ((part,) if isinstance(part, int) else part)]
        return symm_mem.empty(*shape, dtype=dtype or torch.get_default_dtype(), device=self.device)

    def rendezvous(self, tensor: torch.Tensor, group: object = None) -> _SymmetricMemory:
        """The handle of an allocation, of the group given at the start; all ranks meet."""
        return symm_mem.rendezvous(tensor, self.group)

    @contextmanager
    def launches(self, stream: str | None = None) -> Iterator[torch.cuda.Stream]:
        """Inside, launches and the operations below go to the stream of that name."""
        target = self._stream(stream or _MAIN)
        with torch.cuda.stream(target):
            yield target

    def wait_stream(self, stream: str, other: str) -> None:
        """What is enqueued on stream `other` so far happens before what follows on `stream`."""
        self._stream(stream).wait_stream(self._stream(other))

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Enqueue a copy, on a copy engine unless both sides are this rank's."""
        dst.copy_(src, non_blocking=True)

    def stream_write_value32(self, tensor: torch.Tensor, offset: int, val: int) -> None:
        """Enqueue tensor[offset] = val without an SM; `tensor` is flat and uint32."""
        _SymmetricMemory.stream_write_value32(tensor, offset, val)

    def memset32(self, tensor: torch.Tensor, offset: int, val: int, count: int = 1) -> None:
        """Enqueue tensor[offset : offset + count] = val."""
        _SymmetricMemory.memset32(tensor, offset, val, count)

    def _stream(self, name: str) -> torch.cuda.Stream:
        """The caller's stream is remembered as the main one when it is first asked for."""
        if name not in self._streams:
            side = torch.cuda.current_stream() if name == _MAIN else torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
            self._streams[name] = side
        return self._streams[name]
