"""What streams do: between which events, and how they lie on the clock of stamps."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tilelink.profiling import streams
from tilelink.profiling.streams import Reading, StreamSpan, StreamTimes, of_streams, zero_of
from tilelink.profiling.timeline import Doing

NOW = [0.0]  # us, of a GPU that works while the host enqueues


class Event:
    def __init__(self, enable_timing: bool, external: bool) -> None:
        assert enable_timing and external  # without them a graph records nothing
        self.at = -1.0

    def record(self, stream: object = None) -> None:
        self.at = NOW[0]

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) / 1e3


class Stream:
    """Each operation takes as many us as it has elements, or as it is told."""

    def __init__(self, handle: int) -> None:
        self.handle, self.stream = handle, object()

    def launch(self, kernel: Any, grid: tuple[int, ...], *args: object, **options: object) -> None:
        NOW[0] += kernel.us

    def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
        NOW[0] += src.numel()

    def matmul(self, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        NOW[0] += out.numel()

    def all_gather(self, out: torch.Tensor, x: torch.Tensor) -> None:
        NOW[0] += out.numel()

    def write(self, word: torch.Tensor, value: int) -> None:
        NOW[0] += 1

    def wait_at_least(self, word: torch.Tensor, value: int) -> None:
        NOW[0] += value

    def after(self, other: Stream) -> None:
        NOW[0] += 50


class Tick:
    """Tells its time in ns, by a clock that began long ago."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(times: torch.Tensor, place: int, num_warps: int) -> None:
            NOW[0] += 0.01
            times[place] = int(1e9 + NOW[0] * 1e3)
            NOW[0] += 0.01

        return run


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> tuple[StreamTimes, Stream, Stream]:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(streams, "tick", Tick())
    module = SimpleNamespace(Stream=type("Stream", (Stream,), {}))
    main, side = module.Stream(1), module.Stream(2)
    fabric = SimpleNamespace(device="cpu", is_loading=False, _streams={"copy_x": side})
    return StreamTimes(module, fabric), main, side  # type: ignore[arg-type]


def kernel(name: str, us: float, *names: str) -> Any:
    return SimpleNamespace(__name__=name, us=us, arg_names=["x", *names])


def test_spans_are_those_of_the_last_call(recorded: tuple[StreamTimes, Stream, Stream]) -> None:
    times, main, side = recorded
    for scale in (3, 1):  # what a call before has done is forgotten
        times.begin()
        zero = NOW[0]
        side.after(main)
        side.wait_at_least(torch.zeros(1), 7 * scale)
        side.copy(torch.zeros(64 * scale), torch.zeros(64 * scale))
        side.copy(torch.zeros(1), torch.zeros(1))  # tells of it
        side.copy(torch.zeros(32 * scale), torch.zeros(32 * scale))
        main.launch(kernel("count_rows", 5.0), (1,))
        main.launch(kernel("y_kernel", 100.0, "stamps"), (1,))
        main.launch(kernel("y_waits", 4.0), (1,))
        main.matmul(torch.zeros(20), torch.zeros(1), torch.zeros(1))
        main.all_gather(torch.zeros(30), torch.zeros(1))
    found, within = times.spans()
    spans = [
        (one.stream, one.doing, one.where, round(one.begin_ns / 1e3 - 1e6 - zero), round(one.end_ns / 1e3 - 1e6 - zero))
        for one in found
    ]
    assert spans == [
        ("copy_x", Doing.WAIT, "wait_at_least >= 7", 50, 57),
        ("copy_x", Doing.MOVE, "copy 64", 57, 121),
        ("copy_x", Doing.MOVE, "copy 32", 121, 154),  # one event between two: that it is told is in front of it
        ("main", Doing.TILE, "count_rows", 154, 159),
        ("main", Doing.WAIT, "y_waits", 259, 263),
        ("main", Doing.TILE, "matmul 20", 263, 283),
        ("main", Doing.MOVE, "all_gather 30", 283, 313),
    ]
    assert within <= 11


def test_loading_is_no_call(recorded: tuple[StreamTimes, Stream, Stream]) -> None:
    times, main, _ = recorded
    times.begin()
    times.fabric.is_loading = True
    main.matmul(torch.zeros(20), torch.zeros(1), torch.zeros(1))
    assert times.spans()[0] == []


@given(
    st.floats(0, 1e9),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 9), st.floats(0.01, 9)), min_size=1, max_size=16),
)
def test_the_clock_is_where_all_readings_allow_it(zero: float, rounds: list[tuple[float, float, float]]) -> None:
    readings, now = list[Reading](), 0.0
    for pause, before, behind in rounds:
        begin = now + pause
        readings.append(Reading(round(zero + (begin + before) * 1e3), begin, begin + before + behind))
        now = begin + before + behind
    found, within = zero_of(readings)
    assert abs(found - zero) <= within + 1  # the clock has whole ns
    assert within <= min(before + behind for _, before, behind in rounds) * 1e3 / 2 + 1


def test_spans_begin_where_the_call_does() -> None:
    (span,) = of_streams([StreamSpan("main", Doing.TILE, "matmul", 5_000.0, 9_000.0)], 3_000.0)
    assert (span.lane, span.doing, span.where, span.start_us, span.end_us) == (
        "stream main",
        Doing.TILE,
        "matmul",
        2,
        6,
    )
