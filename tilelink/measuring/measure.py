"""One row: prepare every contender, compare its result, time all of them in turns, compare again.

    prepare, check, capture   contender by contender; a failure of any rank takes the contender out on every rank
    warm up                   one batch each; its time says how many batches a round takes
    round 1 .. n              every contender once a round, in a new order each time, each behind the same load; where a
                              problem has changes of its inputs, one before each batch, the same ones for all
    check                     fresh activations in the static inputs, one more batch, compare its last outputs
    host time                 where asked for

All ranks walk through the same steps: whatever may fail on one of them is followed by an exchange.
"""

from __future__ import annotations

import json
import math
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from lowering.selfcheck.compare import Comparison, nan_when_empty, poison
from lowering.selfcheck.near import Near
from tilelink.measuring.contender import Contender, Inputs, Kind, Mode, Setting
from tilelink.measuring.device import Call, Change, Device, Outputs
from tilelink.measuring.results import NOT_FINITE, ContenderResult
from tilelink.measuring.samples import max_over_ranks, spread

_T = TypeVar("_T")
Note = Callable[[str, str], None]  # a step begins; the contender that it belongs to, or ""
_FAST_TFLOPS, _FAST_US = 700.0, 20.0  # no contender is expected to be faster: they size the graphs
_BATCH_US = 1500.0  # a batch shorter than that is mostly the start of a replay
_FEWEST_CALLS, _MOST_CALLS = 5, 40
_ROUND_US = 10_000.0  # of one contender in one round
_FEWEST_BATCHES, _MOST_BATCHES = 3, 10
_FEWEST_ROUNDS = 3
_HOST_BATCHES, _HOST_CALLS = 10, 10  # more calls at once would fill the launch queue, and the host would wait
FLUSH = "l2_flush"
LOAD = "gemm"  # the part of a row that is run before each contender


@dataclass(frozen=True, slots=True)
class Options:
    rounds: int = 7
    row_budget_s: float = 60.0  # no round starts later, but some always run
    l2_cold: bool = False
    seed: int = 0
    against: str = ""  # names of baselines, comma separated; empty: all that apply
    load_ms: float = 100.0  # of the matmul alone before each contender of a round, so that all begin at like clocks


class DeviceLost(Exception):
    """The device of some rank takes no more work, or a rank failed where the others cannot know: start anew."""


@dataclass(slots=True)
class _Entry:
    """A contender on its way through a row. `failure` is the same on every rank."""

    contender: Contender
    failure: str = ""
    note: str = ""
    mode: Mode = Mode.EAGER
    call: Call | None = None
    batch: Call | None = None
    batches: int = 1
    batch_us: float = 0.0  # of the slowest rank, when it ran first
    rounds: list[list[float]] = field(default_factory=list)  # us per call of this rank
    error_before: float | None = None
    error_after: float | None = None
    host_us: float | None = None

    @property
    def running(self) -> bool:
        return not self.failure


@dataclass(frozen=True, slots=True)
class Problem:
    """What is given to its contenders. `wanted` are the outputs, `fresh` makes other activations, which are the first inputs, and
    their outputs. `change` makes small changes between batches, if any: the next calls compute something else."""

    setting: Setting
    wanted: tuple[Near, ...]
    fresh: Callable[[], tuple[Inputs, tuple[Near, ...]]]
    change: Change | None = None


def measure_row(
    device: Device, problem: Problem, contenders: Sequence[Contender], options: Options, note: Note
) -> list[ContenderResult]:
    """Results of all contenders, in order. `note` hears of every step. Raises DeviceLost."""
    start = device.now_s()
    if options.l2_cold:
        device.flush_l2()  # what it allocates must not belong to a graph
    calls = calls_per_batch(problem.setting)
    entries = [_Entry(contender, contender.failure) for contender in _listed(contenders, options)]
    for entry in entries:
        note("preparing", entry.contender.name)
        _prepare(device, problem, entry, calls, options)
    _warm_up(device, entries, note)
    load, order = _Load.of(entries, options), random.Random(problem.setting.key)
    for number in range(options.rounds):
        if number >= _FEWEST_ROUNDS and _late(device, start, options):
            break
        running = [entry for entry in entries if entry.running]
        order.shuffle(running)  # the same on every rank, and another one in each row
        _round(device, running, load, problem.change, number, calls, note)
    note("fresh inputs", "")
    _check_again(device, problem, entries, note)
    for entry in entries:
        note("timing the host of", entry.contender.name)
        _host_time(device, entry)
    return _results(device, entries, calls)


def calls_per_batch(setting: Setting) -> int:
    """Calls in one graph or between two events; the same for every contender of a row and on every rank."""
    fastest_us = max(_FAST_US, setting.flops / (_FAST_TFLOPS * 1e6))
    return min(_MOST_CALLS, max(_FEWEST_CALLS, math.ceil(_BATCH_US / fastest_us)))


def _listed(contenders: Sequence[Contender], options: Options) -> list[Contender]:
    """With a cold L2 the flush alone is timed too: its time is subtracted from that of the others."""
    flush = [Contender(FLUSH, Kind.PART, Mode.GRAPH, lambda _: _nothing)] if options.l2_cold else []
    return [*contenders, *flush]


def _nothing() -> Outputs:
    return ()


def together(device: Device, action: Callable[[], _T]) -> tuple[_T | None, str]:
    """The value of `action` here and "", or None and what failed, the same text on every rank. Raises DeviceLost."""
    value, failure = None, ""
    try:
        value = action()
    except Exception as error:  # whatever a contender raises belongs to its result
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"[:2000]
    usable = failure == "" or device.usable()
    texts = [json.loads(text) for text in device.exchange(json.dumps([failure, usable]))]
    failures = [f"rank {rank}: {text}" for rank, (text, _) in enumerate(texts) if text]
    if not all(fine for _, fine in texts):
        raise DeviceLost("; ".join(failures))
    return (None, failures[0]) if failures else (value, "")


def _prepare(device: Device, problem: Problem, entry: _Entry, calls: int, options: Options) -> None:
    if not entry.running:
        return
    call, entry.failure = together(device, lambda: entry.contender.prepare(problem.setting))
    if call is None:
        return
    entry.call, entry.note = call, getattr(call, "note", "")
    device.meet()
    _poison(device, call)
    found, entry.failure = together(device, lambda: _compared(entry.contender.shown(_first(call)), problem.wanted))
    if not entry.running:
        return
    entry.error_before = _judge(device, entry, found, "before timing")
    if not entry.running:
        return
    timed = _cold(device, call) if options.l2_cold else call
    if entry.contender.mode is Mode.GRAPH:
        entry.batch, failure = together(device, lambda: device.capture(timed, calls))
        entry.mode = Mode.GRAPH if entry.batch is not None else Mode.EAGER
        entry.note += f"{'; ' if entry.note else ''}no graph: {failure}" if failure else ""
    if entry.batch is None:
        entry.batch = _repeated(timed, calls)
    device.meet()


def _poison(device: Device, call: Call) -> None:
    """What an operator of ours holds: memory that a call does not write must not look like a result."""
    operator = getattr(call, "operator", None)
    if operator is not None:
        poison(operator, device.meet)


def _first(call: Call) -> Outputs:
    with nan_when_empty():
        return call()


def _compared(outputs: Outputs, wanted: tuple[Near, ...]) -> Comparison | None:
    """The worst of all outputs; more than are wanted are states of a contender's own."""
    if not outputs:
        return None
    if len(outputs) < len(wanted):
        raise ValueError(f"there are {len(outputs)} outputs, not {len(wanted)}")
    found = []
    for output, near in zip(outputs, wanted, strict=False):
        shape, right = list(output.shape), list(near.value.shape)
        if shape != right:
            raise ValueError(f"the output is {shape}, not {right}")
        found.append(Comparison.of(output, near))
    return max(found, key=lambda one: (not one.equal, one.error))


def _judge(device: Device, entry: _Entry, found: Comparison | None, when: str) -> float | None:
    """The worst error of all ranks, in units of its bound; takes the contender out if any rank has a wrong element."""
    here = [-1.0, ""] if found is None else [min(found.error, NOT_FINITE), "" if found.equal else found.text()]
    ranks = [json.loads(text) for text in device.exchange(json.dumps(here))]
    wrong = [f"rank {rank}: {text}" for rank, (_, text) in enumerate(ranks) if text]
    if wrong:
        entry.failure = f"wrong result {when}: {'; '.join(wrong)}"
    worst: float = max(error for error, _ in ranks)
    return None if worst < 0 else worst


def _cold(device: Device, call: Call) -> Call:
    def flushed() -> Outputs:
        device.flush_l2()
        return call()

    return flushed


def _repeated(call: Call, calls: int) -> Call:
    def batch() -> Outputs:
        outputs: Outputs = ()
        for _ in range(calls):
            outputs = call()
        return outputs

    return batch


def _warm_up(device: Device, entries: Sequence[_Entry], note: Note) -> None:
    """Also sets how many batches a round has: as many on every rank."""
    for entry in entries:
        if entry.batch is None or not entry.running:
            continue
        note("warming up", entry.contender.name)
        device.meet()
        (us,) = _timed(device, entry.batch, 1, 1)
        slowest = max(json.loads(text) for text in device.exchange(json.dumps(us)))
        entry.batches = min(_MOST_BATCHES, max(_FEWEST_BATCHES, round(_ROUND_US / max(slowest, 1.0))))
        entry.batch_us = slowest


def _timed(device: Device, batch: Call, lead_in: int, batches: int, change: Change | None = None) -> list[float]:
    try:
        return device.time(batch, lead_in, batches, change)
    except Exception as error:  # the other ranks are inside the batch and wait for this one
        traceback.print_exc()
        raise DeviceLost(f"{type(error).__name__}: {error}") from error


def _late(device: Device, start: float, options: Options) -> bool:
    """Whether the row has used its time; rank 0's clock decides."""
    return device.exchange("late" if device.now_s() - start > options.row_budget_s else "")[0] == "late"


@dataclass(frozen=True, slots=True)
class _Load:
    """What runs before the samples of a contender: as many batches of the matmul alone, or of the first one that runs.

    What ran in the half second before a contender decides on its clocks, and 100 ms of its own load do not undo that: the
    matmul with K-major weights took 5 to 8 % longer as the fifth of a round than as the first (2 and 4 x H200).
    """

    batch: Call | None
    batches: int

    @classmethod
    def of(cls, entries: Sequence[_Entry], options: Options) -> _Load:
        running = [entry for entry in entries if entry.running]
        matmuls = [entry for entry in running if entry.contender.name == LOAD] or running
        if not matmuls or not options.load_ms:
            return cls(None, 0)
        return cls(matmuls[0].batch, math.ceil(1e3 * options.load_ms / max(matmuls[0].batch_us, 1.0)))

    def run(self, device: Device) -> None:
        if self.batch is not None:
            _timed(device, self.batch, self.batches, 0)


def _round(
    device: Device,
    running: Sequence[_Entry],
    load: _Load,
    change: Change | None,
    number: int,
    calls: int,
    note: Note,
) -> None:
    """In this order: what ran just before leaves the clocks and caches that it leaves."""

    def later(batch: int) -> None:
        """Rounds begin with different changes: a round may have fewer batches than there are."""
        assert change is not None, "only then this is called"
        change(number + batch)

    for entry in running:
        assert entry.batch is not None, "what runs was prepared"
        note(f"round {number + 1} of", entry.contender.name)
        load.run(device)
        device.meet()
        times = _timed(device, entry.batch, 1, entry.batches, later if change is not None else None)
        entry.rounds.append([us / calls for us in times])


def _check_again(device: Device, problem: Problem, entries: Sequence[_Entry], note: Note) -> None:
    """Fresh activations, so that what is stale shows: a call of its own first, then the last call of the timed form."""
    running = [(entry, entry.call, entry.batch) for entry in entries if entry.running and entry.call and entry.batch]
    held: list[Outputs] = []  # of graphs, whose outputs lie where they lay; found before the activations change
    for entry, _, batch in running:
        outputs: Outputs | None = ()
        if entry.mode is Mode.GRAPH:
            outputs, entry.failure = together(device, batch)
        held.append(outputs or ())
    device.meet()
    activations, wanted = problem.fresh()
    for held_input, other in zip(problem.setting.inputs, activations, strict=False):  # weights stay
        held_input.copy_(other)
    for (entry, call, batch), static in zip(running, held, strict=True):
        for timed, memory in ((call, ()), (batch, static)):
            if entry.running:
                note("checking again", entry.contender.name)
                _check_fresh(device, entry, timed, memory, wanted)
    device.meet()


def _check_fresh(device: Device, entry: _Entry, timed: Call, memory: Outputs, wanted: tuple[Near, ...]) -> None:
    """`timed`, whose outputs lie in `memory` if it always has the same, or are allocated."""
    assert entry.call is not None, "what is timed was prepared"
    device.meet()
    _poison(device, entry.call)
    for output in memory:
        if output.is_floating_point():
            output.fill_(math.nan)
    device.meet()
    found, entry.failure = together(device, lambda: _compared(entry.contender.shown(_first(timed)), wanted))
    if entry.running:
        error = _judge(device, entry, found, "after timing")
        entry.error_after = error if entry.error_after is None else max(entry.error_after, error or 0.0)


def _host_time(device: Device, entry: _Entry) -> None:
    call = entry.call
    if call is None or not entry.running or not entry.contender.host:
        return
    device.meet()
    found, failure = together(device, lambda: [device.host_us(call, _HOST_CALLS) for _ in range(_HOST_BATCHES)])
    if found is None:
        entry.note = f"no host time: {failure}"
        return
    entry.host_us = sorted(found)[len(found) // 2]


def _results(device: Device, entries: Sequence[_Entry], calls: int) -> list[ContenderResult]:
    """Of each sample the slowest rank, less the flush that it held."""
    found: list[tuple[_Entry, list[list[float]], float | None]] = []
    for entry in entries:
        ranks = [json.loads(text) for text in device.exchange(json.dumps([entry.rounds, entry.host_us]))]
        host = [us for _, us in ranks if us is not None]
        found.append((entry, max_over_ranks([rounds for rounds, _ in ranks]), max(host, default=None)))
    flush = next((spread(rounds).median_us for entry, rounds, _ in found if _is_flush(entry) and rounds), 0.0)
    return [
        _result(entry, [[us - flush for us in samples] for samples in rounds], host_us, calls)
        for entry, rounds, host_us in found
        if not _is_flush(entry)
    ]


def _is_flush(entry: _Entry) -> bool:
    return entry.contender.name == FLUSH


def _result(entry: _Entry, rounds: list[list[float]], host_us: float | None, calls: int) -> ContenderResult:
    found = spread(rounds) if rounds and entry.running else None
    return ContenderResult(
        name=entry.contender.name,
        kind=entry.contender.kind.value,
        mode=entry.mode.value,
        calls_per_sample=calls,
        rounds_us=tuple(tuple(round(us, 3) for us in samples) for samples in rounds),
        median_us=round(found.median_us, 3) if found else None,
        p10_us=round(found.p10_us, 3) if found else None,
        p90_us=round(found.p90_us, 3) if found else None,
        host_us=round(host_us, 3) if host_us is not None else None,
        error_before=entry.error_before,
        error_after=entry.error_after,
        tolerance=1.0,
        failure=entry.failure,
        note=entry.note,
        schedule=entry.contender.schedule,
    )
