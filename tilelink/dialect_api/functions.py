"""The API of Triton-distributed as data, and questions to it.

It holds what the public repository ByteDance-Seed/Triton-distributed offers at 1512a811; `Function.source` is the section
of our notes on it: 1 language, 2 SHMEM, 3 language_extra, 4 host. Where the notes are silent a `Function` says so.
`listing.py` has the names of all its modules, also of those about which the notes say nothing.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.dialect_api import extra, host, language, shmem
from tilelink.dialect_api.listing import LISTED
from tilelink.dialect_api.model import AMD, EVERY, ApiModule, Constant, Function, Symbol, Vendor

FUNCTIONS: tuple[Function, ...] = (*language.FUNCTIONS, *shmem.FUNCTIONS, *extra.FUNCTIONS, *host.FUNCTIONS)
CONSTANTS: tuple[Constant, ...] = shmem.CONSTANTS
_KNOWN: tuple[ApiModule, ...] = (
    ApiModule(language.ROOT, False),
    ApiModule(language.LANGUAGE, True),
    ApiModule("triton_dist.language.extra", False),
    ApiModule(shmem.SHMEM, True),
    ApiModule(extra.EXTRA, True),
    ApiModule("triton_dist.language.extra.cuda", False, (Vendor.NVIDIA,)),
    ApiModule("triton_dist.language.extra.hip", False, AMD),
    ApiModule(extra.CUDA, False, (Vendor.NVIDIA,)),
    ApiModule(extra.HIP, False, AMD),
    ApiModule("triton_dist.language.extra.cuda.libnvshmem_device", True, (Vendor.NVIDIA,), shmem.SHMEM),
    ApiModule("triton_dist.language.extra.hip.librocshmem_device", True, (Vendor.ROCSHMEM,), shmem.SHMEM),
    ApiModule("triton_dist.language.extra.hip.libmori_shmem_device", False, (Vendor.MORI,), shmem.SHMEM),
    ApiModule(host.UTILS, False),
    ApiModule("triton_dist.kernels", False),
    ApiModule("triton_dist.kernels.nvidia", False, (Vendor.NVIDIA,)),
    ApiModule("triton_dist.kernels.amd", False, AMD),
    ApiModule(host.OPS, False),
    ApiModule(host.CUDA_OPS, False, (Vendor.NVIDIA,)),
    ApiModule(host.HIP_OPS, False, AMD),
    ApiModule(host.PYROCSHMEM, False, (Vendor.ROCSHMEM,)),
)
MODULES: tuple[ApiModule, ...] = (
    *(replace(one, complete=one.complete or (one.path in LISTED and LISTED[one.path].whole)) for one in _KNOWN),
    *(ApiModule(path, listed.whole) for path, listed in LISTED.items() if path not in {one.path for one in _KNOWN}),
)

_BY_PATH = {f"{path}.{function.name}": function for function in FUNCTIONS for path in function.import_paths}
_MODULES = {module.path: module for module in MODULES}
_CONSTANTS = {constant.name: constant for constant in CONSTANTS}
_VALUES = {f"{module}.{name}" for module, name in host.NAMES}


def module(path: str) -> ApiModule | None:
    """The module of that import path, None if the API lists none."""
    return _MODULES.get(path)


def find(path: str) -> Function | None:
    """The function of a full import path, such as `triton_dist.language.wait`, by any module that offers it."""
    owner, _, name = path.rpartition(".")
    offered = _MODULES.get(owner)
    return _BY_PATH.get(f"{offered.same_as if offered and offered.same_as else owner}.{name}")


def find_constant(path: str) -> Constant | None:
    """The symbolic constant of a full import path, None if it is not one."""
    owner, _, name = path.rpartition(".")
    offered = _MODULES.get(owner)
    return _CONSTANTS.get(name) if offered and shmem.SHMEM in (offered.path, offered.same_as) else None


def exists(path: str) -> bool:
    """Whether a full import path is a module, function, constant or value of the API."""
    owner, _, name = path.rpartition(".")
    if path in _MODULES or path in _VALUES or (owner in LISTED and name in LISTED[owner]):
        return True
    return find(path) is not None or find_constant(path) is not None


def described_in(path: str) -> tuple[str, ...]:
    """The names of a module of which more is known than that they exist, in the order of the data."""
    owner = _MODULES[path].same_as or path
    functions = [key.rpartition(".")[2] for key in _BY_PATH if key.rpartition(".")[0] == owner]
    constants = [constant.name for constant in CONSTANTS] if owner == shmem.SHMEM else []
    values = [name for module_path, name in host.NAMES if module_path == owner]
    modules = [key.rpartition(".")[2] for key in _MODULES if key.rpartition(".")[0] == owner]
    return tuple(dict.fromkeys((*functions, *constants, *values, *modules)))


def names_of(path: str) -> tuple[str, ...]:
    """What can be imported from a module."""
    listed = LISTED[path].names if path in LISTED else ()
    return tuple(dict.fromkeys((*described_in(path), *listed)))


def of_vendor(vendor: Vendor) -> tuple[Function, ...]:
    """All functions that a vendor has, in the order of the data."""
    return tuple(function for function in FUNCTIONS if vendor in function.vendors)


def constants_of(symbol: Symbol, vendor: Vendor) -> tuple[Constant, ...]:
    """The legal names of a symbolic parameter; empty where the facts give none for that vendor."""
    return tuple(constant for constant in CONSTANTS if constant.symbol is symbol and constant.vendor is vendor)


def offered_on(path: str, vendor: Vendor) -> bool:
    """Whether a vendor has that module. Paths that the API does not list are offered everywhere."""
    known = _MODULES.get(path)
    return vendor in (known.vendors if known else EVERY)
