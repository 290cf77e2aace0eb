"""The check of an operator's inputs, on every fabric."""

from __future__ import annotations

import torch


def check_input(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raises ValueError unless `tensor` is what the schedule was made for, contiguous and at a multiple of 16 bytes, and
    RuntimeError if torch would record the call for a backward, which there is none of."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{name} requires grad, and there is no backward: pass {name}.detach(), or call in torch.no_grad()"
        )
    if tensor.shape == shape and tensor.dtype == dtype and tensor.is_contiguous() and tensor.data_ptr() % 16 == 0:
        return
    if tensor.shape == shape and tensor.dtype == dtype and tensor.is_contiguous():
        raise ValueError(f"{name} starts at an address that is no multiple of 16 bytes; pass a copy of it")
    got = f"{list(tensor.shape)} {tensor.dtype}{'' if tensor.is_contiguous() else ', not contiguous'}"
    raise ValueError(f"{name} is {got}; this schedule takes {list(shape)} {dtype}, contiguous")
