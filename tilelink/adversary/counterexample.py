"""A refutation that a person can read: the class of bug, what happened in which order, and how to see it again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilelink.adversary.diagnose import diagnose
from tilelink.adversary.diagnosis import Diagnosis
from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import Outcome
from tilelink.emulator.errors import Deadlock, Race
from tilelink.emulator.place import NOWHERE, Place, is_in_dialects
from tilelink.emulator.report import TaskState

_ROWS = 16
_KERNELS = "# ---- kernels of "  # heads the section of an emitted file


@dataclass(frozen=True, slots=True)
class Event:
    """One row of the trace: who did what on which line."""

    number: int
    rank: int
    program: str
    file: str
    line: int
    text: str
    source: str  # the line itself

    def __str__(self) -> str:
        where = f"  {self.file}:{self.line}" if self.line else ""
        source = f"  `{self.source}`" if self.source else ""
        return f"  {self.number:>6}  rank {self.rank}  {self.program:<28} {self.text}{where}{source}"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """Why an operator is wrong. `message` is what the emulator said; `replay` runs the same trial again."""

    bug: str  # "class 15: …", or what is known where no class is
    number: int  # of the class, 0 where there is none
    rank: int
    file: str
    line: int
    source: str
    why: str
    message: str
    events: tuple[Event, ...]
    replay: str
    also: tuple[str, ...] = ()  # further classes of bugs, without which it would go wrong as well

    def lines(self) -> list[str]:
        where = f"{self.file}:{self.line}" if self.line else self.file
        source = f": `{self.source}`" if self.source else ""
        out = [
            self.bug,
            *self.also,
            f"  on rank {self.rank}{f' at {where}' if where else ''}{source}",
            f"  {self.why}",
            "",
        ]
        out += [f"  {line}" for line in self.message.splitlines()]
        if self.events:
            out += ["", "  step    who                                  did what"]
            out += [str(event) for event in self.events]
        return [*out, "", f"  again: {self.replay}"]

    def to_json(self) -> dict[str, object]:
        """Stable fields; `events` as objects of `step, rank, program, file, line, text`."""
        events = [
            {
                "step": event.number,
                "rank": event.rank,
                "program": event.program,
                "file": event.file,
                "line": event.line,
                "text": event.text,
            }
            for event in self.events
        ]
        return {
            "class": self.number,
            "bug": self.bug,
            "also": list(self.also),
            "rank": self.rank,
            "file": self.file,
            "line": self.line,
            "why": self.why,
            "message": self.message,
            "events": events,
            "replay": self.replay,
        }


def explain(subject: Subject, outcome: Outcome) -> Counterexample:
    """Diagnose a failed trial and put it into words."""
    error = outcome.error
    assert error is not None
    found = diagnose(subject, outcome)
    place = _own_line(found)
    return Counterexample(
        bug=found.headings[0],
        number=found.bug.number if found.bug is not None else 0,
        rank=found.rank,
        file=Path(place.file).name,
        line=place.line,
        source=place.text,
        why=found.why,
        message=f"{type(error).__name__}: {error}",
        events=_events(outcome),
        replay=f"{subject.command} --replay {outcome.trial.text}",
        also=found.headings[1:],
    )


def _own_line(found: Diagnosis) -> Place:
    """The line in a role or kernel, not that of the device helper in which it ended: helpers are not what is wrong.

    Of a kernel that is not the user's it is the line that launches it.
    """
    place = found.place
    while place.caller is not None and (place.caller.caller is not None or is_in_dialects(place)):
        place = place.caller
    return place.caller if place.caller is not None and _is_helper(place) else place


def _is_helper(place: Place) -> bool:
    """Whether an emitted file has the line in a device helper, which stands in front of its kernels."""
    path = Path(place.file)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    kernels = next((number for number, line in enumerate(lines, 1) if line.startswith(_KERNELS)), 0)
    return place.line < kernels


def _events(outcome: Outcome) -> tuple[Event, ...]:
    """Synchronisation and accesses of the tasks concerned, in the order of the run."""
    if outcome.trace is None:
        return ()
    error = outcome.error
    if isinstance(error, Race):
        rows = outcome.trace.around(error, _ROWS)
    elif isinstance(error, Deadlock):
        rows = outcome.trace.around(_stuck_tasks(error), _ROWS)
    else:
        return ()
    return tuple(
        Event(row.number, row.rank, row.task, _file(row.place), row.place.line, row.text, row.place.text)
        for row in rows
    )


def _file(place: Place) -> str:
    return "" if place is NOWHERE else Path(place.file).name


def _stuck_tasks(error: Deadlock) -> list[int]:
    """Numbers of a few tasks that wait, one for each thing waited for."""
    tasks = error.facts["tasks"]
    assert isinstance(tasks, tuple)
    chosen: dict[str, TaskState] = {}
    for task in tasks:
        if task.waits_for:
            chosen.setdefault(task.waits_for, task)
    return [task.number for task in list(chosen.values())[:4]]
