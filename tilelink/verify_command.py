"""`tilelink verify`: the proof of a schedule and adversarial runs of its source, runs of a file, or a check of its API."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import lowering
from tilelink.adversary.campaign import judged, run_trials, trials
from tilelink.adversary.replay import parse_trial
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import Subject, of_file, of_schedule
from tilelink.adversary.trials import run_trial
from tilelink.adversary.verdict import Verdict, VerdictKind
from tilelink.dialect_api import Report, Vendor, check_file
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Spec
from tilelink.proof.findings import Proof
from tilelink.proof.verify import verify
from topologies.topology import Topology


@dataclass(frozen=True, slots=True)
class Effort:
    """How many random runs beside the directed ones, from which seed, in how many processes; or only one run, `replay`."""

    seeds: int = 20
    first_seed: int = 0
    workers: int = 2
    replay: str = ""


@dataclass(frozen=True, slots=True)
class Verification:
    """What `tilelink verify` says. `proof` and `small` are None for a file, which has no schedule."""

    proof: Proof | None
    small: Schedule | None
    runs: Verdict | None  # None if the proof already refutes

    @property
    def kind(self) -> VerdictKind:
        if self.proof is not None and not self.proof.proved:
            return VerdictKind.REFUTED
        if self.runs is not None and self.runs.kind is not VerdictKind.NOT_REFUTED:
            return self.runs.kind
        return VerdictKind.PROVED if self.proof is not None else VerdictKind.NOT_REFUTED

    def lines(self) -> list[str]:
        out = self.proof.lines() if self.proof is not None else []
        if self.small is not None and self.runs is not None:
            sizes = " ".join(f"{name}={size}" for name, size in self.small.spec.sizes)
            out.append(f"run at {sizes} on {self.small.machine.num_sms} SMs a rank, with the same choices:")
        return out + (self.runs.lines() if self.runs is not None else [])

    def to_json(self) -> str:
        """`verdict`, `proof` (findings, counts), `runs` (trials, left_out, counterexample, obstacle); missing parts are null."""
        proof = self.proof and {
            "schedule": self.proof.schedule,
            "seconds": self.proof.seconds,
            "checked": dict(self.proof.checked),
            "findings": [
                {"class": f.bug.number, "bug": f.bug.title, "where": f.where, "signal": f.signal, "fact": f.fact}
                for f in self.proof.findings
            ],
        }
        found = self.runs.counterexample if self.runs is not None else None
        obstacle = self.runs.obstacle if self.runs is not None else None
        runs = self.runs and {
            "operator": self.runs.name,
            "ranks": self.runs.num_ranks,
            "trials": self.runs.trials,
            "steps": self.runs.steps,
            "seconds": self.runs.seconds,
            "compared": self.runs.compared,
            "left_out": list(self.runs.left_out),
            "counterexample": found.to_json() if found is not None else None,
            "obstacle": obstacle.to_json() if obstacle is not None else None,
        }
        return json.dumps({"verdict": self.kind.value, "proof": proof, "runs": runs}, indent=1)


def verify_schedule(
    spec: Spec, schedule: Schedule, topology: Topology, target: str, command: str, effort: Effort
) -> Verification:
    """Prove `schedule`, then run its small form in the language `target`.

    Raises NoLegalSchedule if it has none, UnknownTarget and UnknownReplay.
    """
    proof = verify(schedule)
    if not proof.proved:
        return Verification(proof, None, None)
    small = small_form(spec, schedule, topology)
    make = partial(of_schedule, small, lowering.emit(small, target), command)
    return Verification(proof, small, _runs(make, make(), effort))


def verify_file(path: Path, num_ranks: int | None, num_sms: int | None, effort: Effort) -> Verification:
    """Run a file. Raises NotAnOperatorFile, FileReferenceFailed and UnknownReplay."""
    make = partial(of_file, path, num_ranks, num_sms)
    return Verification(None, None, _runs(make, make(), effort))


def verify_api(path: Path, vendor: Vendor | None) -> Report:
    """Check a file against the API of Triton-distributed. Raises SourceMissing and SourceNotPython."""
    return check_file(path, vendor)


def _runs(make: Callable[[], Subject], subject: Subject, effort: Effort) -> Verdict:
    if effort.replay:
        trial = parse_trial(effort.replay)
        outcome = run_trial(subject, trial)
        return judged(subject, outcome if outcome.error is not None else None, 1, outcome.steps, 0.0)
    allowed = {"any_stream": subject.any_stream, "graphs": subject.graphs}
    todo = list(trials(subject.num_ranks, effort.seeds, effort.first_seed, **allowed))
    with _progress(len(todo)) as advance:
        return run_trials(make, todo, advance, effort.workers)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, int], object] | None]:
    """A bar on stderr if a person is watching."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("adversarial runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda done, _: bar.update(task, completed=done)
