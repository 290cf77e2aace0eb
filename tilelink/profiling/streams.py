"""What streams do when: copies of copy engines, calls of libraries, waits of streams, and kernels without stamps of their own.

A kernel of one program writes down the time before and behind what needs an SM as well. CUDA records events around the rest: a
kernel beside programs that fill all SMs would begin behind them only, and they may wait for the copy that it precedes.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from tilelink.profiling.clocks import clock
from tilelink.profiling.timeline import Doing, Span

MAIN = "main"  # the stream of the caller
_SIGNAL = 64  # bytes: a smaller copy tells that a larger one has come
_TICKS = 16  # readings of the GPU's clock, each between two events
_POINTS = 4096  # readings of a graph
_WITHOUT_SM = ("copy", "copy_2d", "wait_at_least")
_DOING = {
    "copy": Doing.MOVE,
    "copy_2d": Doing.MOVE,
    "wait_at_least": Doing.WAIT,
    "matmul": Doing.TILE,
    "attention": Doing.TILE,
}
_KINDS = {"waits": Doing.WAIT, "finish_kernel": Doing.END}  # of kernels, by the end of their names
_HIDDEN = ("launch", "write", "after", "captures", "most_registers")  # others of a stream are collectives of a library


@triton.jit(do_not_specialize=["place"])
def tick(times, place):
    tl.store(times + place, clock())


Point = torch.cuda.Event | int  # an event, or the place of a reading of the clock


class Mark(NamedTuple):
    """What a stream did between two points."""

    stream: str
    doing: Doing
    where: str
    begin: Point
    end: Point


class StreamSpan(NamedTuple):
    """What a stream did, in ns of the GPU's clock."""

    stream: str
    doing: Doing
    where: str
    begin_ns: float
    end_ns: float


@dataclass(frozen=True, slots=True)
class Reading:
    """The GPU's clock, in ns, was read `from_us` to `to_us` behind the first event."""

    ns: int
    from_us: float
    to_us: float


def zero_of(readings: Sequence[Reading]) -> tuple[float, float]:
    """The GPU's clock, in ns, when the first event was recorded; and how well that is known, in ns."""
    low = max(one.ns - one.to_us * 1e3 for one in readings)
    high = min(one.ns - one.from_us * 1e3 for one in readings)
    return (low + high) / 2, abs(high - low) / 2  # the resolution of events may put low above high


class StreamTimes:
    """Records what streams of an emitted file do, from when it is made on. Its last call is the one that counts."""

    def __init__(self, module: ModuleType, fabric: Any) -> None:
        self.fabric = fabric
        self.marks: list[Mark] = []
        self.before: list[Mark] = []  # of graphs that still record their events
        self.last: dict[int, Point] = {}  # by handle of a stream, where all enqueued since is marked
        self.ticks = [(_event(), _event()) for _ in range(_TICKS)]
        self.times = torch.zeros(_TICKS + _POINTS, dtype=torch.int64, device=fabric.device)
        self.read = 0  # readings of the call so far
        tick[(1,)](self.times, 0, num_warps=1)  # loaded before a capture
        for name in _operations(module.Stream):
            setattr(module.Stream, name, self._recorded(name, getattr(module.Stream, name)))
        after = module.Stream.after

        def later(stream: Any, other: Any) -> None:
            self.last.pop(stream.handle, None)
            after(stream, other)

        module.Stream.after = later

    def begin(self) -> None:
        """Forget what was recorded, and read the clock a few times. What follows on the current stream is the call."""
        self.before += self.marks
        self.marks, self.read = [], 0
        self.last.clear()
        for place, (before, behind) in enumerate(self.ticks):
            before.record()
            tick[(1,)](self.times, place, num_warps=1)
            behind.record()

    def spans(self) -> tuple[list[StreamSpan], float]:
        """Of the call that has ended; and how well their times are known, in ns."""
        first, times = self.ticks[0][0], self.times.tolist()
        readings = [
            Reading(ns, _us(first, before), _us(first, behind))
            for ns, (before, behind) in zip(times[:_TICKS], self.ticks, strict=True)
        ]
        zero, within = zero_of(readings)

        def ns_of(point: Point) -> float:
            return float(times[point]) if isinstance(point, int) else zero + 1e3 * _us(first, point)

        return [StreamSpan(*one[:3], ns_of(one.begin), ns_of(one.end)) for one in self.marks], within

    def _point(self, stream: Any, name: str) -> Point:
        """Now, on a stream that goes on or ends with such an operation."""
        if name in _WITHOUT_SM:
            event = _event()
            event.record(stream.stream)
            return event
        place = _TICKS + self.read % _POINTS
        self.read += 1
        with torch.cuda.stream(stream.stream):
            tick[(1,)](self.times, place, num_warps=1)
        return place

    def _recorded(self, name: str, call: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(call)
        def recorded(stream: Any, *args: Any, **options: Any) -> None:
            kept = self._kept(name, args)
            if kept is None or self.fabric.is_loading:
                if name == "launch":
                    self.last.pop(stream.handle, None)
                call(stream, *args, **options)
                return
            begin = self.last[stream.handle] if stream.handle in self.last else self._point(stream, name)
            call(stream, *args, **options)
            end = self._point(stream, name)
            self.last[stream.handle] = end
            self.marks.append(Mark(self._name(stream), *kept, begin, end))

        return recorded

    def _kept(self, name: str, args: Sequence[Any]) -> tuple[Doing, str] | None:
        """What the operation is; None for one that is told otherwise, or takes no time worth telling."""
        if name == "launch":
            kernel = args[0]
            if "stamps" in kernel.arg_names:
                return None
            doing = next((kind for end, kind in _KINDS.items() if kernel.__name__.endswith(end)), Doing.TILE)
            return doing, str(kernel.__name__)
        if name in ("copy", "copy_2d") and args[1].nbytes <= _SIGNAL:
            return None
        shape = "x".join(map(str, args[0].shape)) if name != "wait_at_least" else f">= {args[1]}"
        return _DOING.get(name, Doing.MOVE), f"{name} {shape}"

    def _name(self, stream: Any) -> str:
        return next((name for name, one in self.fabric._streams.items() if one is stream), MAIN)


def of_streams(found: Sequence[StreamSpan], zero: float) -> list[Span]:
    """In us behind `zero`, a time in ns of the GPU's clock."""
    return [
        Span(f"stream {one.stream}", one.doing, one.where, (one.begin_ns - zero) / 1e3, (one.end_ns - zero) / 1e3)
        for one in found
    ]


def _operations(stream: type) -> list[str]:
    named = [name for name in dir(stream) if not name.startswith("_") and callable(getattr(stream, name))]
    return ["launch", *(name for name in named if name not in _HIDDEN)]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True, external=True)  # type: ignore[no-untyped-call]


def _us(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    return 1e3 * float(begin.elapsed_time(end))
