"""Kernels that are loaded late: a driver loads a kernel only while no other one runs on that GPU.

The first launch of a kernel compiles and loads it, and meanwhile the host thread enqueues nothing. It waits until no
program is resident on the GPU (measured: beside a kernel that spins, a load never ended). So the operations that host
code of a rank enqueues behind such a launch do not exist before the kernel is loaded, and a kernel that spins on one
of them hangs. `fabric.loading()` loads kernels before anything spins.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tilelink.emulator.operations import Launch, Operation
from tilelink.emulator.place import Place
from tilelink.emulator.protocols import constants_of

_Key = tuple[Hashable, tuple[tuple[str, object], ...]]


@dataclass(frozen=True, slots=True)
class Load:
    """A kernel that host code must load before it goes on."""

    kernel: str
    place: Place  # of its first launch

    def __str__(self) -> str:
        return f"load {self.kernel}"


class Loads:
    """The loaded kernels of each rank, and those still to be loaded, in the order of its host code.

    A kernel is a function with the values of its constexpr parameters. With `lazy` False every kernel counts as loaded.
    """

    def __init__(self, num_ranks: int, lazy: bool) -> None:
        self._lazy = lazy
        self._loaded: list[set[_Key]] = [set() for _ in range(num_ranks)]
        self.needed: list[list[Load]] = [[] for _ in range(num_ranks)]
        self.done = [0] * num_ranks  # how many of `needed` are loaded

    def load(self, rank: int, launch: Launch) -> None:
        """A launch under `fabric.loading()`."""
        if self._lazy:
            self._loaded[rank].add(_key(launch))

    def ticket(self, rank: int, operation: Operation, place: Place) -> int:
        """How many loads of `rank` must be done before host code has enqueued `operation`."""
        if self._lazy and isinstance(operation, Launch):
            key = _key(operation)
            if key not in self._loaded[rank]:
                self._loaded[rank].add(key)
                self.needed[rank].append(Load(operation.kernel.fn.__name__, place))
        return len(self.needed[rank])


def _key(launch: Launch) -> _Key:
    return launch.kernel.fn, constants_of(launch)
