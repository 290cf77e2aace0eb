"""The part of the fabric of Triton-distributed that differs on NVIDIA GPUs."""

# mypy: ignore-errors
from __future__ import annotations

import torch
from triton_dist.kernels.nvidia.common_ops import _memcpy_async_cuda, _set_signal_cuda, _wait_eq_cuda
from triton_dist.utils import nvshmem_create_tensors


def symmetric_tensors(shape: tuple[int, ...], dtype: torch.dtype, rank: int, num_ranks: int) -> list[torch.Tensor]:
    """One tensor on each rank of the node, uninitialised."""
    return nvshmem_create_tensors(shape, dtype, rank, num_ranks)


def copy_on_stream(dst: torch.Tensor, src: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Copy `src` to `dst`: a copy engine moves bytes to and from peers; a copy inside one GPU takes SMs."""
    _memcpy_async_cuda(dst, src, src.nbytes, stream)


def write_on_stream(word: torch.Tensor, value: int, stream: torch.cuda.Stream) -> None:
    _set_signal_cuda(word, value, stream)


def wait_on_word(word: torch.Tensor, value: int, stream: torch.cuda.Stream) -> None:
    _wait_eq_cuda(word, value, stream)
