"""What the dialects keep for a machine, and the one that runs now, for device functions that name no world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilelink.compat.dialects.delivery import Deliveries
from tilelink.compat.dialects.errors import NotEmulated
from tilelink.compat.dialects.team import Team
from tilelink.emulator.running import under_way

if TYPE_CHECKING:
    import torch

    from tilelink.emulator.machine import Machine


class Dialects:
    """Of one machine, over all of its runs: `machine.companion(Dialects)`."""

    def __init__(self, machine: Machine) -> None:
        self.deliveries = Deliveries(machine)
        self.team = Team(machine, self.deliveries)
        self.tables: list[torch.Tensor] = []  # tables of pointers, which kernels know by address only
        self.filled: set[int] = set()  # first addresses of the allocations that hold garbage, as `empty` leaves them
        machine.on_end.append(self.deliveries.forget)


@dataclass(frozen=True, slots=True)
class Active:
    """The machine that runs, with what the dialects keep for it. `semantic` makes the tensors of its kernels."""

    machine: Machine
    semantic: Any
    deliveries: Deliveries
    team: Team


def active(function: str) -> Active:
    """Raises `NotEmulated` where no world runs."""
    run = under_way()
    if run is None:
        raise NotEmulated(function=function)
    kept = run.machine.companion(Dialects)
    return Active(run.machine, run.semantic, kept.deliveries, kept.team)
