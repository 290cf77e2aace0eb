"""Kernels and device functions of the dialect: `JITFunction`s of stock Triton that a second world understands as well.

Compiled, a device function is what its body says. In the emulator, which interprets kernels as Python, a call of it is
a call of the function of the same meaning in `tilelink.compat.dialects`. Both belong to one object, so that a file
of the dialect imports one name.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import triton.language as tl
from triton.language import core
from triton.runtime.jit import JITFunction

STATE_SYMBOL = "tilelink_triton_dist_state_d"  # one pointer in device memory of each module: see `host/state.py`
EXTERN_LIBS = {"tilelink_triton_dist": str(Path(__file__).with_name("state.ll"))}


class Kernel(JITFunction[Any]):  # type: ignore[misc]
    """What `triton_dist.jit` makes of a function. Its modules hold the word through which `dl.rank` and peers are known."""

    extern_libs = EXTERN_LIBS

    def run(self, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        """Compile, and unless `warmup` launch; raises what Triton raises."""
        libraries = {**self.extern_libs, **dict(options.pop("extern_libs", None) or {})}
        return super().run(*args, grid=grid, warmup=warmup, extern_libs=libraries, **options)


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    do_not_specialize: list[int | str] | None = None,
    do_not_specialize_on_alignment: list[int | str] | None = None,
    launch_metadata: Callable[..., Any] | None = None,
    repr: Callable[..., Any] | None = None,
    version: Any = None,
    debug: bool | None = None,
    noinline: bool | None = None,
) -> Any:
    """`triton_dist.jit`: `triton.jit` with the same arguments, for kernels that know their rank and their peers."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(
            function,
            version=version,
            do_not_specialize=do_not_specialize,
            do_not_specialize_on_alignment=do_not_specialize_on_alignment,
            debug=debug,
            noinline=noinline,
            repr=repr,
            launch_metadata=launch_metadata,
        )

    return decorate if fn is None else decorate(fn)


class DeviceFunction(JITFunction[Any]):  # type: ignore[misc]
    """A function that kernels call: compiled from its body, emulated by `emulated`."""

    def __init__(self, function: Callable[..., Any], emulated: Callable[..., Any]) -> None:
        # a default that is a string reaches the body of a called function only as a constexpr
        defaults = getattr(function, "__defaults__", None) or ()
        given = tuple(tl.constexpr(value) if isinstance(value, str) else value for value in defaults)
        function.__defaults__ = given or None
        super().__init__(function)
        self.emulated = emulated

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The call of an interpreted kernel. Raises `NotEmulated` while no world runs."""
        bound = self.signature.bind(*args, **options)
        bound.apply_defaults()
        return self.emulated(*bound.args, **bound.kwargs)


def device(emulated: Callable[..., Any]) -> Callable[[Callable[..., Any]], DeviceFunction]:
    """Decorate the body of a device function whose emulated meaning is `emulated`, of the same parameters."""
    return lambda function: DeviceFunction(function, emulated)


@core.extern  # type: ignore[untyped-decorator]
def state_address(_semantic: Any = None) -> Any:
    """In a kernel: the address of this process's table of words (int64), 0 before `initialize_distributed`."""
    symbol = ("tilelink_triton_dist_state", core.dtype("int64"))
    return core.extern_elementwise("tilelink_triton_dist", "", [], {(): symbol}, is_pure=True, _semantic=_semantic)


@core.builtin  # type: ignore[untyped-decorator]
def as_tensor(x: Any, _semantic: Any = None) -> Any:
    """In a kernel: a number of the source as a tensor of Triton's choice, a tensor as it is."""
    return _semantic.to_tensor(x)
