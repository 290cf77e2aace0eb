"""On one GPU: schedules that push by copy engine, where a copy takes as long as a link would take. The GPU stands for all ranks.

    python benchmarks/bench.py gemm_rs --ranks 4 --rows llama-7b --variant late:count=late --write-plans plans.json
    python lab/paced.py plans.json --gb-per-s 389 --json paced.json

All ranks are taken to be in step: when rank 0 has sent a chunk to peer p, the chunk of the rank whose turn at this GPU it was
has arrived here, and its signal is raised. The chunk itself comes from the memory of the host, by a copy engine and through
the bus, and is cut so that copy and signal take as long as they would through a link of so many GB/s. So kernels, counts, waits
and copy streams are those of several GPUs. What is missing: ranks out of step, two that send to one, and most of what links
move through the memory of a GPU. Values are random.
Calls in a CUDA graph, contenders in a new order each round, each behind 40 ms of the matmul alone (of the first contender, if
the row has several matmuls), median over rounds.
Run it under `timeout`: streams that share a queue of the GPU may wait for each other where many contenders have many of them.
(More queues, by CUDA_DEVICE_MAX_CONNECTIONS, make copies from the host begin later.)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from cuda.bindings import driver

import lowering
from lab.arrived import arrives, in_turns
from lab.one_gpu import Results, command_line, operator_on_one, run, time_us
from tilelink.bench.plans import PlannedRow
from tilelink.ir.movers import CopyEngine
from tilelink.ir.nodes import Scope, Signal
from tilelink.ir.schedule import Schedule
from tilelink.planner.links import COPY_START_US

_WORD_BYTES = 4
_HOST_BYTES = 64 << 20
_LEAST_BYTES = 16
_SAMPLES, _ROUNDS = 12, 9
_SAMPLE_BYTES = 1 << 20, 4 << 20


def _copy(dst: int, src: int, num_bytes: int, stream: int) -> None:
    status, *_ = driver.cuMemcpyAsync(dst, src, num_bytes, stream)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuMemcpyAsync failed: {status}")


class Bus:
    """Memory of the host, and how long a copy engine takes to fetch from there, behind a wait of its stream and with the copy of
    a word behind it: `start_us`, and bytes at `gb_per_s`."""

    def __init__(self) -> None:
        self.memory = torch.randn(_HOST_BYTES // 2).to(torch.bfloat16).pin_memory()
        few, many = (self._measured_us(num_bytes) for num_bytes in _SAMPLE_BYTES)
        self.gb_per_s = (_SAMPLE_BYTES[1] - _SAMPLE_BYTES[0]) / (many - few) / 1e3
        self.start_us = few - _SAMPLE_BYTES[0] / self.gb_per_s / 1e3

    def _measured_us(self, num_bytes: int) -> float:
        there, word = torch.empty_like(self.memory, device="cuda"), torch.ones(1, dtype=torch.int32, device="cuda")
        one, graph = torch.ones(1, dtype=torch.int32).pin_memory(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stream = torch.cuda.current_stream().cuda_stream
            for _ in range(_SAMPLES):
                driver.cuStreamWaitValue32(stream, word.data_ptr(), 1, 0)
                _copy(there.data_ptr(), self.memory.data_ptr(), num_bytes, stream)
                _copy(word.data_ptr(), one.data_ptr(), _WORD_BYTES, stream)
        return min(time_us(graph, 5) for _ in range(_ROUNDS)) / _SAMPLES

    def bytes_for(self, us: float) -> int:
        """So many are fetched in that time."""
        found = int((us - self.start_us) * self.gb_per_s * 1e3) // _LEAST_BYTES * _LEAST_BYTES
        return min(max(_LEAST_BYTES, found), _HOST_BYTES)


class Words:
    """Signals of a peer as rank 0 raises them: they are those here of the rank whose turn it is at this GPU at the same time."""

    def __init__(self, local: torch.Tensor, signals: tuple[Signal, ...], peer: int, ranks: int) -> None:
        self.local = local
        self.told = [signal for signal in signals if signal.scope is Scope.PEER]
        self.sender, self.ranks = -peer % ranks, ranks

    def __getitem__(self, words: slice) -> torch.Tensor:
        found = next((s for s in self.told if s.first <= words.start < s.first + s.slots), None)
        shift = self.sender * found.slots // self.ranks if found is not None else 0
        return self.local[words.start + shift : words.stop + shift]


def memory_of(schedule: Schedule) -> Callable[..., Any]:
    """Makes the symmetric memory of the schedule: parts lie here where their sender's belong, counts of peers are this one's."""

    class Paced:
        def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, ranks: int) -> None:
            size = math.prod(shape)
            if dtype.is_floating_point:
                self.memory = torch.randn(2 * size, device=device).to(dtype)
                starts = [-peer % ranks * size // ranks for peer in range(ranks)]
                self.peers: tuple[Any, ...] = tuple(self.memory[at : at + size].view(shape) for at in starts)
            else:
                self.memory = torch.zeros(size, dtype=dtype, device=device)
                self.peers = tuple(Words(self.memory, schedule.signals, peer, ranks) for peer in range(ranks))
            self.local = self.memory[:size].view(shape)
            self.pointers = torch.full((ranks,), self.local.data_ptr(), dtype=torch.int64, device=device)

    return Paced


def paced(bus: Bus, gb_per_s: float) -> Callable[[type[Any]], type[Any]]:
    """Streams that copy to peers through the bus. The number of the call, which signals hold, comes from the host as well: it
    is fetched there when a stream begins its part of a call."""

    def stream_type(base: type[Any]) -> type[Any]:
        class Stream(base):
            def __init__(self, stream: torch.cuda.Stream, fabric: Any) -> None:
                super().__init__(stream, fabric)
                self.fetched = False

            @cached_property
            def call(self) -> torch.Tensor:
                return torch.zeros(1, dtype=torch.int32).pin_memory()

            @cached_property
            def fetching(self) -> Any:
                return base(self.fabric.new_stream(), self.fabric)

            def copies(self) -> bool:
                """Whether this is a copy stream, not that of a caller or a capture."""
                streams = self.fabric._streams.items()
                return any(stream is self and name.startswith("copy_") for name, stream in streams)

            def after(self, other: Any) -> None:
                if isinstance(other, Stream):
                    other.join()
                super().after(other)
                if self.fabric.is_loading:
                    return
                if self.copies():  # its part of a call begins
                    self.fetching.after(other)
                    _copy(self.call.data_ptr(), self.fabric.epoch.data_ptr(), _WORD_BYTES, self.fetching.handle)
                    self.fetched = True

            def join(self) -> None:
                if self.fetched:
                    super().after(self.fetching)
                    self.fetched = False

            def copy(self, dst: torch.Tensor, src: torch.Tensor) -> None:
                if self.fabric.is_loading:
                    return
                if not self.copies():
                    super().copy(dst, src)
                elif src.nbytes == _WORD_BYTES:
                    self.join()
                    _copy(dst.data_ptr(), self.call.data_ptr(), _WORD_BYTES, self.handle)
                else:
                    part = bus.bytes_for(COPY_START_US + src.nbytes / gb_per_s / 1e3)
                    _copy(dst.data_ptr(), bus.memory.data_ptr(), part, self.handle)

        return Stream

    return stream_type


def moves(schedule: Schedule) -> bool:
    """Whether signals of copy engines are all that ranks tell each other."""
    return arrives(schedule) and all(isinstance(x.mover, CopyEngine) for x in schedule.exchanges)


def measure(planned: PlannedRow, bus: Bus, gb_per_s: float) -> Results | None:
    """One row, or nothing if none of its schedules runs here; an emitted file takes part if it has the signals of the first
    schedule."""
    schedules = {c.label: c.schedule for c in planned.candidates if c.schedule is not None and moves(c.schedule)}
    if not schedules:
        return None
    first = next(iter(schedules.values()))
    sources = {label: lowering.emit(schedule) for label, schedule in schedules.items()}
    sources |= {c.label: c.source for c in planned.candidates if c.schedule is None and c.source}
    operators = {}
    for label, source in sources.items():
        memory = memory_of(schedules.get(label, first))
        operator = operator_on_one(source, planned.row.operator.value, memory, paced(bus, gb_per_s))
        operator.fabric.epoch = operator.epoch
        operators[label] = operator
    return in_turns(planned, operators)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--gb-per-s", type=float, default=389.0, help="what a link carries")
    arguments = parser.parse_args()
    bus = Bus()
    print(f"from the host: {bus.start_us:.1f} us and {bus.gb_per_s:.1f} GB/s", flush=True)
    facts = {
        "link_gb_per_s": arguments.gb_per_s,
        "bus_gb_per_s": round(bus.gb_per_s, 1),
        "bus_start_us": round(bus.start_us, 1),
    }
    run(lambda planned: measure(planned, bus, arguments.gb_per_s), arguments, facts)


if __name__ == "__main__":
    main()
