"""A device with a clock that calls advance, contenders of known speed, and records made of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from lowering.selfcheck.near import Near
from tilelink.bench.contender import Setting
from tilelink.bench.record import SCHEMA, Machine, Record, RowResult
from tilelink.bench.rows import Operator, Row
from tilelink.measuring.contender import Contender, Kind, Mode
from tilelink.measuring.device import Call, Change, Outputs
from tilelink.measuring.measure import Problem
from tilelink.measuring.results import ContenderResult, ScheduleFacts

ROW = Row(Operator.AG_GEMM, "llama3-8b", 8192, 4096, 14336, "bf16")


def same(text: str) -> str:
    return text


@dataclass
class FakeDevice:
    """Rank 0 of two; the other one answers what `peer` makes of this rank's text."""

    peer: Callable[[str], str] = same
    rank: int = 0
    num_ranks: int = 2
    clock_us: float = 0.0
    works: bool = True
    captures: bool = True
    flush_us: float = 70.0
    meetings: int = 0
    flushes: int = 0
    flushes_before_capture: list[int] = field(default_factory=list)
    order: list[str] = field(default_factory=list)  # of the contenders' calls

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Contenders that ran one after the other, and how often."""
        return [(name, len(list(calls))) for name, calls in itertools.groupby(self.order)]

    def meet(self) -> None:
        self.meetings += 1

    def exchange(self, text: str) -> list[str]:
        return [text, self.peer(text)]

    def usable(self) -> bool:
        return self.works

    def capture(self, call: Call, calls: int) -> Call:
        if not self.captures:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.flushes_before_capture.append(self.flushes)

        def replay() -> Outputs:
            outputs: Outputs = ()
            for _ in range(calls):
                outputs = call()
            return outputs

        return replay

    def time(self, batch: Call, lead_in: int, batches: int, change: Change | None = None) -> list[float]:
        found = []
        for number in range(lead_in + batches):
            if change is not None:
                change(number)
            start = self.clock_us
            batch()
            found.append(self.clock_us - start)
        return found[lead_in:]

    def host_us(self, call: Call, calls: int) -> float:
        for _ in range(calls):
            call()
        return 12.5

    def now_s(self) -> float:
        return self.clock_us * 1e-6

    def flush_l2(self) -> None:
        self.flushes += 1
        self.clock_us += self.flush_us

    def release(self) -> None: ...


def problem(x: float = 1.0, row: Row = ROW) -> Problem:
    """The operation is `2 * x`, of one element, with a bound of 1 %; fresh activations are 3."""
    setting = Setting(row, 0, 2, (torch.tensor([x]),))
    return Problem(setting, (_near(2 * x),), lambda: ((torch.tensor([3.0]),), (_near(6.0),)))


def _near(value: float) -> Near:
    return Near(torch.tensor([value], dtype=torch.float64), torch.tensor([0.01 * abs(value)]))


def doubling(
    device: FakeDevice, name: str, us: float, kind: Kind = Kind.BASELINE, mode: Mode = Mode.GRAPH, host: bool = False
) -> Contender:
    """Right, and `us` microseconds a call."""

    def prepare(setting: Setting) -> Call:
        def call() -> Outputs:
            device.clock_us += us
            device.order.append(name)
            return () if kind is Kind.PART else (setting.x * 2,)

        return call

    return Contender(name, kind, mode, prepare, host=host)


def result(name: str, us: float | None, kind: str = "baseline", failure: str = "", origin: str = "") -> ContenderResult:
    schedule = ScheduleFacts(origin, f"hash of {name}", 111.0, {"x_full.mover": "CopyEngine()"}) if origin else None
    samples = ((us, us), (us, us)) if us is not None else ()
    return ContenderResult(name, kind, "graph", 5, samples, us, us, us, None, 0.5, 0.5, 1.0, failure, "", schedule)


def row_result(operator: str, name: str, *contenders: ContenderResult, failure: str = "") -> RowResult:
    """Its link's limit is 100 us."""
    return RowResult(operator, name, 8192, 4096, 14336, "bf16", 1e12, 38.9e6, 389.0, 1.5, failure, (), contenders)


def record(*rows: RowResult, complete: bool = True) -> Record:
    versions = {"torch": "2.11.0", "triton": "3.6.0"}
    machine = Machine("NVIDIA H200", 4, "580.1", 4, "h200-nvswitch", versions, {}, ("0, NVIDIA H200",), ())
    options: dict[str, float | int | bool | str] = {"rounds": 7, "l2_cold": False}
    return Record(SCHEMA, "abc1234", "2026-01-01T00:00:00+00:00", machine, options, rows, complete)
