"""The run that is under way, for functions that a kernel calls without naming a world."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilelink.emulator.machine import Machine


@dataclass(frozen=True, slots=True)
class Run:
    """`semantic` makes the tensors of the run's kernels."""

    machine: Machine
    semantic: Any


_under_way: Run | None = None


def under_way() -> Run | None:
    """The run of now; None where no world runs."""
    return _under_way


@contextmanager
def running(run: Run) -> Iterator[None]:
    """Inside, `run` is under way. What waits for the end of a run is called at the end."""
    global _under_way
    outer, _under_way = _under_way, run
    try:
        yield
    finally:
        _under_way = outer
        for ended in run.machine.on_end:
            ended()
