"""How a `@triton.jit` function of stock Triton 3.6.0 is executed on the CPU, without TRITON_INTERPRET.

For the time of one run the language is patched so that its operations go to a `MemoryBuilder`, and a call of
a JITFunction goes to its rewritten Python function; afterwards everything is as before and the same functions
can be compiled ahead of time.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import triton.compiler.code_generator  # noqa: F401  # now: imported in an emulated run it would keep patched functions
import triton.language as tl
from triton._C.libtriton import interpreter as native
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction

from tilelink.emulator import blocks, extra, shortcuts
from tilelink.emulator.access import AccessSemantic, MemoryBuilder
from tilelink.emulator.errors import WorldBusy
from tilelink.emulator.gluon import language as gluon
from tilelink.emulator.numerics import Handle
from tilelink.emulator.operators import operators
from tilelink.emulator.place import MARK
from tilelink.emulator.reductions import Reductions
from tilelink.emulator.rewriting import AGAIN, CONSTANT, END_IF, ENTER, IF, LEAVE, VALUE, define, globals_of
from tilelink.emulator.threads import Branches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tilelink.emulator.machine import Machine

    Patch = tuple[object, str, object]

_ABSENT = object()
_BUILTIN_WRAPPER = tl.core.builtin(lambda: None).__code__
_running = False


class Interpreter:
    """The functions of one run. Usable only inside `patched()`."""

    def __init__(self, machine: Machine) -> None:
        builder = MemoryBuilder(machine)
        builder.options = replace(builder.options, sanitize_overflow=False)  # a check of each addition, off on GPUs
        self.semantic = AccessSemantic(builder)
        self._functions: dict[object, Callable[..., object]] = {}
        self._modules: dict[int, dict[str, object]] = {}
        spins, self._branches = machine.spins, Branches(machine)
        self._names: dict[str, object] = {
            MARK: True,
            VALUE: self.value,
            CONSTANT: _constant,
            ENTER: spins.enter,
            AGAIN: spins.again,
            LEAVE: spins.leave,
            IF: self._branches.enter,
            END_IF: self._branches.leave,
            "range": self.range,
        }
        self._warps = extra.warps(machine)
        self._patches = self._language_patches()
        self._replaced = {**extra.STANDS_FOR, **gluon.Gluon(machine, self.semantic, self.call).replaced()}
        self._replaced |= self._by_object()

    @contextmanager
    def patched(self) -> Iterator[None]:
        """The language of this run. Raises `WorldBusy` when another run has it."""
        global _running
        if _running:
            raise WorldBusy
        _running = True
        saved = [(owner, name, vars(owner).get(name, _ABSENT)) for owner, name, _ in self._patches]
        try:
            for owner, name, value in self._patches:
                setattr(owner, name, value)
            yield
        finally:
            for owner, name, value in reversed(saved):
                if value is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, value)
            _running = False

    def function(self, jit: Any) -> Callable[..., object]:
        """The rewritten Python function of a JITFunction."""
        # keyed by the Python function: the hash of a JITFunction walks the language, which is patched
        found = self._functions.get(jit.fn)
        if found is None:
            found = self._functions[jit.fn] = define(jit, self._visible(jit))
        return found

    def call(self, jit: Any, *args: object, **kwargs: object) -> object:
        return self.function(jit)(*args, **kwargs)

    def value(self, x: Any) -> Any:
        """What an assignment stores: numbers become tensors, so that `//` and `%` truncate as on the GPU."""
        if type(x) is tl.tensor:
            return x
        if isinstance(x, tl.constexpr):
            x = x.value
        return self.semantic.to_tensor(x, False)

    def argument(self, x: Any) -> Any:
        """A runtime argument of a kernel as the kernel sees it."""
        if isinstance(x, tl.constexpr):
            x = x.value
        if shortcuts.small(x):
            return self.semantic.scalar_constant(x, tl.int32)
        if type(x) is torch.Tensor:
            pointer = shortcuts.pointer_to(x.dtype)
            return tl.tensor(Handle(np.array([x.data_ptr()], np.uint64), pointer), pointer)
        if isinstance(x, float):
            return self.semantic.to_tensor(x)
        if type(x) is tuple:
            return tuple(map(self.argument, x))
        described = gluon.argument(x)
        return stock._implicit_cvt(x) if described is x else described

    def range(self, start: Any, stop: Any = None, step: Any = None, **_: object) -> Iterator[Any]:
        """`range` and `tl.range`: the loop variable is a runtime integer; hints mean nothing here."""
        if stop is None:
            start, stop = 0, start
        bounds = (start, stop, 1 if step is None else step)
        wide = any(isinstance(bound, tl.tensor) and bound.dtype.int_bitwidth == 64 for bound in bounds)
        dtype = tl.int64 if wide else tl.int32
        for index in range(*map(_index, bounds)):
            yield self.semantic.scalar_constant(index, dtype)

    def _visible(self, jit: Any) -> dict[str, object]:
        if jit.fn.__closure__:
            return globals_of(jit, self._names, self._replaced)
        module = self._modules.get(id(jit.fn.__globals__))
        if module is None:
            module = globals_of(jit, self._names, self._replaced | self._of_file(jit.fn.__globals__))
            self._modules[id(jit.fn.__globals__)] = module
        return module

    def _of_file(self, names: dict[str, Any]) -> dict[int, object]:
        """What stands for functions of a library that the file of a kernel declares, by their `id`."""
        own = (one for one in names.values() if getattr(one, "__code__", None) is _BUILTIN_WRAPPER)
        return {id(one): self._bound(one) for one in own if _undecorated(one).__globals__ is names}

    def _language_patches(self) -> list[Patch]:
        recorder = _Recorder()
        bound: dict[int, Callable[..., object]] = {}  # most are in several modules
        for owner, name, _, member in _builtins():
            if id(member) not in bound:
                bound[id(member)] = self._bound(member)
            recorder.set_attr(owner, name, self._warps.get(name) or bound[id(member)])
        members = {name: member for owner, name, _, member in _builtins() if owner is tl.tensor}
        for name, operator in operators(lambda name: self._bound(members[name])):
            recorder.set_attr(tl.tensor, name, operator)
        for module in (tl, tl.core):
            stock._patch_lang_core(module, recorder)
        stock._patch_lang_tensor(tl.tensor, recorder)
        reductions = Reductions(self.call)
        recorder.set_attr(tl.tensor, "reduce", lambda x, *args, **kwargs: reductions.reduce(x, *args, **kwargs))
        recorder.set_attr(tl.tensor, "associative_scan", lambda x, *a, **k: reductions.scan(x, *a, **k))
        for module in (tl, tl.core):
            recorder.set_attr(module, "reduce", reductions.reduce)
            recorder.set_attr(module, "associative_scan", reductions.scan)
            recorder.set_attr(module, "range", self.range)
            recorder.set_attr(module, "static_range", _static_range)
        recorder.set_attr(tl.tensor, "__index__", _index)
        recorder.set_attr(tl.tensor, "__bool__", lambda x: self._branches.truth(x))
        recorder.set_attr(tl.tensor, "__init__", shortcuts.make_tensor)
        recorder.set_attr(tl.block_type, "__init__", shortcuts.make_block_type)
        recorder.set_attr(tl.dtype, "__eq__", shortcuts.same_type)
        recorder.set_attr(stock, "_get_np_dtype", shortcuts.numpy_type)
        recorder.set_attr(stock, "TensorHandle", Handle)
        recorder.set_attr(stock.TensorDescHandle, "materialize_pointers", blocks.tile_pointers)
        recorder.set_attr(native, "load", blocks.load)
        recorder.set_attr(native, "store", blocks.store)
        recorder.set_attr(JITFunction, "__call__", lambda jit, *args, **kwargs: self.call(jit, *args, **kwargs))
        return list(recorder.patches.values())

    def _by_object(self) -> dict[int, object]:
        """What stands for each builtin, by its `id`: a kernel may know it by a name of its own."""
        patched = {(id(owner), name): value for owner, name, value in self._patches}
        return {id(original): patched[id(owner), name] for owner, name, original, _ in _builtins()}

    def _bound(self, member: Any) -> Callable[..., object]:
        """A builtin of the language that uses this run's semantic."""
        semantic = self.semantic

        def bound(*args: object, **kwargs: object) -> object:
            kwargs["_semantic"] = semantic
            return member(*args, **kwargs)

        return bound


@cache
def _builtins() -> tuple[tuple[object, str, Any, Any], ...]:
    """Owner, name and function of each builtin of the language, and what it decorates."""
    return tuple(
        (owner, name, member, _undecorated(member))
        for owner in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base, *extra.MODULES)
        for name, member in inspect.getmembers(owner, tl.core.is_builtin)
    )


def _undecorated(member: Any) -> Any:
    while getattr(member, "__code__", None) is _BUILTIN_WRAPPER:
        member = member.__wrapped__
    return member


class _Recorder:
    """Takes what would be patched, without doing it; a later value replaces an earlier one."""

    def __init__(self) -> None:
        self.patches: dict[tuple[int, str], Patch] = {}

    def set_attr(self, owner: object, name: str, value: object) -> None:
        self.patches[id(owner), name] = (owner, name, value)


def _index(x: Any) -> int:
    if isinstance(x, tl.constexpr):
        x = x.value
    return int(x.handle.data.item()) if isinstance(x, tl.tensor) else int(x)


def _constant(x: Any) -> Any:
    return x.value if isinstance(x, tl.constexpr) else x


def _static_range(start: Any, stop: Any = None, step: Any = 1) -> range:
    """Compile-time loop: its variable is a plain integer."""
    return range(_index(start)) if stop is None else range(_index(start), _index(stop), _index(step))
