"""The fabric of an emitted file on Triton-distributed: symmetric tensors, streams, library calls."""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lowering.host.distributed_nvidia import (
    copy_2d_on_stream,
    copy_on_stream,
    symmetric_tensors,
    wait_on_word,
    write_on_stream,
)
from lowering.host.gpu_fabric import GpuFabric, GpuStream


class Symmetric:
    """One buffer on every rank: `local` of this rank, `peers[r]` of rank r, None where only a network reaches it."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, rank: int, num_ranks: int) -> None:
        self.peers = symmetric_tensors(shape, dtype, rank, num_ranks)
        self.local = self.peers[rank]
        self.local.zero_()


class Stream(GpuStream):
    """A stream whose kernels go through the launcher of Triton-distributed, and copies and words through its runtime."""

    def launch(self, kernel: Any, grid: tuple[int, ...], *args: object, per_sm: int = 1, **options: object) -> None:
        """Run `kernel` on `grid`, with `per_sm` resident programs on each SM."""
        options |= self.most_registers(per_sm, options)
        if self.fabric.is_loading:
            compiled = kernel.warmup(*args, grid=grid, **options)
            compiled._init_handles()
            return
        with torch.cuda.stream(self.stream):
            kernel[grid](*args, **options)

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Copy `src` to `dst`: a copy engine moves bytes to and from peers; a copy inside one GPU takes SMs."""
        if not self.fabric.is_loading:
            copy_on_stream(dst, src, self.stream)

    def copy_2d(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        """Copy a matrix whose rows are contiguous; by a copy engine to and from peers."""
        if not self.fabric.is_loading:
            copy_2d_on_stream(dst, src, self.stream)

    def write(self, word: torch.Tensor, value: int) -> None:
        """Set a local word, in stream order, without an SM."""
        if not self.fabric.is_loading:
            write_on_stream(word, value, self.stream)

    def wait_equal(self, word: torch.Tensor, value: int) -> None:
        """Hold the stream until a local word equals `value`, without an SM."""
        if not self.fabric.is_loading:
            wait_on_word(word, value, self.stream)

    def after(self, other: Stream) -> None:
        """Order later work of this stream behind all work enqueued on `other` so far."""
        if other.stream == self.stream or (self.captures() and not other.captures()):
            return  # work before a capture is not part of it: the caller orders replays behind eager calls
        self.stream.wait_stream(other.stream)


class TritonDistFabric(GpuFabric):
    """The ranks under the runtime of Triton-distributed; `group` comes from `initialize_distributed`."""

    stream_type = Stream

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Symmetric:
        return Symmetric(shape, dtype, self.rank, self.num_ranks)

    def main(self) -> Stream:
        return Stream(torch.cuda.current_stream(), self)

    def run(self, enqueue: Callable[..., None], main: Stream, *tensors: torch.Tensor) -> None:
        """Call `enqueue(main, *tensors)`."""
        enqueue(main, *tensors)
