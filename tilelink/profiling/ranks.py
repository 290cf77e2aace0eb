"""`torchrun -m tilelink.profiling.ranks SCHEDULE.json SOURCE.py SPANS.json`: a call of an emitted file, each program with its
times on one clock, for `tilelink show --measured`.

The call alone is timed in a CUDA graph, behind 300 ms of such calls, then with stamps; spans are those of one call.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.measuring.device import Call, CudaDevice
from tilelink.profiling.alone import alone_calls
from tilelink.profiling.clocks import Offset, ask, drifted, offset_of
from tilelink.profiling.stamps import Stamped, stamped
from tilelink.profiling.streams import StreamSpan, StreamTimes, of_streams
from tilelink.profiling.timeline import Span, first_stamp, spans, spans_to_json
from tilelink.runtime.load import fabric_class, load_source, operator_class
from tilelink.runtime.ranks import MULTICAST_OFF, join, machine

_CALLS, _ROUNDS, _POLLS = 10, 64, 1 << 22  # calls in a graph, questions to a clock, loads of a word at most
_LOAD_US = 3e5  # that calls take in front of those that are timed, and of the one that is shown
_SAMPLES, _BATCHES = 3, 4


class Seen(NamedTuple):
    """One call of a rank: stamps by slot and program, and what streams did, in ns of its clock, known within `within` ns."""

    words: list[list[int]]
    streams: list[StreamSpan]
    within: float


def profile(schedule: Schedule, source: str) -> dict[str, object]:
    """What SPANS.json has. All ranks call it alike, and get it alike."""
    device = CudaDevice(torch.device("cuda", torch.cuda.current_device()))
    plain_us, _, _ = _timed(schedule, source, None, device)
    marked = stamped(source)
    marked_us, seen, offsets = _timed(schedule, marked.source, marked, device)
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, seen)
    by_rank, within = on_one_clock(found, marked, offsets)
    call = spans_to_json(schedule.hash, machine(), round(plain_us, 2), by_rank)
    alone = _alone_us(schedule.spec, device)
    more = {
        "call_with_stamps_us": round(marked_us, 2),
        "clocks_within_us": round(within / 1e3, 2),
        "streams_within_us": round(max(one.within for one in found) / 1e3, 2),
    }
    return call | more | ({} if alone is None else {"alone_us": round(alone, 2)})


def on_one_clock(found: Sequence[Seen], marked: Stamped, offsets: Sequence[Offset]) -> tuple[list[list[Span]], float]:
    """Spans of each rank, from the first one of any rank on, by the clock of rank 0; and how well that is known, in ns."""
    firsts = [first_stamp(seen.words) for seen in found]
    begins = [
        min([*([first] if first else []), *(one.begin_ns for one in seen.streams)], default=0.0) - offset.ahead
        for seen, first, offset in zip(found, firsts, offsets, strict=True)
    ]
    zero, by_rank = min(begins), []
    for seen, first, offset in zip(found, firsts, offsets, strict=True):
        later = (first - offset.ahead - zero) / 1e3
        stamps = (
            replace(one, start_us=one.start_us + later, end_us=one.end_us + later)
            for one in spans(seen.words, marked.sites)
        )
        by_rank.append([*of_streams(seen.streams, zero + offset.ahead), *stamps])
    return by_rank, max(one.within for one in offsets)


def _alone_us(spec: BoundSpec, device: CudaDevice) -> float | None:
    """Of a rank's matmuls and attention by the library; None where a spec has other heavy operations, or none."""
    calls = alone_calls(spec)
    if not calls:
        return None
    for one in calls:
        one()  # a library takes memory in its first call, which a graph cannot
    batch = device.capture(lambda: tuple(one() for one in calls), _CALLS)
    return _slowest(device, batch)


def _timed(
    schedule: Schedule, source: str, marked: Stamped | None, device: CudaDevice
) -> tuple[float, Seen, list[Offset]]:
    """us of a call on the slowest rank; what is seen of one more call of a marked source, and clocks around it."""
    module = load_source(source, schedule.name)
    fabric = fabric_class(module)()
    op: Any = operator_class(module)(fabric)
    times = StreamTimes(module, fabric) if marked is not None else None
    inputs = list(module.make_inputs(fabric.rank, 0, fabric.device).values())
    for _ in range(3):
        op(*inputs)
    device.meet()
    batch = device.capture(lambda: op(*inputs), _CALLS)
    us = _slowest(device, batch)
    seen, offsets = Seen([], [], 0.0), list[Offset]()
    if marked is not None:
        assert times is not None, "a marked source has its streams recorded"
        clocks, shown = _Clocks(fabric, device), device.capture(partial(_recorded, times, op, inputs), 1)
        before = clocks.offsets()
        load = _load_of(device, shown)
        device.meet()
        device.time(shown, load, 1)
        words = op.stamps.cpu().view(marked.slots, marked.programs).tolist() if hasattr(op, "stamps") else []
        seen = Seen(words, *times.spans())
        offsets = [drifted(*both) for both in zip(before, clocks.offsets(), strict=True)]
    device.meet()
    return us, seen, offsets


def _recorded(times: StreamTimes, op: Any, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Calls of which the last one is seen: between graphs of a call each a GPU rests, and is faster than in a row of calls."""
    for _ in range(_CALLS - 1):
        op(*inputs)
    if hasattr(op, "stamps"):
        op.stamps.zero_()  # a call need not pass all of them, and those of the call before would seem to be its own
    times.begin()
    outputs: tuple[torch.Tensor, ...] = op(*inputs)
    return outputs


class _Clocks:
    def __init__(self, fabric: Any, device: CudaDevice) -> None:
        self.fabric, self.device, self.asked = fabric, device, 0
        self.words = fabric.symmetric((fabric.num_ranks,), torch.int32)
        self.times = torch.zeros(_ROUNDS, 2, dtype=torch.int64, device=fabric.device)

    def offsets(self) -> list[Offset]:
        """Of all ranks, on all ranks."""
        found = [Offset(0.0, 0.0)]
        for other in range(1, self.fabric.num_ranks):
            here = self.fabric.rank
            self.times.zero_()
            self.device.meet()
            if here in (0, other):
                peer = other if here == 0 else 0
                pointers = self.words.pointers + 4 * here  # each rank has a word for each other one
                arguments = self.words.local[peer:], pointers, peer, self.asked, _ROUNDS, self.times, _POLLS
                ask[(1,)](*arguments, ASKS=here == 0, num_warps=1)
            self.device.meet()
            every: list[Any] = [None] * self.fabric.num_ranks
            dist.all_gather_object(every, self.times.tolist())
            offset = offset_of([(a, b) for a, b in every[0]], [t for t, _ in every[other]])
            if offset is None:
                raise RuntimeError(f"rank {other} did not answer rank 0, which asked for its clock")
            found.append(offset)
        self.asked += _ROUNDS
        return found


def _slowest(device: CudaDevice, batch: Call) -> float:
    """us of a call on the rank where it takes longest, behind a load."""
    load, times = _load_of(device, batch), list[float]()
    for _ in range(_SAMPLES):
        device.meet()
        times += device.time(batch, load, _BATCHES)
    return _longest(device, statistics.median(times)) / _CALLS


def _load_of(device: CudaDevice, batch: Call) -> int:
    """How many of it run for `_LOAD_US`, on any rank: what ran in the half second before decides on the clocks of a GPU, which
    are higher behind a pause than those of a model that serves."""
    device.meet()
    (us,) = device.time(batch, 1, 1)
    return math.ceil(_LOAD_US / _longest(device, us))


def _longest(device: CudaDevice, us: float) -> float:
    return max(map(float, device.exchange(str(us))))


def main(arguments: list[str]) -> int:
    schedule, source, output = (Path(one) for one in arguments)
    os.environ.update(MULTICAST_OFF)
    join()
    found = profile(Schedule.from_json(schedule.read_text()), source.read_text())
    if dist.get_rank() == 0:
        output.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
