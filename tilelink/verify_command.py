"""`tilelink verify`: the proof of a schedule and adversarial runs of its source, runs of a file, or a check of its API."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lowering
from tilelink.adversary.campaign import Verdict, run_trials, trials
from tilelink.adversary.counterexample import explain
from tilelink.adversary.replay import parse_trial
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import Subject, of_file, of_schedule
from tilelink.adversary.trials import Trial, run_trial
from tilelink.cli_errors import FileIsForOthers
from tilelink.dialect_api import Report, Vendor, check_file
from tilelink.emulated_time import announce, of_inputs
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Spec
from tilelink.proof.findings import Proof
from tilelink.proof.verify import verify
from tilelink.terminal import progress
from topologies.topology import Topology

_CALLS = 3  # of most runs
_SMALLER = (
    "What goes wrong depends on the choices, not on the sizes: emit the same choices for small sizes, with the --pin lines of "
    "the file's header, and verify that file; or name the spec, `tilelink verify SPEC.py:FUNCTION`, which does so by itself."
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How many random runs beside the directed ones, from which seed, in how many processes; or only one run, `replay`."""

    seeds: int = 20
    first_seed: int = 0
    workers: int = 2
    replay: str = ""
    most_minutes: float = 30.0  # that runs of a file may take


@dataclass(frozen=True, slots=True)
class Verification:
    """What `tilelink verify` says. `proof` and `small` are None for a file, which has no schedule."""

    proof: Proof | None
    small: Schedule | None
    runs: Verdict | None  # None if the proof already refutes

    @property
    def refuted(self) -> bool:
        return (self.proof is not None and not self.proof.proved) or (self.runs is not None and self.runs.refuted)

    def lines(self) -> list[str]:
        out = self.proof.lines() if self.proof is not None else []
        if self.small is not None and self.runs is not None:
            sizes = " ".join(f"{name}={size}" for name, size in self.small.spec.sizes)
            out.append(f"run at {sizes} on {self.small.machine.num_sms} SMs a rank, with the same choices:")
        return out + (self.runs.lines() if self.runs is not None else [])

    def to_json(self) -> str:
        """`verdict`, `proof` (findings and counts) and `runs` (trials, steps, counterexample); missing parts are null."""
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
        runs = self.runs and {
            "operator": self.runs.name,
            "ranks": self.runs.num_ranks,
            "trials": self.runs.trials,
            "steps": self.runs.steps,
            "seconds": self.runs.seconds,
            "compared": self.runs.compared,
            "counterexample": found.to_json() if found is not None else None,
        }
        verdict = "refuted" if self.refuted else "proved" if self.proof is not None else "not refuted"
        return json.dumps({"verdict": verdict, "proof": proof, "runs": runs}, indent=1)


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
    """Run a file. Raises NotAnOperatorFile, FileIsForOthers, TooLongToEmulate and UnknownReplay."""
    make = partial(of_file, path, num_ranks, num_sms)
    subject = make()
    _check_machine(path, subject, num_ranks, num_sms)
    _check_work(path, subject, effort)
    return Verification(None, None, _runs(make, subject, effort))


def _check_machine(path: Path, subject: Subject, num_ranks: int | None, num_sms: int | None) -> None:
    """A file that says for how many ranks and SMs it is runs on no others. Raises FileIsForOthers."""
    ranks, sms = (getattr(subject.build, name, None) for name in ("NUM_RANKS", "NUM_SMS"))
    if num_ranks is not None and isinstance(ranks, int) and num_ranks != ranks:
        raise FileIsForOthers(
            path=path, option="--ranks", given=num_ranks, legal=f"--ranks {ranks}, or without --ranks"
        )
    if num_sms is not None and isinstance(sms, int) and num_sms < sms:
        raise FileIsForOthers(path=path, option="--sms", given=num_sms, legal=f"--sms {sms} or more, or without --sms")


def _check_work(path: Path, subject: Subject, effort: Effort) -> None:
    """Raises TooLongToEmulate for a file of sizes that no emulation gets through."""
    shapes = [shape for shape, _ in getattr(subject.build, "INPUTS", {}).values()]
    todo = 1 if effort.replay else len(list(_todo(subject, effort)))
    seconds = of_inputs(shapes, subject.num_ranks, _CALLS * todo) / (1 if effort.replay else effort.workers)
    announce(f"{todo} runs of {path}", seconds, effort.most_minutes, _SMALLER)


def _todo(subject: Subject, effort: Effort) -> Iterator[Trial]:
    return trials(subject.num_ranks, effort.seeds, effort.first_seed, any_stream=subject.any_stream)


def verify_api(path: Path, vendor: Vendor | None) -> Report:
    """Check a file against the API of Triton-distributed. Raises SourceMissing and SourceNotPython."""
    return check_file(path, vendor)


def _runs(make: Callable[[], Subject], subject: Subject, effort: Effort) -> Verdict:
    if effort.replay:
        trial = parse_trial(effort.replay)
        outcome = run_trial(subject, trial)
        found = explain(subject, outcome) if outcome.error is not None else None
        compared = subject.expected is not None
        return Verdict(subject.name, subject.num_ranks, 1, outcome.steps, 0.0, compared, found)
    todo = list(_todo(subject, effort))
    with progress("adversarial runs", len(todo)) as tell:
        return run_trials(make, todo, lambda done, _: tell(done), effort.workers)
