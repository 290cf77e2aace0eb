"""The check of an operator's inputs, on every fabric."""

from __future__ import annotations

from typing import Any

import torch


def inputs_of(operator: Any, rank: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """INPUTS of the class of an operator, on a rank: of MATRICES, so many on all ranks, the last ranks have fewer."""
    found = dict(operator.INPUTS)
    for name, every in operator.MATRICES.items():
        (most, *matrix), dtype = found[name]
        found[name] = ((max(0, min(most, every - rank * most)), *matrix), dtype)
    return found


def rows_of_matrices(matrices: torch.Tensor) -> torch.Tensor:
    """Rows of all matrices, one below the other. A rank without matrices gets some memory, which nobody reads: descriptors are of
    one row or more."""
    rows = matrices.view(-1, matrices.shape[-1])
    return rows if len(rows) else rows.new_empty(1, rows.shape[1])


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
