"""The modules that a file of the dialect imports, made of the shim's functions and put into `sys.modules`."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import NoReturn

from tilelink.compat.triton_dist import kernels
from tilelink.compat.triton_dist.device import extra, language, multimem, shmem
from tilelink.compat.triton_dist.host import common_ops, utils

ROOT = "triton_dist"
ROCSHMEM = "pyrocshmem"
_MARK = "__tilelink_shim__"

_LANGUAGE = ("consume_token", "notify", "num_ranks", "rank", "symm_at", "wait")
_PORTABLE = (
    "__syncthreads",
    "atomic_add",
    "atomic_cas",
    "ld",
    "num_threads",
    "num_warps",
    "st",
    "threads_per_warp",
    "tid",
)
_CUDA_ONLY = (
    *("__ballot_sync", "__shfl_down_sync_i32", "__shfl_sync_i32", "__shfl_up_sync_i32", "__shfl_xor_sync_i32"),
    *("arrive_inc", "atomic_add_per_warp", "fence", "globaltimer", "globaltimer_hi", "globaltimer_lo", "laneid"),
    *("ld_acquire", "ld_b32", "load_v2_b64", "load_v4_b32", "load_v4_s32", "load_v4_u32", "membar", "ntid"),
    *("pack_b32_v2", "red_release", "smid", "st_b32", "st_v2_u32", "st_v4_b32", "st_v4_u32", "tma_sync", "wait_eq"),
)
_MULTIMEM = tuple(name for name in vars(multimem) if name.startswith("multimem_"))
_SHMEM = tuple(
    name
    for name, value in vars(shmem).items()
    if isinstance(value, kernels.DeviceFunction) or name.startswith("NVSHMEM")
)
_UTILS = tuple(
    name
    for name, value in vars(utils).items()
    if (getattr(value, "__module__", "") == utils.__name__ and not name.startswith("rocshmem"))
    or name == "NVSHMEM_SIGNAL_DTYPE"
)


def _contents() -> dict[str, dict[str, object]]:
    """Names by module, below `triton_dist`; an empty name is the package itself."""
    portable = {name: getattr(extra, name) for name in _PORTABLE}
    cuda = portable | {name: getattr(extra, name) for name in _CUDA_ONLY}
    cuda |= {name: getattr(multimem, name) for name in _MULTIMEM}
    device = {name: getattr(shmem, name) for name in _SHMEM}
    operations = {name: getattr(common_ops, name) for name in common_ops.__all__}
    words = {name: getattr(extra, name) for name in ("fence", "globaltimer", "pack_b32_v2")}
    aliases = {name: operations.pop(name) for name in ("wait_eq", "set_signal")}
    return {
        "": {"jit": kernels.jit},
        "jit": {"jit": kernels.jit},
        "language": {name: getattr(language, name) for name in _LANGUAGE},
        "language.distributed_ops": {name: getattr(language, name) for name in _LANGUAGE},
        "language.extra": {},
        "language.extra.language_extra": portable,
        "language.extra.libshmem_device": device,
        "language.extra.cuda": {},
        "language.extra.cuda.language_extra": cuda,
        "language.extra.cuda.libnvshmem_device": device,
        "utils": {name: getattr(utils, name) for name in _UTILS},
        "kernels": {},
        "kernels.common_ops": aliases | words,
        "kernels.nvidia": {},
        "kernels.nvidia.common_ops": operations,
        # for files of the other vendor, on emulated ranks: the same words, under its names
        "language.extra.hip": {},
        "language.extra.hip.language_extra": portable,
        "kernels.amd": {},
        "kernels.amd.common_ops": {"_wait_eq_hip": common_ops.wait_eq, "_set_signal_hip": common_ops.set_signal},
    }


def install() -> bool:
    """Make `triton_dist` importable; whether it is the shim now. A real one is left alone, a second call does nothing."""
    if ROOT in sys.modules:
        return hasattr(sys.modules[ROOT], _MARK)
    if importlib.util.find_spec(ROOT) is not None:
        return False
    made = {name: _module(name, names) for name, names in _contents().items()}
    for name, module in made.items():
        sys.modules[module.__name__] = module
        parent, _, last = name.rpartition(".")
        if name and last not in vars(made[parent]):  # `triton_dist.jit` is the function, as in the original
            setattr(made[parent], last, module)
    if ROCSHMEM not in sys.modules and importlib.util.find_spec(ROCSHMEM) is None:
        name = "rocshmem_create_tensor_list_intra_node"
        sys.modules[ROCSHMEM] = _filled(ROCSHMEM, {name: getattr(utils, name)})
    return True


def uninstall() -> None:
    """Take the shim's modules out of `sys.modules`; a real `triton_dist` stays."""
    if hasattr(sys.modules.get(ROOT), _MARK):
        for name in [name for name in sys.modules if name == ROOT or name.startswith(f"{ROOT}.")]:
            del sys.modules[name]
        if hasattr(sys.modules.get(ROCSHMEM), _MARK):
            del sys.modules[ROCSHMEM]


def _module(name: str, names: dict[str, object]) -> ModuleType:
    return _filled(f"{ROOT}.{name}" if name else ROOT, names)


def _filled(full: str, names: dict[str, object]) -> ModuleType:
    module = ModuleType(full, "Triton-distributed on stock Triton: the shim of tilelink.")
    module.__path__ = []
    vars(module).update(names)
    setattr(module, _MARK, True)

    def missing(attribute: str) -> NoReturn:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        shown = ", ".join(sorted(names)) or "its submodules"
        raise AttributeError(
            f"{full}.{attribute} is not in the shim that runs the dialect on stock Triton.\nLegal: {shown}."
        )

    vars(module)["__getattr__"] = missing
    return module
