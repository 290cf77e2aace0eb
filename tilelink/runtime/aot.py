"""Compile the kernels of emitted source ahead of time, without a GPU: what CI can check of a target machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from tilelink.runtime.load import operator_class

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

_TYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.int32: "i32", torch.int64: "i64"}
_WARP = {"cuda": 32, "hip": 64}


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """A kernel launch as the host class made it; tensors have shapes but no memory."""

    kernel: object
    grid: tuple[int, ...]
    arguments: tuple[object, ...]
    options: dict[str, object]


@dataclass(slots=True)
class _Stream:
    launches: list[RecordedLaunch]

    def launch(self, kernel: object, grid: tuple[int, ...], *arguments: object, **options: object) -> None:
        self.launches.append(RecordedLaunch(kernel, grid, arguments, options))

    def _nothing(self, *_: object) -> None:
        """Copies, waits and library calls need no compiler."""

    def captures(self) -> bool:
        return False

    copy = write = wait_at_least = wait_equal = after = matmul = all_gather = reduce_scatter = all_reduce = _nothing


@dataclass(slots=True)
class _Symmetric:
    local: torch.Tensor
    peers: tuple[torch.Tensor, ...]
    pointers: torch.Tensor


@dataclass(slots=True)
class RecordingFabric:
    """A fabric on which a call only writes down its launches."""

    num_ranks: int
    num_sms: int = 1 << 16  # nothing runs: any schedule fits
    rank: int = 0
    launches: list[RecordedLaunch] = field(default_factory=list)
    is_loading: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("meta"))

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> _Symmetric:
        local = torch.empty(shape, dtype=dtype, device="meta")
        return _Symmetric(
            local, (local,) * self.num_ranks, torch.empty(self.num_ranks, dtype=torch.int64, device="meta")
        )

    def main(self) -> _Stream:
        return _Stream(self.launches)

    def stream(self, _: str) -> _Stream:
        return _Stream(self.launches)

    def agree(self, _: str) -> None: ...

    def run(self, enqueue: Callable[..., None], *arguments: object) -> None:
        enqueue(*arguments)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        self.is_loading = True
        yield
        self.is_loading = False
        self.launches.clear()  # what follows is the call that is asked for

    def barrier(self) -> None: ...


def record(module: ModuleType, num_ranks: int) -> list[RecordedLaunch]:
    """Launches of one call of the operator in `module`, on rank 0."""
    fabric = RecordingFabric(num_ranks)
    build = operator_class(module)
    operator = build(fabric)
    inputs = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in build.INPUTS.values()]  # type: ignore[attr-defined]
    operator(*inputs)
    return fabric.launches


def compile_launch(launch: RecordedLaunch, arch: str) -> CompiledKernel:
    """Binary of one launch for `arch` ("sm_90", "gfx942"), specialised as the just-in-time compiler would.

    Raises what Triton raises.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    from tilelink.triton_dist.kernels import EXTERN_LIBS, Kernel

    kernel = launch.kernel
    backend = "cuda" if arch.startswith("sm_") else "hip"
    target = GPUTarget(backend, int(arch[3:]) if backend == "cuda" else arch, _WARP[backend])
    names = kernel.arg_names  # type: ignore[attr-defined]
    given = dict(zip(names, launch.arguments, strict=False))
    given |= {name: value for name, value in launch.options.items() if name in names}
    signature, constants, attributes = {}, {}, {}
    for position, parameter in enumerate(kernel.params):  # type: ignore[attr-defined]
        value = given[parameter.name]
        if parameter.is_constexpr:
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
            continue
        signature[parameter.name] = _type_of(value)
        if _divisible(value) and not parameter.do_not_specialize:
            attributes[(position,)] = [["tt.divisibility", 16]]
    language = GluonASTSource if kernel.is_gluon() else ASTSource  # type: ignore[attr-defined]
    source = language(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    options = {name: value for name, value in launch.options.items() if name in ("num_warps", "num_stages")}
    if isinstance(kernel, Kernel):
        options["extern_libs"] = EXTERN_LIBS
    return triton.compile(source, target=target, options=options)


def _type_of(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"*{_TYPES[value.dtype]}"
    if isinstance(value, int):
        return "i32"
    block = list(value.block_shape)  # type: ignore[attr-defined]
    layout = f",{value.layout!r}" if hasattr(value, "layout") else ""  # of Gluon: how tiles lie in shared memory
    return f"tensordesc<{_TYPES[value.base.dtype]}{block}{layout}>"  # type: ignore[attr-defined]


def _divisible(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.storage_offset() * value.element_size() % 16 == 0
    return isinstance(value, int) and value % 16 == 0
