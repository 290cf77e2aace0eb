"""What `tilelink verify` says of an operator: its kinds, their exit codes, and what keeps runs from a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tilelink.adversary.counterexample import Counterexample
from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import Outcome
from tilelink.emulator.errors import StepLimit, Unsupported
from tilelink.emulator.place import NOWHERE, Place
from tilelink.emulator.report import TaskState
from topologies.errors import UserError


class VerdictKind(Enum):
    PROVED = "proved"  # of a schedule, and no run of its source refutes it
    NOT_REFUTED = "not refuted"  # every run was right, in value and in order
    REFUTED = "refuted"  # by a finding of the proof or by a counterexample
    NOT_CHECKED = "not checked"  # the emulator does not know something that the file uses
    INCONCLUSIVE = "inconclusive"  # a run was given up before it could show anything

    @property
    def exit_code(self) -> int:
        """0: nothing is wrong, 1: something is, 2: nobody knows."""
        match self:
            case VerdictKind.PROVED | VerdictKind.NOT_REFUTED:
                return 0
            case VerdictKind.REFUTED:
                return 1
            case VerdictKind.NOT_CHECKED | VerdictKind.INCONCLUSIVE:
                return 2


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why runs say nothing of an operator: neither that it is right nor that it is wrong."""

    kind: VerdictKind  # NOT_CHECKED or INCONCLUSIVE
    what: str  # what the runs met
    rank: int
    file: str
    line: int  # 0 where no line is to blame
    source: str  # the line itself
    hint: str  # what to write or to ask for instead
    replay: str

    def lines(self) -> list[str]:
        where = f"{self.file}:{self.line}" if self.line else self.file
        source = f": `{self.source}`" if self.source else ""
        out = [f"  on rank {self.rank} at {where}{source}"] if where else []
        out += [f"  {line}" for line in self.what.splitlines()]
        out += [f"  {line}" for line in self.hint.splitlines()]
        return [*out, f"  again: {self.replay}"]

    def to_json(self) -> dict[str, object]:
        """Stable fields: `kind, what, rank, file, line, source, hint, replay`."""
        fields = {name: getattr(self, name) for name in ("what", "rank", "file", "line", "source", "hint", "replay")}
        return {"kind": self.kind.value, **fields}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `trials` runs showed. `counterexample`, if one of them refutes; `obstacle`, if one could not be carried out."""

    name: str
    num_ranks: int
    trials: int
    steps: int  # switches and memory accesses of all runs
    seconds: float
    compared: bool  # with a reference
    counterexample: Counterexample | None
    obstacle: Obstacle | None = None
    left_out: tuple[str, ...] = ()  # kinds of calls that no run made, as the file asks

    @property
    def kind(self) -> VerdictKind:
        """NOT_REFUTED, REFUTED, NOT_CHECKED or INCONCLUSIVE."""
        if self.counterexample is not None:
            return VerdictKind.REFUTED
        return self.obstacle.kind if self.obstacle is not None else VerdictKind.NOT_REFUTED

    @property
    def refuted(self) -> bool:
        return self.counterexample is not None

    def lines(self) -> list[str]:
        ranks = f"{self.num_ranks} emulated ranks"
        effort = f"{self.trials} adversarial runs, {self.steps} steps, {self.seconds:.1f} s"
        if self.counterexample is not None:
            return [f"refuted: {self.name}, {ranks}, {effort}", *self.counterexample.lines()]
        if self.obstacle is not None:
            return [f"{self.kind.value}: {self.name}, {ranks}, {effort}", *self.obstacle.lines()]
        results = "results equal to the reference" if self.compared else "no reference to compare with"
        said = [f"no run refutes {self.name}: {ranks}, {effort}; no race, no hang, {results}"]
        return said + [f"  not run: {', '.join(self.left_out)}"] * bool(self.left_out)


def kind_of(outcome: Outcome) -> VerdictKind:
    """What one run says: NOT_REFUTED, REFUTED, NOT_CHECKED or INCONCLUSIVE."""
    match outcome.error:
        case None:
            return VerdictKind.NOT_REFUTED
        case Unsupported():
            return VerdictKind.NOT_CHECKED
        case StepLimit():
            return VerdictKind.INCONCLUSIVE
        case _:
            return VerdictKind.REFUTED


def obstacle(subject: Subject, outcome: Outcome, kind: VerdictKind) -> Obstacle:
    """`outcome.error` is set, and `kind` is NOT_CHECKED or INCONCLUSIVE."""
    error = outcome.error
    assert error is not None
    rank, place = _whereabouts(error)
    what, _, hint = str(error).partition("\n")
    if "table" in error.facts:  # what every task does belongs to the fact
        table, _, hint = hint.rpartition("\n")
        what = f"{what}\n{table}"
    return Obstacle(
        kind=kind,
        what=what,
        rank=rank,
        file=Path(place.file).name,
        line=place.line,
        source=place.text,
        hint=hint,
        replay=f"{subject.command} --replay {outcome.trial.text}",
    )


def _whereabouts(error: UserError) -> tuple[int, Place]:
    """The rank and the line of an error; of a run that was given up, those of a task that still ran."""
    tasks = [task for task in _tasks(error) if not task.waits_for] or _tasks(error)
    if tasks:
        return tasks[0].rank, tasks[0].place
    rank, place = error.facts.get("rank", 0), error.facts.get("place", NOWHERE)
    return rank if isinstance(rank, int) else 0, place if isinstance(place, Place) else NOWHERE


def _tasks(error: UserError) -> list[TaskState]:
    tasks = error.facts.get("tasks", ())
    return [task for task in tasks if isinstance(task, TaskState)] if isinstance(tasks, tuple) else []
