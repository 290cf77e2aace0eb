"""The targets: stock Triton, and Triton-distributed on NVIDIA and on AMD GPUs."""

from __future__ import annotations

from dataclasses import replace

from lowering.dialect import Dialect, Reach
from tilelink.errors import TargetNotForGpu, UnknownTarget, did_you_mean

TARGETS = ("triton", "triton-distributed")
NVSHMEM = "triton-nvshmem"  # of schedules over several nodes: stock Triton, and puts by NVSHMEM

_MODULES = ("argparse", "contextlib", "functools", "json", "sys", "time")


def _standard(*more: str) -> str:
    modules = "".join(f"import {name}\n" for name in sorted((*_MODULES, *more)))
    return f"""from __future__ import annotations

{modules}from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode
"""


TRITON_VERSION = "3.6.0"


def _triton(*more: str) -> str:
    return f"""{_standard("os", "threading", "weakref", *more)}import torch.distributed._symmetric_memory as symm_mem
import triton

TRITON = "{TRITON_VERSION}"  # private calls of Triton, and Gluon, differ between versions
if triton.__version__.partition("+")[0] != TRITON:
    raise ImportError(
        f"this file is for Triton {{TRITON}}, whose private calls it uses; installed is {{triton.__version__}}. "
        f"Install triton=={{TRITON}}, or set TRITON in this file to the version at hand and run its self-check."
    )

import triton.experimental.gluon.language as gl
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as SharedDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

try:
    import cuda.bindings.driver as driver
except ImportError:  # copies then go through torch, and streams cannot wait for words of memory
    driver = None
"""


_DISTRIBUTED = f"""{_standard("ctypes", "os", "sysconfig")}import triton
import triton.language as tl
import triton_dist
import triton_dist.language as dl
from triton.tools.tensor_descriptor import TensorDescriptor
"""

_NVIDIA = """from triton_dist.kernels.nvidia.common_ops import _memcpy_async_cuda, _set_signal_cuda, _wait_eq_cuda
from triton_dist.language.extra import libshmem_device
from triton_dist.language.extra.language_extra import __syncthreads, ld
from triton_dist.utils import (
    finalize_distributed,
    initialize_distributed,
    launch_cooperative_grid_options,
    nvshmem_create_tensors,
)
"""

_AMD = """import pyrocshmem
from triton_dist.kernels.amd.common_ops import _set_signal_hip, _wait_eq_hip
from triton_dist.language.extra.language_extra import __syncthreads, atomic_add, ld, st, tid
from triton_dist.utils import finalize_distributed, initialize_distributed, launch_cooperative_grid_options
"""

_PORTABLE_HELPERS = ("packets", "tiles", "math", "attention", "states", "ends", "routing", "own_rows", "places")
_DISTRIBUTED_ON_NVIDIA = ("nvidia", "lines", "multicast", "distributed_puts", "distributed_multicast")
_ON_NVIDIA = ("nvshmem_libraries", "distributed_nvidia")  # fabrics of Triton-distributed
_FABRICS = ("inputs", "ids", "pool", "library", "gpu_fabric")
_JOIN = (
    "if not dist.is_initialized():",
    '    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
    '    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))',
    "fabric = SymmetricMemoryFabric()",
)
TITLES = {
    "NvshmemFabric": "fabric: torch symmetric memory over NVSHMEM",
    "SymmetricMemoryFabric": "fabric: torch symmetric memory",
    "MulticastFabric": "fabric: torch symmetric memory with multicast",
    "NvshmemMulticastFabric": "fabric: torch symmetric memory over NVSHMEM, with multicast inside of nodes",
    "HostsFabric": "fabric: torch symmetric memory on each host, NCCL between hosts",
    "TritonDistFabric": "fabric: the runtime of Triton-distributed",
    "AmdFabric": "fabric: none for AMD GPUs yet",
}
NO_HOST_CODE = "It does not run on GPUs: tilelink has no host code for AMD GPUs yet. Emulated ranks run it."
NO_GPUS_YET = "Emulated ranks have run it; no GPUs have, for want of multicast."
UNTRIED = "Nothing has run its host code on AMD GPUs yet."


def _by_multicast(stock: Dialect, file: str, fabric: str, over_nodes: bool) -> Dialect:
    """`stock`, on a fabric whose memory has addresses of all ranks of a node at once."""
    helpers, fabrics = (*stock.helpers, "multicast"), (*stock.fabrics, "at_once", file)
    opens = (*_JOIN[:-1], f"fabric = {fabric}()")
    made = replace(stock, helpers=helpers, fabrics=fabrics, fabric=fabric, opens=opens)
    return replace(made, caveat=NO_GPUS_YET, multicast=frozenset({over_nodes}))


def dialect(target: str, arch: str, *, sends: bool = False, multicasts: bool = False) -> Dialect:
    """The spelling of `target` for GPUs of `arch`; if a library `sends` to other hosts, with the memory of peers on the own one;
    if a kernel `multicasts`, with an address of all ranks at once. Raises UnknownTarget or TargetNotForGpu."""
    known = (*TARGETS, NVSHMEM)
    if target not in known:
        raise UnknownTarget(target=target, hint=did_you_mean(target, known), known=", ".join(known))
    nvidia = arch.startswith("sm_")
    if target == NVSHMEM and not nvidia:
        raise TargetNotForGpu(target=target, arch=arch, legal=", ".join(TARGETS))
    if target == NVSHMEM:
        stock = dialect("triton", arch)
        put = replace(
            stock,
            target=target,
            compiler=f"{stock.compiler} and NVSHMEM",
            word="torch.int64",
            helpers=(*stock.helpers, "nvshmem"),
            imports=_triton("ctypes", "re", "sysconfig"),
            fabrics=(*stock.fabrics, "nvshmem_libraries", "nvshmem"),
            fabric="NvshmemFabric",
            opens=(*_JOIN[:-1], "fabric = NvshmemFabric()"),
            gluon=False,
            puts=True,
        )
        return _by_multicast(put, "nvshmem_multicast", "NvshmemMulticastFabric", True) if multicasts else put
    if target == "triton" and sends and nvidia:
        stock = dialect(target, arch)
        imports, fabrics = _triton("socket"), (*stock.fabrics, "hosts")
        opens = (*_JOIN[:-1], "fabric = HostsFabric()")
        return replace(stock, imports=imports, fabrics=fabrics, fabric="HostsFabric", opens=opens)
    if target == "triton" and multicasts and nvidia:
        return _by_multicast(dialect(target, arch), "multicast", "MulticastFabric", False)
    if target == "triton":
        return Dialect(
            target=target,
            compiler=f"Triton {TRITON_VERSION}",
            reach=Reach.TABLE,
            jit="triton.jit",
            word="torch.int32",
            helpers=("barrier", "counts", "signals", *_PORTABLE_HELPERS, *(("nvidia", "lines") if nvidia else ())),
            imports=_triton(),
            fabrics=(*_FABRICS, "symmetric_memory") if nvidia else ("inputs", "ids", "pool", "amd"),
            fabric="SymmetricMemoryFabric" if nvidia else "AmdFabric",
            caveat="" if nvidia else NO_HOST_CODE,
            opens=_JOIN if nvidia else ("fabric = AmdFabric()",),
            closes="dist.destroy_process_group()",
            stream_wait="wait_at_least",
            launch_options="",
            gluon=nvidia,
            puts=False,
            tokens=False,
        )
    return Dialect(
        target=target,
        compiler="Triton-distributed",
        reach=Reach.SYMMETRIC,
        jit="triton_dist.jit",
        word="torch.int64",
        helpers=(
            *("barrier", "counts", "distributed", *_PORTABLE_HELPERS),
            *(_DISTRIBUTED_ON_NVIDIA if nvidia else ("distributed_amd",)),
        ),
        imports=_DISTRIBUTED + (_NVIDIA if nvidia else _AMD),
        fabrics=(*_FABRICS, *(_ON_NVIDIA if nvidia else ("distributed_amd",)), "distributed"),
        fabric="TritonDistFabric",
        caveat=UNTRIED if not nvidia else NO_GPUS_YET if multicasts else "",
        opens=("fabric = TritonDistFabric(initialize_distributed(arguments.seed))",),
        closes="finalize_distributed()",
        stream_wait="wait_equal",
        launch_options="**launch_cooperative_grid_options()",
        gluon=False,
        puts=nvidia,
        tokens=True,
        multicast=frozenset({False, True} if nvidia else ()),
    )
