"""The world that runs now, for device functions, which a kernel calls without naming a world."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilelink.emulator.dialects.delivery import Deliveries
from tilelink.emulator.dialects.errors import NotEmulated
from tilelink.emulator.dialects.symmetry import Symmetry
from tilelink.emulator.dialects.team import Team

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from tilelink.emulator.machine import Machine


class Dialects:
    """What the dialects keep for one world. `semantic` makes the tensors of its kernels."""

    def __init__(self, machine: Machine, semantic: Any, *, multicast: bool) -> None:
        self.machine = machine
        self.semantic = semantic
        self.symmetry = Symmetry(machine.memory, multicast)
        self.deliveries = Deliveries(machine)
        self.team = Team(machine, self.deliveries)
        self.tables: list[torch.Tensor] = []  # tables of pointers, which kernels know by address only
        self.filled: set[int] = set()  # first addresses of the allocations that hold garbage, as `empty` leaves them

    @contextmanager
    def active(self) -> Iterator[None]:
        """For the time of one run of the world."""
        global _active
        outer, _active = _active, self
        try:
            yield
        finally:
            _active = outer
            self.deliveries.forget()


_active: Dialects | None = None


def active(function: str) -> Dialects:
    """Those of the world that runs. Raises `NotEmulated`."""
    if _active is None:
        raise NotEmulated(function=function)
    return _active
