"""The table of live tasks in a `Deadlock` or `StepLimit`: who, on which line, waiting for what."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from greenlet import getcurrent  # type: ignore[import-untyped, unused-ignore]

from tilelink.emulator.place import NOWHERE, Place, place_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilelink.emulator.task import Task

_MOST_ROWS = 48


@dataclass(frozen=True, slots=True)
class TaskState:
    """One live task when a run was given up."""

    number: int  # of the task in its world
    rank: int
    name: str  # "stream push" or "ag_gemm(3, 0, 0)"
    kernel: str  # empty for a stream
    program: tuple[int, int, int]
    doing: str  # the operation of a stream, else empty
    place: Place  # of a stream the host line that enqueued; NOWHERE for a program that has not started
    waits_for: str  # empty: it could go on
    ranges: tuple[tuple[int, int], ...] = ()  # bytes that it waits for, half-open


def task_states(tasks: Iterable[Task]) -> tuple[TaskState, ...]:
    """The state of each task, by rank, streams first."""
    states = [_state(task) for task in tasks]
    return tuple(sorted(states, key=lambda state: (state.rank, state.kernel, state.program[::-1], state.name)))


def _state(task: Task) -> TaskState:
    green = task.greenlet
    assert green is not None
    # the running task has no suspended frame
    frame = sys._getframe() if green is getcurrent() else green.gr_frame
    place = place_of(frame, task.launched) if task.kernel else task.origin
    return TaskState(
        number=task.identity.number,
        rank=task.identity.rank,
        name=task.identity.name,
        kernel=task.kernel,
        program=task.program,
        doing=task.doing,
        place=place,
        waits_for=task.wait.text() if task.wait else "",
        ranges=task.wait.ranges if task.wait else (),
    )


def table(states: tuple[TaskState, ...]) -> str:
    """One row for each task; programs of a kernel that wait at one place for one thing share a row."""
    rows = [_row(tuple(group)) for _, group in groupby(states, key=_same_row)]
    lines = [line for row in rows[:_MOST_ROWS] for line in row]
    if len(rows) > _MOST_ROWS:
        lines.append(f"  ... and {len(rows) - _MOST_ROWS} more rows")
    return "\n".join(lines)


def _same_row(state: TaskState) -> tuple[object, ...]:
    own = "" if state.kernel else state.name
    return state.rank, state.kernel, own, state.place, state.waits_for


def _row(states: tuple[TaskState, ...]) -> list[str]:
    first = states[0]
    if not first.kernel:
        who = f"{first.name}, {first.doing}" if first.doing else first.name
    elif len(states) == 1:
        who = first.name
    else:
        who = f"{first.kernel}{first.program} to {states[-1].program}, {len(states)} programs"
    waits = f"waits for {first.waits_for}" if first.waits_for else "could go on"
    lines = [f"  rank {first.rank}  {who}: {waits}"]
    if first.place is not NOWHERE:
        lines.append(f"          at {first.place}: `{first.place.text}`")
    return lines
