"""What a device function got: numbers and addresses out of the tensors of a kernel, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import triton.language as tl

from tilelink.compat.dialects.active import Active, active
from tilelink.compat.dialects.errors import IllegalShmemArgument, IllegalSignal, NotSymmetric

if TYPE_CHECKING:
    from collections.abc import Mapping

_SIGNAL_BYTES = 8


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a device function by the running program."""

    dialects: Active
    operation: str  # as the kernel names it

    @property
    def rank(self) -> int:
        return self.dialects.machine.scheduler.task.identity.rank

    def where(self) -> dict[str, object]:
        """Who calls, and where: facts of every error."""
        machine = self.dialects.machine
        identity = machine.scheduler.task.identity
        return {"rank": identity.rank, "task": identity.name, "place": machine.place()}

    def refuse(self, parameter: str, value: object, legal: str) -> NoReturn:
        """Raises `IllegalShmemArgument`."""
        raise IllegalShmemArgument(
            operation=self.operation, parameter=parameter, value=value, legal=legal, **self.where()
        )

    def integer(self, parameter: str, x: Any, least: int | None = None) -> int:
        """A scalar as a Python integer. Raises `IllegalShmemArgument`."""
        if isinstance(x, tl.constexpr):
            x = x.value
        if isinstance(x, tl.tensor):
            if x.type.is_block() or not x.dtype.is_int():
                self.refuse(parameter, f"a value of type {x.type}", "one integer, the same in all threads")
            x = x.handle.data.item()
        if not isinstance(x, int):
            self.refuse(parameter, repr(x), "one integer, the same in all threads")
        if least is not None and x < least:
            self.refuse(parameter, x, f"integers of at least {least}")
        return x

    def pe(self, parameter: str, x: Any) -> int:
        """Raises `IllegalShmemArgument` for a rank that does not exist."""
        pe = self.integer(parameter, x)
        if not 0 <= pe < self.dialects.machine.num_ranks:
            self.refuse(parameter, pe, f"0 to {self.dialects.machine.num_ranks - 1}")
        return pe

    def choice(self, parameter: str, x: Any, legal: Mapping[int, str]) -> int:
        """One of the constants `legal`. Raises `IllegalShmemArgument`."""
        value = self.integer(parameter, x)
        if value not in legal:
            self.refuse(parameter, value, ", ".join(f"{name} ({number})" for number, name in legal.items()))
        return value

    def address(self, parameter: str, x: Any) -> int:
        """A scalar pointer, or an address as int64. Raises `IllegalShmemArgument`."""
        if isinstance(x, tl.tensor) and not x.type.is_block() and (x.dtype.is_ptr() or x.dtype.is_int()):
            return int(x.handle.data.item())
        found = f"a value of type {x.type}" if isinstance(x, tl.tensor) else repr(x)
        self.refuse(parameter, found, "one pointer, or an address as int64, the same in all threads")

    def copies(self, parameter: str, address: int) -> tuple[int, ...]:
        """Where a local symmetric address is on each rank. Raises `NotSymmetric`."""
        machine = self.dialects.machine
        found = self.dialects.machine.symmetry.place(address, self.rank)
        if isinstance(found, str):
            raise NotSymmetric(
                operation=self.operation,
                parameter=parameter,
                address=address,
                found=machine.memory.describe(address),
                reason=found,
                **self.where(),
            )
        offset, copies = found
        return tuple(start + offset for start in copies)

    def check_bytes(self, address: int, num_bytes: int) -> None:
        """Account for an access of `num_bytes` from an address. Raises `OutOfBounds`."""
        one = np.array([address] if num_bytes else [], dtype=np.uint64)
        self.dialects.machine.before(self.operation, one, num_bytes)

    def signal_word(self, x: Any) -> tuple[int, ...]:
        """Where a signal word is on each rank. Raises `IllegalSignal`, `NotSymmetric`, `OutOfBounds`."""
        address = self.address("sig_addr", x)
        found = ""
        if x.dtype.is_ptr() and x.dtype.element_ty not in (tl.int64, tl.uint64):
            found = f"of type {x.dtype.element_ty}"
        elif address % _SIGNAL_BYTES:
            found = f"at {address:#x}, which is no multiple of 8 bytes"
        if found:
            raise IllegalSignal(operation=self.operation, found=found, **self.where())
        copies = self.copies("sig_addr", address)
        self.check_bytes(address, _SIGNAL_BYTES)
        return copies


def call(operation: str) -> Call:
    """A call in the world that runs. Raises `NotEmulated`."""
    return Call(active(operation), operation)
