"""The part of the fabric of Triton-distributed that differs on AMD GPUs."""

# mypy: ignore-errors
from __future__ import annotations

import pyrocshmem
import torch
from triton_dist.kernels.amd.common_ops import _set_signal_hip, _wait_eq_hip


def symmetric_tensors(shape: tuple[int, ...], dtype: torch.dtype, rank: int, num_ranks: int) -> list[torch.Tensor]:
    """One tensor on each rank of the node, uninitialised."""
    return pyrocshmem.rocshmem_create_tensor_list_intra_node(list(shape), dtype)


def copy_on_stream(dst: torch.Tensor, src: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Copy `src` to `dst`: a copy engine moves bytes to and from peers; a copy inside one GPU takes compute units."""
    with torch.cuda.stream(stream):
        dst.copy_(src, non_blocking=True)


def copy_2d_on_stream(dst: torch.Tensor, src: torch.Tensor, stream: torch.cuda.Stream) -> None:
    """Copy a matrix whose rows are contiguous; by a copy engine to and from peers."""
    from hip import hip

    pitches = [one.stride(0) * one.element_size() for one in (dst, src)]
    ends = dst.data_ptr(), pitches[0], src.data_ptr(), pitches[1]
    size = src.shape[1] * src.element_size(), src.shape[0]
    kind = hip.hipMemcpyKind.hipMemcpyDeviceToDeviceNoCU
    (status,) = hip.hipMemcpy2DAsync(*ends, *size, kind, stream.cuda_stream)
    if status != hip.hipError_t.hipSuccess:
        raise RuntimeError(f"hipMemcpy2DAsync failed: {status}")


def write_on_stream(word: torch.Tensor, value: int, stream: torch.cuda.Stream) -> None:
    _set_signal_hip(word, value, stream)


def wait_on_word(word: torch.Tensor, value: int, stream: torch.cuda.Stream) -> None:
    _wait_eq_hip(word, value, stream)
