"""The fabric of ranks that put by NVSHMEM, through torch's symmetric memory."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton

from lowering.host.nvshmem_libraries import library
from lowering.host.symmetric_memory import Stream, SymmetricMemoryFabric

_CALLED = {  # by kernels here, and the bits of their arguments
    "nvshmemx_putmem_signal_nbi_block": (64, 64, 64, 64, 64, 32, 32),
    "nvshmemx_putmem_nbi_block": (64, 64, 64, 32),
    "nvshmemx_signal_op": (64, 64, 32, 32),
    "nvshmem_quiet": (),
}


def called_library() -> str:
    """Path of what kernels call of NVSHMEM's device library, and of nothing else: a kernel is linked with it in a tenth of the
    time. It is made once for each version, in the folder where Triton keeps kernels. Raises RuntimeError without a library."""
    whole = library("libnvshmem_device.bc")
    found, folder = os.stat(whole), triton.knobs.cache.dir
    path = os.path.join(folder, f"nvshmem_{found.st_size:x}_{found.st_mtime_ns:x}_{triton.__version__}.ll")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        part = f"{path}.{os.getpid()}"  # other ranks make it, too
        with open(part, "w") as file:
            file.write(_only_called(whole, f"{part}.mlir"))
        os.replace(part, path)
    return path


def _only_called(whole: str, scratch: str) -> str:
    """LLVM IR of these functions, which `scratch` calls."""
    from triton._C.libtriton import ir, llvm, nvidia

    lines = ["module {"]
    for name, sizes in _CALLED.items():
        lines.append(f"llvm.func @{name}({', '.join(f'i{size}' for size in sizes)}) -> i32")
    lines.append("llvm.func @callers(%a64: i64, %a32: i32) {")
    for name, sizes in _CALLED.items():
        given, types = (", ".join(f"{before}{size}" for size in sizes) for before in ("%a", "i"))
        lines.append(f"%of_{name} = llvm.call @{name}({given}) : ({types}) -> i32")
    with open(scratch, "w") as file:
        file.write("\n".join([*lines, "llvm.return", "}", "}"]))
    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    module = llvm.to_module(ir.parse_mlir_module(scratch, context), llvm.context())
    os.remove(scratch)
    llvm.link_extern_libs(module, [whole])  # only what is called
    text = re.sub(r"^define void @callers\(.*?^}\n", "", str(module), flags=re.MULTILINE | re.DOTALL)
    return re.sub(rf"^define internal (\w+ @(?:{'|'.join(_CALLED)})\()", r"define \1", text, flags=re.MULTILINE)


class NvshmemSymmetric:
    """One buffer on every rank: `local` of this rank, `peers[r]` of rank r and `pointers` int64[num_ranks] on the device. Ranks
    that only a network reaches have None and 0."""

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, group: dist.ProcessGroup
    ) -> None:
        self.local = symm_mem.empty(shape, dtype=dtype, device=device)
        self.local.zero_()
        # a collector that frees it on one rank waits for the others, which free it together: no rank ever does
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.local))
        handle = symm_mem.rendezvous(self.local, group)
        addresses = [address or 0 for address in handle.buffer_ptrs]
        self.peers = tuple(
            self.local if rank == handle.rank else handle.get_remote_tensor(rank, shape, dtype) if address else None
            for rank, address in enumerate(addresses)
        )
        self.pointers = torch.tensor(addresses, dtype=torch.int64, device=device)


class NvshmemStream(Stream):
    """Kernels are linked with NVSHMEM's device library, and told of the ranks when they are loaded."""

    def launch(self, kernel: Any, grid: tuple[int, ...], *args: object, per_sm: int = 1, **options: object) -> None:
        """Run `kernel` on `grid`, with `per_sm` resident programs on each SM."""
        if not self.fabric.is_loading:
            super().launch(kernel, grid, *args, per_sm=per_sm, **options)
            return
        options |= self.most_registers(per_sm, options)
        aligned = [arg.data_ptr() % 16 == 0 for arg in args if isinstance(arg, torch.Tensor)]
        libraries = {"libnvshmem_device": called_library()}
        compiled = kernel.warmup(*args, grid=grid, extern_libs=libraries, **options)
        compiled._init_handles()
        if "nvshmem" in compiled.asm["ptx"]:  # others are linked with nothing of it
            torch._C._distributed_c10d._nvshmemx_cumodule_init(compiled.module)
        self.fabric.compiled[(id(kernel), *options.values(), *aligned)] = compiled


class NvshmemFabric(SymmetricMemoryFabric):
    """The ranks of a torch process group, on GPUs of any hosts that NVSHMEM joins."""

    stream_type = NvshmemStream

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        if not symm_mem.is_nvshmem_available():
            raise RuntimeError(
                "this torch has no NVSHMEM: ranks of other nodes are reached by it. Install torch for CUDA 13 on Linux, "
                "which brings nvidia-nvshmem-cu13, or plan with the pin mover=LibraryRails(n), which needs NCCL alone."
            )
        symm_mem.set_backend("NVSHMEM")
        super().__init__(group)
        self._main = NvshmemStream(torch.cuda.current_stream(), self)

    def symmetric(self, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        return NvshmemSymmetric(shape, dtype, self.device, self.group)

    def main(self) -> Stream:
        handle = torch._C._cuda_getCurrentRawStream(self.device.index)
        if self._main.handle != handle:
            self._main = NvshmemStream(torch.cuda.current_stream(), self)
        return self._main
