"""Threads of a program that do not all do the same: what a kernel knows of their numbers, and branches that some take.

A program runs as one. A scalar that depends on the number of a thread, such as `%tid.x` of inline assembly, has one value
for each thread: its type is that of a scalar, its data an array. Arithmetic goes lane by lane. In `if tid < n:` without
`else` the threads for which it holds are active; there inline assembly, loads through pointers that differ by thread, and
stores of one scalar, which thread 0 does, have a meaning. Elsewhere such a value is refused, `ThreadsDiffer`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl

from tilelink.emulator.errors import ThreadsDiffer
from tilelink.emulator.task import Branch, Mask

if TYPE_CHECKING:
    from tilelink.emulator.machine import Machine

WARP = 32


def differ(machine: Machine, operation: str, reason: str) -> ThreadsDiffer:
    """What is refused to the running program."""
    task = machine.scheduler.task.identity
    return ThreadsDiffer(operation=operation, reason=reason, rank=task.rank, task=task.name, place=machine.place())


def active(machine: Machine) -> Mask | None:
    """By thread, whether it runs what comes now; None: all do."""
    branches = machine.scheduler.task.branches
    return branches[-1].active if branches else None


def first_is_active(machine: Machine) -> bool:
    """Whether thread 0, which does the scalar stores of a program, runs what comes now."""
    mask = active(machine)
    return mask is None or bool(mask[0])


def meet(machine: Machine, operation: str) -> None:
    """All threads meet. Raises `ThreadsDiffer` in a branch, where that is undefined."""
    if active(machine) is not None:
        raise differ(machine, operation, "is called in a branch that some threads take only, where GPUs define nothing")
    machine.barrier()


def differs(x: Any) -> bool:
    """Whether a value of a kernel is a scalar that is another one in each thread."""
    return isinstance(x, tl.tensor) and x.handle.data.size > 1 and not x.type.is_block()


class Branches:
    """What a rewritten function asks at each `if`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def enter(self, test: Any, names: tuple[str, ...], obstacle: str) -> bool | Branch:
        """Whether to run the body, which assigns `names`. `obstacle`: why some threads cannot do so alone; else empty.

        Raises `ThreadsDiffer`.
        """
        if not differs(test):
            return bool(test)
        outer = active(self._machine)
        mask = test.handle.data.astype(bool)
        mask = mask if outer is None else mask & outer
        if not mask.any():
            return False
        if mask.all() or (outer is not None and np.array_equal(mask, outer)):
            return True
        known = sys._getframe(1).f_locals  # of the kernel
        kept = [name for name in names if name in known]
        if kept:
            obstacle = f"{kept[0]} is set in it, which has a value before"
        if obstacle:
            raise differ(self._machine, "an `if`", f"is for some threads only, and {obstacle}")
        branches = self._machine.scheduler.task.branches
        branches.append(Branch(mask, branches))
        return branches[-1]

    def leave(self, branch: bool | Branch) -> None:
        """Behind the body."""
        if isinstance(branch, Branch):
            branch.within.pop()

    def truth(self, x: Any) -> bool:
        """`bool(x)` of a tensor, for all that is no `if`. Raises `ThreadsDiffer`."""
        if differs(x):
            raise differ(self._machine, "a condition", "differs between threads")
        data = x.handle.data
        return bool(data) if data.size == 1 else True  # of a block as the stock interpreter has it
