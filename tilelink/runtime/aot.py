"""Compile the kernels of emitted source ahead of time, without a GPU: what CI can check of a target machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from lowering.host.gpu_fabric import GpuStream
from tilelink.runtime.load import operator_class

if TYPE_CHECKING:
    from triton.compiler import CompiledKernel

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
    copies: list[tuple[torch.Tensor, torch.Tensor]]  # (target, source)

    def launch(self, kernel: object, grid: tuple[int, ...], *arguments: object, **options: object) -> None:
        self.launches.append(RecordedLaunch(kernel, grid, arguments, options))

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.copies.append((target, source))

    copy_2d = copy

    def _nothing(self, *_: object, **__: object) -> None:
        """Waits and library calls need no compiler."""

    def captures(self) -> bool:
        return False

    write = wait_at_least = wait_equal = after = matmul = all_gather = reduce_scatter = all_reduce = send_receive = (
        _nothing
    )
    attention = put = put_word = _nothing


@dataclass(slots=True)
class _Symmetric:
    local: torch.Tensor
    peers: tuple[torch.Tensor, ...]
    pointers: torch.Tensor
    multicast: torch.Tensor
    everywhere: torch.Tensor  # what has the address in `multicast`


@dataclass(slots=True)
class RecordingFabric:
    """A fabric on which a call only writes down its launches."""

    num_ranks: int
    num_sms: int = 1 << 16  # nothing runs: any schedule fits
    rank: int = 0
    launches: list[RecordedLaunch] = field(default_factory=list)
    is_loading: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("meta"))
    allocated: list[_Symmetric] = field(default_factory=list)
    side_copies: list[tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=list
    )  # on other streams than the main one

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> _Symmetric:
        peers = tuple(torch.empty(shape, dtype=dtype, device="meta") for _ in range(self.num_ranks))
        table = torch.empty(self.num_ranks, dtype=torch.int64, device="meta")
        multicast = torch.empty(1, dtype=torch.int64, device="meta")
        self.allocated.append(_Symmetric(peers[self.rank], peers, table, multicast, torch.empty_like(peers[0])))
        return self.allocated[-1]

    def main(self) -> _Stream:
        return _Stream(self.launches, [])

    def stream(self, _: str) -> _Stream:
        return _Stream(self.launches, self.side_copies)

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
    return record_call(module, RecordingFabric(num_ranks))[0]


def record_call(module: ModuleType, fabric: RecordingFabric) -> tuple[list[RecordedLaunch], list[torch.Tensor]]:
    """Launches of one call of the operator in `module` on the rank of `fabric`, and the inputs of that call."""
    build = operator_class(module)
    operator = build(fabric)
    inputs = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in operator.INPUTS.values()]
    operator(*inputs)
    return fabric.launches, inputs


def run_time_arguments(launch: RecordedLaunch) -> list[object]:
    """What the compiled kernel is given, in the order of its parameters: all but constants, and integers that are 1, for which
    the just-in-time compiler makes a kernel of its own."""
    return [value for _, value, constant in _parameters(launch) if not constant]


def _parameters(launch: RecordedLaunch) -> list[tuple[Any, object, bool]]:
    """(parameter, value, whether the kernel is compiled for this value)."""
    kernel = launch.kernel
    names = kernel.arg_names  # type: ignore[attr-defined]
    given = dict(zip(names, launch.arguments, strict=False))
    given |= {name: value for name, value in launch.options.items() if name in names}
    found = []
    for parameter in kernel.params:  # type: ignore[attr-defined]
        value = given[parameter.name]
        one = type(value) is int and value == 1 and not parameter.do_not_specialize
        found.append((parameter, value, parameter.is_constexpr or one))
    return found


def compile_launch(launch: RecordedLaunch, arch: str) -> CompiledKernel:
    """Binary of one launch for `arch` ("sm_90", "gfx942"), specialised as the just-in-time compiler would.

    Raises what Triton raises.
    """
    import triton

    source, target, options = _source(launch, arch)
    return triton.compile(source, target=target, options=options)


def written_ir(launch: RecordedLaunch, arch: str) -> str:
    """Triton's IR of one launch before any pass: the operations in the order of the source. Raises what Triton raises."""
    return str(_Written(launch, arch).module.str_nodebug())


def assembly(launch: RecordedLaunch, arch: str) -> dict[str, str]:
    """What the compiler makes of one launch, by suffix ("ttgir", "ptx"), up to where it would be linked with a library that this
    machine may lack. Raises what Triton raises."""
    written, stages = _Written(launch, arch), {}  # type: tuple[_Written, dict[str, Any]]
    written.backend.add_stages(stages, written.options, written.language)
    made, metadata, texts = written.module, {"target": written.target, **vars(written.options)}, {}
    for suffix, stage in list(stages.items())[:-1]:
        made = stage(made, metadata)
        texts[suffix] = str(made)
    return texts


class _Written:
    """Triton's IR of one launch, and what its compiler is asked for."""

    def __init__(self, launch: RecordedLaunch, arch: str) -> None:
        from triton._C.libtriton import ir
        from triton.compiler.compiler import make_backend

        source, self.target, given = _source(launch, arch)
        self.backend = backend = make_backend(self.target)
        self.options = options = backend.parse_options(dict(given, **source.parse_options()))
        self.language = source.language
        self.context = context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
        self.module = source.make_ir(self.target, options, functions, modules, context)


def _source(launch: RecordedLaunch, arch: str) -> tuple[Any, Any, dict[str, object]]:
    """What the compiler is given: the kernel with its types and constants, the target, options."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    kernel = launch.kernel
    backend = "cuda" if arch.startswith("sm_") else "hip"
    target = GPUTarget(backend, int(arch[3:]) if backend == "cuda" else arch, _WARP[backend])
    signature, constants, attributes = {}, {}, {}
    for position, (parameter, value, constant) in enumerate(_parameters(launch)):
        if constant:
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
            continue
        signature[parameter.name] = _type_of(value)
        if _divisible(value) and not parameter.do_not_specialize:
            attributes[(position,)] = [["tt.divisibility", 16]]
    language = GluonASTSource if kernel.is_gluon() else ASTSource  # type: ignore[attr-defined]
    source = language(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    options = {name: value for name, value in launch.options.items() if name in ("num_warps", "num_stages")}
    if backend == "cuda":
        per_sm = launch.options.get("per_sm", 1)
        assert isinstance(per_sm, int), "a number of programs"
        options |= GpuStream.most_registers(per_sm, options)
    if hasattr(kernel, "extern_libs"):  # a dialect links its kernels with libraries
        options["extern_libs"] = kernel.extern_libs
    return source, target, options


def _type_of(value: object) -> str:
    from triton._utils import canonicalize_dtype

    if isinstance(value, torch.Tensor):
        return f"*{canonicalize_dtype(value.dtype)}"
    if isinstance(value, int):
        return "i32"
    block = list(value.block_shape)  # type: ignore[attr-defined]
    layout = f",{value.layout!r}" if hasattr(value, "layout") else ""  # of Gluon: how tiles lie in shared memory
    return f"tensordesc<{canonicalize_dtype(value.base.dtype)}{block}{layout}>"  # type: ignore[attr-defined]


def _divisible(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.storage_offset() * value.element_size() % 16 == 0
    return isinstance(value, int) and value % 16 == 0
