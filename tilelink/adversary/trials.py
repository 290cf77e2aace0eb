"""One run of an operator on emulated ranks: a scenario of calls, a policy, a residency; and how it failed, if it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import torch

from tilelink.adversary.file_reference import Inputs, Outputs
from tilelink.adversary.host_code import HostCodeFailed, called, hosted
from tilelink.adversary.subject import Subject
from tilelink.emulator import EmulationError, World
from tilelink.emulator.events import Observer
from tilelink.emulator.policies import policy_by_name
from tilelink.emulator.protocols import Difference, first_difference
from tilelink.emulator.races import RaceDetector, Rules, Trace
from tilelink.errors import ScheduleMismatch
from tilelink.runtime.reference import kept, poison
from topologies.errors import UserError

Operator = Callable[..., object]


class Scenario(Enum):
    """How the calls of a run follow each other. All ranks make the same calls."""

    CALLS = "calls back to back"  # host code is far ahead of the GPUs
    WAITED = "host waits after each call"
    REPLAYS = "CUDA graph replayed"  # captured after one eager call; inputs change in place
    STREAMS = "calls on two streams in turn"
    OPERATORS = "two operators in turn"  # each with buffers of its own, on one fabric
    REFUSALS = "constructed where it must refuse"  # ranks with other schedules, GPUs with fewer SMs


WordValue = tuple[str, int, int, int, int]  # buffer, rank that holds it, byte in it, size in bytes, value


@dataclass(frozen=True, slots=True)
class Trial:
    """Everything that determines a run: equal trials of equal files are equal runs."""

    scenario: Scenario
    policy: str  # replay text of tilelink.emulator.policies
    seed: int = 0  # of the inputs
    calls: int = 3
    any_residency: bool = False
    rules: Rules = field(default_factory=Rules)
    detect_races: bool = True
    lazy_loading: bool = True  # diagnosis, if False: all kernels are loaded before the first call
    excused: bool = False  # diagnosis: instead of hanging, let one wait after the other pass
    spared: frozenset[int] = frozenset()  # numbers of tasks whose waits do not pass
    restored: WordValue | None = None  # diagnosis: a word gets this value when the run hangs

    @property
    def text(self) -> str:
        """What `--replay` takes."""
        residency = ",any-residency" if self.any_residency else ""
        return f"{self.scenario.name.lower()},{self.policy},seed={self.seed},calls={self.calls}{residency}"


class WrongResult(UserError):
    """Facts: `rank`, `output`, `call`, `wrong`, `error` (in units of the bound), `text`."""

    template = "{output} of call {call} on rank {rank}: {text}."


class NotRefused(UserError):
    """Facts: `what`, `missing`."""

    template = (
        "the operator was constructed although {what}.\nLegal: {missing} in the constructor, before anything else."
    )


@dataclass(frozen=True)
class Outcome:
    """How a trial went. `error` is None if nothing is wrong."""

    trial: Trial
    error: UserError | None
    steps: int  # switches and memory accesses
    trace: Trace | None
    difference: Difference | None  # the first operation in which host code of two ranks differs


def run_trial(subject: Subject, trial: Trial, observers: Sequence[Observer] = ()) -> Outcome:
    """Run once. Everything that a file can do wrong ends up in the outcome; errors of ours are raised."""
    if trial.scenario is Scenario.REFUSALS:
        try:
            refused: UserError | None = _not_refused(subject)
        except EmulationError as found:  # host code did something that no fabric does
            refused = found
        return Outcome(trial, refused, 0, None, None)
    trace = Trace()
    detectors = [RaceDetector(subject.num_ranks, trial.rules)] if trial.detect_races else []
    world = World(
        subject.num_ranks,
        num_sms=subject.num_sms,
        policy=policy_by_name(trial.policy),
        observers=[*observers, trace, *detectors],
        step_limit=subject.step_limit,
        any_residency_order=trial.any_residency,
        lazy_loading=trial.lazy_loading,
        peer_atomics=subject.peer_atomics,
        multicast=subject.multicast,
        ranks_per_node=subject.ranks_per_node,
    )
    if trial.excused:
        world.machine.excuse_waits(trial.spared)
    if trial.restored is not None:
        world.machine.restore_word(*trial.restored)
    calls = _Calls(subject, trial, world)
    error: UserError | None = None
    try:
        calls.run()
    except (EmulationError, WrongResult, NotRefused, HostCodeFailed, ScheduleMismatch) as found:
        error = found
    return Outcome(trial, error, calls.steps, trace, first_difference(world.protocols()))


def _not_refused(subject: Subject) -> NotRefused | HostCodeFailed | None:
    """Construct the operator of a file that names its schedule where ranks differ, and where SMs are missing."""
    if not (isinstance(subject.build, type) and hasattr(subject.build, "SCHEDULE")):
        return None
    other = type(subject.build.__name__, (subject.build,), {"SCHEDULE": "another schedule"})
    try:
        for fabric in World(subject.num_ranks, num_sms=subject.num_sms).fabrics:
            hosted(fabric.rank, subject.build if fabric.rank else other, fabric)
        return NotRefused(what="ranks hold different schedules", missing="fabric.agree(self.SCHEDULE)")
    except ScheduleMismatch:
        pass
    except HostCodeFailed as failed:
        return failed
    if subject.num_sms == 1:
        return None
    try:
        for fabric in World(subject.num_ranks, num_sms=subject.num_sms - 1).fabrics:
            hosted(fabric.rank, subject.build, fabric)
    except HostCodeFailed as failed:
        return None if isinstance(failed.__cause__, ValueError) else failed
    return NotRefused(what="the GPU has too few SMs", missing="a check of fabric.num_sms")


class _Calls:
    """The calls of one trial; checks results as soon as they are there."""

    def __init__(self, subject: Subject, trial: Trial, world: World) -> None:
        self.subject = subject
        self.trial = trial
        self.world = world
        self.steps = 0
        self._done = 0
        self._pending: list[tuple[Inputs, Outputs]] = []

    def run(self) -> None:
        sets = 2 if self.trial.scenario is Scenario.OPERATORS else 1
        operators = [
            [hosted(fabric.rank, self.subject.build, fabric) for fabric in self.world.fabrics] for _ in range(sets)
        ]
        for each in operators:
            for operator in each:
                poison(value for value in vars(operator).values() if isinstance(value, torch.Tensor))
        match self.trial.scenario:
            case Scenario.REPLAYS:
                self._replays(operators[0])
            case Scenario.REFUSALS:
                return
            case Scenario.CALLS | Scenario.WAITED | Scenario.STREAMS | Scenario.OPERATORS:
                for call in range(self.trial.calls):
                    self._call(operators[call % sets], call)
                    if self.trial.scenario is Scenario.WAITED:
                        self._finish()
        self._finish()

    def _call(self, operators: list[Operator], call: int) -> None:
        inputs = self._inputs(call)
        results: Outputs = []
        stream = "second" if self.trial.scenario is Scenario.STREAMS and call % 2 else ""
        for fabric, operator, parts in zip(self.world.fabrics, operators, inputs, strict=True):
            with fabric.on_stream(stream):
                outputs = called(fabric.rank, operator, *parts.values())
                poison(outputs)
                results.append(kept(fabric.main(), outputs))
        self._pending.append((inputs, results))

    def _replays(self, operators: list[Operator]) -> None:
        """Copies into the static inputs, a replay and copies of the static outputs, all on the main stream."""
        static = self._inputs(0)
        self._pending.append((static, self._on_ranks(operators, static)))
        self._finish()
        with self.world.capture() as recording:
            held = self._on_ranks(operators, static)
        for call in range(1, self.trial.calls + 1):
            fresh = self._inputs(call)
            for fabric, parts, new in zip(self.world.fabrics, static, fresh, strict=True):
                for name, tensor in parts.items():
                    fabric.main().copy(tensor, new[name])
            self.world.replay(recording)
            copies = [kept(fabric.main(), outputs) for fabric, outputs in zip(self.world.fabrics, held, strict=True)]
            self._pending.append((fresh, copies))
        self._finish()

    def _on_ranks(self, operators: list[Operator], inputs: Inputs) -> Outputs:
        ranks = enumerate(zip(operators, inputs, strict=True))
        results = [called(rank, operator, *parts.values()) for rank, (operator, parts) in ranks]
        for outputs in results:
            poison(outputs)
        return results

    def _inputs(self, call: int) -> Inputs:
        return self.subject.make_inputs(1000 * self.trial.seed + call)

    def _finish(self) -> None:
        """Run what is enqueued and compare. Raises WrongResult and the errors of the emulator."""
        try:
            self.world.run()
        finally:
            self.steps += self.world.steps
        for inputs, outputs in self._pending:
            if self.subject.expected is not None:
                found = self.subject.difference(outputs, inputs, self._done)
                if found is not None:
                    raise WrongResult(
                        rank=found.rank,
                        output=found.output,
                        call=found.call,
                        wrong=found.wrong,
                        error=found.error,
                        text=found.text,
                    )
            self._done += 1
        self._pending = []


def with_rules_lifted(trial: Trial, rules: Iterable[str]) -> Trial:
    """`trial` with these fields of its Rules off."""
    return replace(trial, rules=replace(trial.rules, **dict.fromkeys(rules, False)))
