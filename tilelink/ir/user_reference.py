"""The torch reference of a user's tile op: from its text to a function, and a call of it in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch.overrides import TorchFunctionMode


def reference_of(text: str) -> Callable[..., object]:
    """The function that the text defines, which knows `torch` and nothing else."""
    scope: dict[str, object] = {"torch": torch}
    exec(text, scope)
    names = [name for name, value in scope.items() if callable(value) and name != "torch"]
    function: Callable[..., object] = scope[names[-1]]  # type: ignore[assignment]
    return function


def in_float64(reference: Callable[..., object], tensors: Iterable[torch.Tensor]) -> object:
    """`reference(*tensors)` without any rounding to a narrower dtype. Raises what the reference raises."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Float64():
            return reference(*tensors)
    finally:
        torch.set_default_dtype(default)


_CASTS = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}


class _Float64(TorchFunctionMode):
    """Casts to a floating-point dtype give float64: `x.float()` is how an RMSNorm is written, and no part of what it means."""

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: Iterable[object] = (), kwargs: object = None
    ) -> object:
        if func in _CASTS:
            func = torch.Tensor.double
        keywords = kwargs if isinstance(kwargs, dict) else {}
        return func(*map(_widened, args), **{name: _widened(value) for name, value in keywords.items()})


def _widened(argument: object) -> object:
    narrow = isinstance(argument, torch.dtype) and argument.is_floating_point
    return torch.float64 if narrow else argument
