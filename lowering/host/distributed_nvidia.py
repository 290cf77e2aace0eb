"""The part of the fabric of Triton-distributed that differs on NVIDIA GPUs."""

# mypy: ignore-errors
from __future__ import annotations

import os

import torch
from triton_dist.kernels.nvidia.common_ops import _memcpy_async_cuda, _set_signal_cuda, _wait_eq_cuda
from triton_dist.utils import nvshmem_create_tensors


def symmetric_tensors(
    shape: tuple[int, ...], dtype: torch.dtype, rank: int, num_ranks: int
) -> list[torch.Tensor | None]:
    """One tensor on each rank, uninitialised; None of ranks that only a network reaches."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", num_ranks))
    first = rank // local * local
    found: list[torch.Tensor | None] = [None] * num_ranks
    found[first : first + local] = nvshmem_create_tensors(shape, dtype, rank, local)
    return found


def copy_on_stream(dst: torch.Tensor, src: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Copy `src` to `dst`: a copy engine moves bytes to and from peers; a copy inside one GPU takes SMs."""
    _memcpy_async_cuda(dst, src, src.nbytes, stream)


def copy_2d_on_stream(dst: torch.Tensor, src: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Copy a matrix whose rows are contiguous; by a copy engine to and from peers."""
    import cuda.bindings.runtime as cudart

    pitches = [one.stride(0) * one.element_size() for one in (dst, src)]
    ends = dst.data_ptr(), pitches[0], src.data_ptr(), pitches[1]
    kind = cudart.cudaMemcpyKind.cudaMemcpyDefault
    size = src.shape[1] * src.element_size(), src.shape[0]
    (status,) = cudart.cudaMemcpy2DAsync(*ends, *size, kind, stream.cuda_stream)
    if status != cudart.cudaError_t.cudaSuccess:
        raise RuntimeError(f"cudaMemcpy2DAsync failed: {status}")


def write_on_stream(word: torch.Tensor, value: int, stream: torch.cuda.Stream) -> None:
    _set_signal_cuda(word, value, stream)


def wait_on_word(word: torch.Tensor, value: int, stream: torch.cuda.Stream) -> None:
    _wait_eq_cuda(word, value, stream)
