"""Many trials of one operator: directed policies first, then seeds; the first failure is made small and diagnosed."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from functools import partial

import torch

from tilelink.adversary.counterexample import explain
from tilelink.adversary.subject import Subject
from tilelink.adversary.trials import Outcome, Scenario, Trial, run_trial
from tilelink.adversary.verdict import Verdict, VerdictKind, kind_of, obstacle
from tilelink.emulator.policies import standard_policies
from tilelink.processes import fresh_processes

Progress = Callable[[int, int], object]  # trials done, trials in all
_WORKERS = 2
_MOST_GIVEN_UP = 3  # of runs that reach the step limit: a few more may still refute
_SHORTER = 6  # trials that try to show the same failure in fewer steps


def trials(
    num_ranks: int, seeds: int, first_seed: int = 0, *, any_stream: bool = True, graphs: bool = True
) -> Iterator[Trial]:
    """Every directed policy with calls back to back, each other scenario with a few of them, then `seeds` seeds.

    Calls come from two streams in turn, and are captured and replayed, only where the file allows it.
    """
    yield Trial(Scenario.REFUSALS, "oldest")
    directed = [text for text, _ in standard_policies(num_ranks, first_seed + 1)]
    for text in directed:
        # a value that runs ahead of its calls is wrong only after a few of them, when some rank is far behind
        yield Trial(Scenario.CALLS, text, first_seed, calls=5 if text.startswith("starve-rank") else 3)
    streams = Scenario.STREAMS if any_stream else Scenario.WAITED
    replays = Scenario.REPLAYS if graphs else Scenario.WAITED
    for scenario in dict.fromkeys((replays, streams, Scenario.OPERATORS, Scenario.WAITED)):
        for text in directed[:2] if scenario is not Scenario.WAITED else directed[1:2]:
            yield Trial(scenario, text, first_seed)
    for text in (*directed[1:3], f"random:{first_seed + 2}"):
        yield Trial(Scenario.CALLS, text, first_seed, any_residency=True)
    scenarios = (Scenario.CALLS, Scenario.CALLS, replays, streams)
    for number in range(seeds):
        seed = first_seed + number
        policy = f"pct:{seed}:3" if number % 2 else f"random:{seed + 100}"
        yield Trial(scenarios[number // 2 % 4], policy, seed, any_residency=number % 4 >= 2)


def run_trials(
    make_subject: Callable[[], Subject],
    todo: list[Trial],
    progress: Progress | None = None,
    workers: int = _WORKERS,
) -> Verdict:
    """Run `todo` until one refutes or cannot be carried out; one that is given up decides nothing while others may refute.

    Each worker process calls `make_subject`: it must be picklable.
    """
    begin = time.perf_counter()
    subject = make_subject()
    steps, done, failed, given_up = 0, 0, None, list[Trial]()
    results = _in_turn(subject, todo) if workers < 2 else _in_processes(make_subject, todo, workers)
    for trial, used, kind in results:
        steps, done = steps + used, done + 1
        if progress is not None:
            progress(done, len(todo))
        if kind is VerdictKind.INCONCLUSIVE:
            given_up.append(trial)
        if kind in (VerdictKind.REFUTED, VerdictKind.NOT_CHECKED):
            failed = trial
            break
        if len(given_up) == _MOST_GIVEN_UP:
            break
    results.close()
    failed = failed or next(iter(given_up), None)
    outcome = run_trial(subject, failed) if failed is not None else None
    if outcome is not None and kind_of(outcome) is VerdictKind.REFUTED:
        outcome = shortest(subject, outcome)
    return judged(subject, outcome, done, steps, time.perf_counter() - begin)


def judged(subject: Subject, failed: Outcome | None, trials: int, steps: int, seconds: float) -> Verdict:
    """The verdict of `trials` runs, the last of which is `failed` unless all were right."""
    compared = subject.expected is not None
    counterexample = met = None
    kind = kind_of(failed) if failed is not None else VerdictKind.NOT_REFUTED
    if failed is not None and kind is VerdictKind.REFUTED:
        counterexample = explain(subject, failed)
    elif failed is not None and kind is not VerdictKind.NOT_REFUTED:
        met = obstacle(subject, failed, kind)
    left_out = []
    if not subject.any_stream:
        left_out.append("calls from several streams (the class has no ANY_STREAM = True)")
    if not subject.graphs:
        left_out.append("calls captured in a CUDA graph (the class has GRAPHS = False)")
    return Verdict(
        subject.name, subject.num_ranks, trials, steps, seconds, compared, counterexample, met, tuple(left_out)
    )


Result = tuple[Trial, int, VerdictKind]  # steps, what the run says


def _in_turn(subject: Subject, todo: list[Trial]) -> Generator[Result]:
    for trial in todo:
        outcome = run_trial(subject, trial)
        yield trial, outcome.steps, kind_of(outcome)


def _in_processes(make_subject: Callable[[], Subject], todo: list[Trial], workers: int) -> Generator[Result]:
    """In any order of completion. Fresh processes: the emulator patches the language of the one it runs in."""
    with fresh_processes(workers, partial(_prepare, make_subject)) as pool:
        waiting = list(todo)
        running: dict[Future[Result], None] = {}
        try:
            while waiting or running:
                while waiting and len(running) < 2 * workers:
                    running[pool.submit(_one, waiting.pop(0))] = None
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    del running[future]
                    yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_subject: Subject | None = None  # of this worker process


def _prepare(make_subject: Callable[[], Subject]) -> None:
    global _subject
    torch.set_num_threads(1)
    _subject = make_subject()


def _one(trial: Trial) -> Result:
    assert _subject is not None
    outcome = run_trial(_subject, trial)
    return trial, outcome.steps, kind_of(outcome)


def shortest(subject: Subject, failed: Outcome) -> Outcome:
    """A failure of the same kind in as few steps as a handful of simpler trials shows it."""
    best, trial = failed, failed.trial
    assert best.error is not None
    kind = type(best.error)
    simpler = [replace(trial, calls=calls) for calls in (1, 2) if calls < trial.calls]
    simpler += [
        replace(trial, policy=text, any_residency=False) for text in ("oldest", "producers-last", "copies-late")
    ]
    for trial in simpler[:_SHORTER]:
        outcome = run_trial(subject, trial)
        if isinstance(outcome.error, kind) and outcome.steps < best.steps:
            best = outcome
    return best
