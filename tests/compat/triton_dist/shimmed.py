"""The hand-written kernels under the shim, and runs of a kernel on emulated ranks."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from tilelink.compat.triton_dist import install, on_rank
from tilelink.emulator import RaceDetector, World

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = Path(__file__).with_name("dialect_kernels.py")
COUNT = 64


@cache
def dialect() -> Any:
    """The module of hand-written kernels."""
    assert install()
    return load(FILE, "hand_written_dialect_kernels")


def load(file: Path, name: str) -> ModuleType:
    spec = spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def world(num_ranks: int, seed: int = 0, *, races: bool = False, **options: Any) -> World:
    observers = [RaceDetector(num_ranks)] if races else []
    return World(num_ranks, num_sms=options.pop("num_sms", 6), seed=seed, observers=observers, **options)


def on_all(emulated: World, host: Callable[[Any], Any]) -> list[Any]:
    """`host(group)` on each rank, in order."""
    results = []
    for fabric in emulated.fabrics:
        with on_rank(fabric) as held:
            results.append(host(held.group))
    return results


def symmetric(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A zeroed symmetric tensor of the rank whose host code runs."""
    tensor: torch.Tensor = dialect().nvshmem_create_tensor(shape, dtype)
    tensor.zero_()
    return tensor
