"""Library calls in stream order, on every fabric of GPUs."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.distributed as dist

_HERE = contextlib.nullcontext()


class LibraryCalls:
    """Torch operations on one stream; subclasses set `stream` and `fabric`."""

    stream: torch.cuda.Stream
    fabric: Any

    def _current(self) -> Any:
        """A context in which torch works on this stream. Switching streams costs the host more than a library call."""
        there = torch._C._cuda_getCurrentRawStream(self.fabric.device.index) == self.stream.cuda_stream
        return _HERE if there else torch.cuda.stream(self.stream)

    def matmul(self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        with self._current():
            torch.mm(a, b, out=out)

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        with self._current():
            dist.all_gather_into_tensor(out, x, group=self.fabric.group)

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        with self._current():
            dist.reduce_scatter_tensor(out, x, group=self.fabric.group)

    def all_reduce(self, x: torch.Tensor) -> None:
        with self._current():
            dist.all_reduce(x, group=self.fabric.group)
