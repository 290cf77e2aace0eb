"""`triton.language.extra` in an emulated kernel: special registers and functions of libdevice.

A kernel may have a function under a name of its own (`from triton.language.extra.cuda import smid`), and `libdevice` is a
module of empty functions that a compiler replaces by those of its target. So what stands for them goes by object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import cuda, libdevice
from triton.language.extra.cuda import gdc, utils

from tilelink.emulator.numerics import Handle, numbers, typed
from tilelink.emulator.threads import WARP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelink.emulator.machine import Machine

MODULES = (cuda, utils, gdc, cuda.libdevice)
STANDS_FOR: dict[int, object] = {id(libdevice): cuda.libdevice}  # a module, by the `id` of the one that it replaces
STANDS_FOR |= {
    id(function): getattr(cuda.libdevice, name)
    for name, function in vars(libdevice).items()
    if callable(function) and hasattr(cuda.libdevice, name)
}


def warps(machine: Machine) -> dict[str, Callable[[], int]]:
    """What a kernel asks for the size of its programs."""
    return {
        "num_warps": lambda: machine.scheduler.task.warps,
        "num_threads": lambda: WARP * machine.scheduler.task.warps,
    }


def _of_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    return lambda x: function(torch.from_numpy(np.ascontiguousarray(x))).numpy()


_NUMPY = (
    "sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh floor ceil trunc rint fabs cbrt fmod copysign hypot "
    "isnan signbit"
)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in _NUMPY.split()},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "isinf": np.isinf,
    "isinfd": np.isinf,
    "isnand": np.isnan,
    "finitef": np.isfinite,
    "isfinited": np.isfinite,
    "exp10": lambda x: np.power(10.0, x),
    "erf": _of_torch(torch.erf),
    "erfc": _of_torch(torch.erfc),
    "lgamma": _of_torch(torch.lgamma),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "pow": np.power,
    "fdivide": np.divide,
    "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "fma": lambda a, b, c: a * b + c,
    "fmin": np.fmin,
    "fmax": np.fmax,
    "abs": np.abs,
    "min": np.minimum,
    "max": np.maximum,
    "fast_exp": np.exp,
    "fast_log": np.log,
    "fast_pow": np.power,
    "fast_sin": np.sin,
    "fast_cos": np.cos,
    "fast_tan": np.tan,
    "fast_fdivide": np.divide,
}


# functions of other libraries than libdevice, which whoever emulates one puts here: they take tensors, and return nothing
CALLS: dict[str, Callable[..., None]] = {}


def extern(symbol: str, arguments: Sequence[Handle], into: Any) -> Handle:
    """A function of libdevice, such as `__nv_tanhf`, or one of `CALLS`, which gives 0. Raises NotImplementedError for one that
    is not known."""
    if symbol in CALLS:
        CALLS[symbol](*(tl.tensor(one, one.dtype) for one in arguments))
        return typed(np.zeros(1, np.int32), into.scalar)
    name = re.sub("^__nv_", "", symbol)
    function = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f"))
    if function is None:
        raise NotImplementedError(f"{symbol} of libdevice")
    with np.errstate(all="ignore"):
        return typed(np.asarray(function(*(numbers(one) for one in arguments))), into.scalar)
