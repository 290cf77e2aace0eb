"""Kernels of one call as the compiler gets them and as it makes them, with arguments whose addresses stand for allocations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import torch

from tilelink.compiled.assembly import CALLED
from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.events import STORAGE_BITS, Descriptor, Memory
from tilelink.runtime.aot import (
    RecordedLaunch,
    RecordingFabric,
    assembly,
    compile_launch,
    record_call,
    run_time_arguments,
    written_ir,
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """One launch: its IR before any pass and after those of the target, the assembly, and its arguments. Allocations have
    numbers: `constant` are inputs, `tables` addresses on all ranks, `written_beside` and `read_beside` what peers and side
    streams write and read while it runs."""

    name: str
    grid: int
    num_warps: int
    written: str
    ttgir: str
    assembly: str
    arguments: tuple[int | Descriptor, ...]
    constant: frozenset[int]
    tables: dict[int, tuple[int, ...]]
    written_beside: frozenset[int]
    read_beside: frozenset[int]

    def memory(self) -> Memory:
        return Memory(set(self.constant), dict(self.tables))

    @property
    def registers(self) -> list[int | Descriptor]:
        """Arguments by number of parameter: a descriptor of two dimensions comes with shape and strides."""
        found: list[int | Descriptor] = []
        for value in self.arguments:
            found += [value, 0, 0, 0, 0] if isinstance(value, Descriptor) else [value]
        return found


class _Addresses:
    """Numbers for allocations."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, torch.Tensor]] = {}

    def number(self, tensor: torch.Tensor) -> int:
        key = tensor.untyped_storage()._cdata
        if key not in self._known:
            self._known[key] = len(self._known) + 1, tensor  # the tensor is kept, so that its storage is no other's
        return self._known[key][0]

    def address(self, tensor: torch.Tensor) -> int:
        return (self.number(tensor) << STORAGE_BITS) + int(tensor.storage_offset()) * tensor.element_size()


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch of the call, which `prepare` compiles."""

    name: str
    prepare: Callable[[], Prepared]


class Launches:
    """The launches of one call of the operator in `module` on rank `rank`."""

    def __init__(self, module: ModuleType, num_ranks: int, rank: int, arch: str) -> None:
        fabric = RecordingFabric(num_ranks, rank=rank)
        self._launches, inputs = record_call(module, fabric)
        self._arch, self._addresses = arch, _Addresses()
        number, address = self._addresses.number, self._addresses.address
        self._constant = frozenset(map(number, inputs))
        self._tables = {number(one.pointers): tuple(map(address, one.peers)) for one in fabric.allocated}
        self._tables |= {number(one.multicast): (address(one.everywhere),) for one in fabric.allocated}
        symmetric = {number(peer) for one in fabric.allocated for peer in (*one.peers, one.everywhere)}
        self._written = frozenset(symmetric | {number(target) for target, _ in fabric.side_copies})
        self._read = frozenset(symmetric | {number(source) for _, source in fabric.side_copies})

    def __iter__(self) -> Iterator[Launch]:
        for launch in self._launches:
            yield Launch(launch.kernel.__name__, partial(self._prepared, launch))  # type: ignore[attr-defined]

    def _prepared(self, launch: RecordedLaunch) -> Prepared:
        """Raises CannotFollow for what the compiler refuses."""
        name = str(launch.kernel.__name__)  # type: ignore[attr-defined]
        try:
            written = written_ir(launch, self._arch)
            linked = any(function in written for function in CALLED)
            made = assembly(launch, self._arch) if linked else compile_launch(launch, self._arch).asm
        except Exception as error:  # Triton has no class for all that its passes raise
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise CannotFollow(what="its compilation", text=reason[-1]) from error
        return Prepared(
            name,
            launch.grid[0],
            int(launch.options.get("num_warps", 4)),  # type: ignore[call-overload]
            written,
            made["ttgir"],
            made.get("ptx", ""),
            tuple(_argument(value, self._addresses) for value in run_time_arguments(launch)),
            self._constant,
            self._tables,
            self._written,
            self._read,
        )


def _argument(value: object, addresses: _Addresses) -> int | Descriptor:
    if isinstance(value, torch.Tensor):
        return addresses.address(value)
    if isinstance(value, int):
        return int(value)
    base, block = value.base, tuple(value.block_shape)  # type: ignore[attr-defined]
    size = base.element_size()
    return Descriptor(addresses.address(base), base.stride(0) * size, size, (block[0], block[-1]))
