"""Multicast addresses in an access: each stands for one place on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelink.emulator.errors import NoMulticast

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tilelink.emulator.machine import Machine


def shifts(machine: Machine, operation: str, addresses: NDArray[np.uint64], size: int) -> tuple[int, ...]:
    """What to add to multicast addresses of elements of `size` bytes, for the copy of each rank. Raises `NoMulticast`."""
    if not addresses.size:
        return (0,) * machine.num_ranks  # no lane is accessed
    first, end = int(addresses.min()), int(addresses.max()) + size
    multicast = machine.symmetry.multicast_of(first, end)
    if multicast is None:
        task = machine.scheduler.task.identity
        where = {"rank": task.rank, "task": task.name, "place": machine.place()}
        raise NoMulticast(operation=operation, found=f"address {first:#x}", reason=_reason(machine, first), **where)
    return tuple(start - multicast.start for start in multicast.copies)


def _reason(machine: Machine, address: int) -> str:
    if not machine.symmetry.has_multicast:
        return "the links of this world have no multicast"
    if machine.symmetry.multicast_of(address, address + 1) is not None:
        return "it reaches over the end of the multicast range"
    if machine.memory.owner(address) is not None:
        return f"it is {machine.memory.describe(address)}, one rank's own copy"
    return "it lies in no multicast range"
