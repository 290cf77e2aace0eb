"""The two accesses of a race, as a person reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelink.emulator.events import Kind, Scope, Semantic, Via
from tilelink.emulator.place import Place

if TYPE_CHECKING:
    from tilelink.emulator.events import Access, TaskId
    from tilelink.emulator.memory import Buffer

_VERBS = {Kind.LOAD: "loaded", Kind.STORE: "stored", Kind.ATOMIC: "changed by an atomic"}
_COPY_VERBS = {Kind.LOAD: "copied from", Kind.STORE: "overwritten by a copy", Kind.ATOMIC: "changed"}


@dataclass(frozen=True, slots=True)
class Touch:
    """One of the two accesses. For a stream `kernel` is empty and `program` (0, 0, 0)."""

    rank: int
    task: str  # "stream push" or "ag_gemm(3, 0, 0)"
    task_number: int  # `TaskId.number`
    kernel: str
    program: tuple[int, int, int]
    place: Place  # of a stream the host line that enqueued the operation
    via: Via
    kind: Kind
    changed: bool  # False: an atomic that left the word as it was, like a load
    scope: Scope  # of an atomic or a volatile access; nothing depends on that of others
    what: str  # "x_full[128, 0] of rank 2"
    number: int  # of the event, in global order; in a loop of its place, of the first access since the task released
    order: str  # "it last released signals[3] of rank 0 before that, at ..."

    @property
    def beyond(self) -> str:
        """What the scope ends before."""
        return "other programs" if self.scope is Scope.CTA else "other ranks"

    @property
    def verb(self) -> str:
        if self.kind is Kind.ATOMIC and not self.changed:
            return "read by an atomic"
        return (_COPY_VERBS if self.via in (Via.COPY, Via.PUT) else _VERBS)[self.kind]

    def __str__(self) -> str:
        source = f": `{self.place.text}`" if self.place.text else ""
        return (
            f"rank {self.rank}  {self.task}: {self.via.value} {self.kind.value} at {self.place}{source}\n"
            f"          {self.order}"
        )


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """A release or an acquire of a task, and the number of its event."""

    number: int
    access: Access

    def __str__(self) -> str:
        access = self.access
        spelled = "" if access.semantic is Semantic.NONE else f" ({access.semantic.value}, {access.scope.value})"
        return f"{describe_access(access)}{spelled} at {access.place}"


def kernel_of(task: TaskId) -> tuple[str, tuple[int, int, int]]:
    """("ag_gemm", (3, 0, 0)) for a program, ("", (0, 0, 0)) for a stream."""
    kernel, _, rest = task.name.partition(" group ")[0].partition("(")
    numbers = rest.rstrip(")").split(",")
    if not kernel.isidentifier() or len(numbers) != 3 or not all(number.strip().isdigit() for number in numbers):
        return "", (0, 0, 0)
    x, y, z = map(int, numbers)
    return kernel, (x, y, z)


def describe(address: int, buffer: Buffer | None, rank: int) -> str:
    """`signal[3] of rank 1`; memory in no known buffer is the task's own."""
    if buffer is not None and buffer.start <= address < buffer.end:
        return f"{buffer.element(address)} of rank {buffer.rank}"
    return f"a tensor of rank {rank} at {address:#x}"


def describe_access(access: Access) -> str:
    """What the first byte of an access belongs to."""
    return describe(access.start, access.buffer, access.task.rank)
