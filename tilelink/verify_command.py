"""`tilelink verify`: the proof of a schedule and adversarial runs of its source, runs of a file, or a check of its API."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import lowering
from tilelink.adversary.campaign import judged, run_trials, trials
from tilelink.adversary.replay import parse_trial
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import Subject, of_file, of_schedule
from tilelink.adversary.trials import Trial, run_trial
from tilelink.adversary.verdict import Verdict, VerdictKind
from tilelink.cli_errors import OptionOfApi, SizesOfFile
from tilelink.command_arguments import Dtype, MaxMinutes, Nodes, Pins, Ranks, Sizes, Target, TopologyName, planned
from tilelink.compiled import CompiledReport, check_compiled
from tilelink.dialect_api import Report, Vendor, check_file
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Spec
from tilelink.proof.proved import Proof
from tilelink.proof.verify import verify as prove
from tilelink.runtime.load import fabric_class, load_source
from tilelink.runtime.machine import PLANNED_FOR
from tilelink.terminal import progress
from tilelink.verify_limits import check_machine, check_work
from topologies.topology import Topology

_COMPILED_FOR = "sm_90"  # files do not say what they are for


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
    compiled: CompiledReport | None = None  # None for a file that was not emitted, and where the proof refutes

    @property
    def kind(self) -> VerdictKind:
        if self.proof is not None and not self.proof.proved:
            return VerdictKind.REFUTED
        if self.compiled is not None and self.compiled.findings:
            return VerdictKind.REFUTED
        if self.runs is not None and self.runs.kind is not VerdictKind.NOT_REFUTED:
            return self.runs.kind
        return VerdictKind.PROVED if self.proof is not None else VerdictKind.NOT_REFUTED

    def lines(self) -> list[str]:
        out = self.proof.lines() if self.proof is not None else []
        out += self.compiled.lines() if self.compiled is not None else []
        if self.small is not None and self.runs is not None:
            sizes = " ".join(f"{name}={size}" for name, size in self.small.spec.sizes)
            out.append(f"run at {sizes} on {self.small.machine.num_sms} SMs a rank, with the same choices:")
        return out + (self.runs.lines() if self.runs is not None else [])

    def to_json(self) -> str:
        """`verdict`, `proof` (findings, counts), `order` (events of its steps, ranks and calls that stand for all), `compiled`
        (findings, accesses, unknown), `runs` (trials, left_out, counterexample, obstacle); missing parts are null."""
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
        compiled = self.compiled.to_json() if self.compiled is not None else None
        steps = self.proof.order if self.proof is not None else None
        order = steps and {
            "ranks": steps.ranks,
            "rank_period": steps.rank_period,
            "calls": steps.calls,
            "call_period": steps.call_period,
            "events": steps.events,
        }
        parts = {"verdict": self.kind.value, "proof": proof, "order": order, "compiled": compiled, "runs": runs}
        return json.dumps(parts, indent=1)


def verify_schedule(
    spec: Spec, schedule: Schedule, topology: Topology, target: str, command: str, effort: Effort
) -> Verification:
    """Prove `schedule`, check the order of what is compiled of it, then run its small form in the
    language `target`.

    Raises NoLegalSchedule if it has none, UnknownTarget and UnknownReplay.
    """
    proof = prove(schedule)
    if not proof.proved:
        return Verification(proof, None, None)
    source = load_source(lowering.emit(schedule, target), schedule.name)
    ahead = any(
        isinstance(one, Kernel) and one.compute is not None and one.compute.prefetch for one in schedule.launches
    )
    compiled = check_compiled(source, schedule.num_ranks, topology.gpu.arch, waits_ahead=ahead)
    small = small_form(spec, schedule, topology)
    make = partial(of_schedule, small, lowering.emit(small, target), command)
    return Verification(proof, small, _runs(make, make(), effort), compiled)


def verify_file(path: Path, num_ranks: int | None, num_sms: int | None, effort: Effort) -> Verification:
    """Run a file; of an emitted one, check the order of what is compiled too. Raises NotAnOperatorFile, FileReferenceFailed,
    FileIsForOthers, TooLongToEmulate and UnknownReplay."""
    make = partial(of_file, path, num_ranks, num_sms)
    subject = make()
    check_machine(path, subject, num_ranks, num_sms)
    runs = 1 if effort.replay else len(_todo(subject, effort))
    check_work(path, subject, runs, 1 if effort.replay else effort.workers, effort.most_minutes)
    return Verification(None, None, _runs(make, subject, effort), _compiled_file(path, subject.num_ranks))


def _compiled_file(path: Path, num_ranks: int) -> CompiledReport | None:
    """None for a file whose host code stands on something else than the fabric of emitted files."""
    module = load_source(path.read_text(encoding="utf-8"), path.stem, path)
    try:
        fabric_class(module)
    except StopIteration:
        return None
    return check_compiled(module, num_ranks, _COMPILED_FOR)


def verify_api(path: Path, vendor: Vendor | None) -> Report:
    """Check a file against the API of Triton-distributed. Raises SourceMissing and SourceNotPython."""
    return check_file(path, vendor)


def _runs(make: Callable[[], Subject], subject: Subject, effort: Effort) -> Verdict:
    if effort.replay:
        trial = parse_trial(effort.replay)
        outcome = run_trial(subject, trial)
        return judged(subject, outcome if outcome.error is not None else None, 1, outcome.steps, 0.0)
    todo = _todo(subject, effort)
    with progress("adversarial runs", len(todo)) as tell:
        return run_trials(make, todo, lambda done, _: tell(done), effort.workers)


def _todo(subject: Subject, effort: Effort) -> list[Trial]:
    allowed = {"any_stream": subject.any_stream, "graphs": subject.graphs}
    return list(trials(subject.num_ranks, effort.seeds, effort.first_seed, **allowed))


def verify(
    subject: Annotated[
        str, typer.Argument(metavar="SPEC|FILE.py", help="path.py:function, or a file with an operator in it.")
    ],
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    nodes: Nodes = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=0, help="Number of random runs; the directed runs always happen.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first random run.")] = 0,
    sms: Annotated[int | None, typer.Option("--sms", min=1, help="SMs of each emulated rank that runs FILE.")] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Number of worker processes.")] = min(
        8, os.cpu_count() or 1
    ),
    max_minutes: MaxMinutes = 30.0,
    replay: Annotated[
        str, typer.Option("--replay", metavar="RUN", help="Repeat one run, named as a counterexample names it.")
    ] = "",
    target: Target = "triton",
    api: Annotated[bool, typer.Option("--api", help="Check FILE.py against the API of Triton-distributed.")] = False,
    vendor: Annotated[
        Vendor | None,
        typer.Option("--vendor", help="Library whose API --api checks.", show_default="what the file imports"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove a schedule, then run its source against an adversary. A FILE.py is run, or checked with --api.

    Exit 0: not refuted, 1: refuted, 2: not checked, inconclusive or bad input.
    """
    if vendor is not None and not api:
        raise OptionOfApi(vendor=vendor.value)
    if api:
        if sizes:
            raise SizesOfFile(path=subject, sizes=" ".join(sizes))
        report = verify_api(Path(subject), vendor)
        typer.echo(report.to_json() if json else "\n".join(report.lines()))
        raise typer.Exit(report.exit_code)
    effort = Effort(seeds, seed, workers, replay, max_minutes)
    if ":" in subject:
        declared, machine, schedule = planned(subject, sizes, topology, ranks, dtype, pin, nodes)
        words = [subject, *(sizes or ()), "--topology", topology, "--ranks", str(machine.num_ranks)]
        words += ["--nodes", str(nodes)] if nodes is not None else []
        command = _again(words, dtype, pin, target)
        found = verify_schedule(declared, schedule, machine, target, command, effort)
    else:
        if sizes:
            raise SizesOfFile(path=subject, sizes=" ".join(sizes))
        found = verify_file(Path(subject), ranks, sms, effort)
    typer.echo(found.to_json() if json else "\n".join(found.lines()))
    raise typer.Exit(found.kind.exit_code)


def _again(words: list[str], dtype: str, pin: list[str] | None, target: str) -> str:
    """The command that verifies the same, for a counterexample."""
    words = ["tilelink", "verify", *words]
    words += ["--dtype", dtype] if dtype != "bf16" else []
    words += ["--target", target] if target != "triton" else []
    for one in pin or ():
        words += ["--pin", one]
    return shlex.join(words)
