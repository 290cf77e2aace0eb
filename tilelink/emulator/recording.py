"""CUDA graphs: the operations of a capture, enqueued anew at each replay with the very same arguments."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelink.emulator.operations import After, Operation
from tilelink.emulator.place import Place


@dataclass(frozen=True, slots=True)
class Recorded:
    """One captured operation. The position of an `After` counts the operations that its stream had in the capture."""

    rank: int
    stream: str
    operation: Operation
    place: Place


@dataclass(slots=True, eq=False)
class Recording:
    """What host code enqueued inside `World.capture()`, in its order; `owner` is what that world knows itself by."""

    owner: object
    operations: list[Recorded] = field(default_factory=list)
    open: bool = True  # the capture has not ended

    def __repr__(self) -> str:
        return f"<recording of {len(self.operations)} operations>"

    def add(self, rank: int, stream: str, operation: Operation, place: Place) -> None:
        self.operations.append(Recorded(rank, stream, operation, place))

    def count(self, rank: int, stream: str) -> int:
        """How many operations a stream has in this recording."""
        return sum(one.rank == rank and one.stream == stream for one in self.operations)

    def unjoined(self, rank: int, main: str) -> str:
        """A side stream of `rank` whose last operation nothing on `main` comes after, or empty."""
        joined, todo = {main}, [main]
        while todo:
            name = todo.pop()
            waits = [o.operation for o in self.operations if (o.rank, o.stream) == (rank, name)]
            for wait in waits:
                whole = isinstance(wait, After) and wait.position >= self.count(rank, wait.stream)
                if isinstance(wait, After) and whole and wait.stream not in joined:
                    joined.add(wait.stream)
                    todo.append(wait.stream)
        return next((name for name in self.streams(rank) if name not in joined), "")

    def streams(self, rank: int) -> list[str]:
        """The streams of `rank` in it, in the order of their first operations."""
        return list(dict.fromkeys(one.stream for one in self.operations if one.rank == rank))
