"""Kernels that helper processes compile for the ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

import topologies
from tests.bench.fakes import ROW
from tilelink.bench import ahead
from tilelink.bench.ahead import compile_kernels, compiled_ahead
from tilelink.bench.operators import declaration
from tilelink.bench.plans import Candidate, Origin, PlannedRow
from tilelink.bench.rows import Operator
from tilelink.ir.schedule import Schedule

ROOT = Path(__file__).resolve().parents[2]


class Helpers:
    """Processes that only write down what they are given."""

    def __init__(self) -> None:
        self.workers: list[int] = []
        self.given: list[object] = []

    @contextmanager
    def fresh_processes(self, workers: int) -> Iterator[Helpers]:
        self.workers.append(workers)
        yield self

    def submit(self, function: object, schedule: object) -> None:
        assert function is compile_kernels
        self.given.append(schedule)

    def shutdown(self, **options: bool) -> None:
        assert options == {"wait": False, "cancel_futures": True}
        self.given.append("end")


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> Helpers:
    found = Helpers()
    monkeypatch.setattr(ahead, "fresh_processes", found.fresh_processes)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    return found


def row(*schedules: str | None) -> PlannedRow:
    return PlannedRow(ROW, tuple(Candidate("x", Origin.PLANNED, cast("Any", one), "") for one in schedules))


def test_helpers_take_schedules_in_the_order_of_rows(helpers: Helpers) -> None:
    with compiled_ahead([row("a", None), row("b", "c"), row()], num_ranks=2):
        assert helpers.given == ["a", "b", "c"]
    assert helpers.given[-1] == "end"  # what nobody has begun stays undone
    assert helpers.workers == [3]


def test_two_cores_a_rank_stay_free(helpers: Helpers, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [row(*map(str, range(20)))] * 3
    with compiled_ahead(many, num_ranks=2):
        assert helpers.workers == [12]
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    with compiled_ahead(many, num_ranks=2):
        assert helpers.workers == [12]  # no others


@pytest.mark.parametrize("rows", [[row("a")] * 2, [row(None)] * 3], ids=["few rows", "no schedules"])
def test_what_is_not_worth_it_starts_no_helpers(rows: list[PlannedRow], helpers: Helpers) -> None:
    with compiled_ahead(rows, num_ranks=2):
        assert helpers.workers == []


# what a rank does when it loads a file, but for the driver, which takes the binary
AS_A_RANK = """
import sys
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget

import lowering
from lowering.host.gpu_fabric import GpuStream
from tilelink.bench.ahead import compile_kernels
from tilelink.ir.schedule import Schedule
from tilelink.runtime.aot import record
from tilelink.runtime.load import load_source


class Driver:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


schedule = Schedule.from_json(Path(sys.argv[1]).read_text())
print(compile_kernels(schedule))
triton.runtime.driver.set_active(Driver())
print(*sorted(path.name for path in Path(sys.argv[2]).iterdir()))
for launch in record(load_source(lowering.emit(schedule), schedule.name), schedule.num_ranks):
    options = dict(launch.options)
    options |= GpuStream.most_registers(options.pop("per_sm", 1), options)
    launch.kernel.warmup(*launch.arguments, grid=launch.grid, **options)
print(*sorted(path.name for path in Path(sys.argv[2]).iterdir()))
"""


@pytest.mark.parametrize(
    ("pins", "kernels"),
    [
        # a loop whose programs share SMs, and a sum of 16 warps, whose registers are bounded
        ({"compute": "triton", "tile": "128x128x64/4w3s2p"}, 2),
        # Gluon
        ({"mover": "CopyEngine()", "transfer": "push", "tile": "128x128x64/4w4s2g"}, 1),
    ],
    ids=["triton", "gluon"],
)
@pytest.mark.slow
def test_the_just_in_time_compiler_finds_the_kernels_in_the_cache(
    pins: dict[str, str], kernels: int, tmp_path: Path
) -> None:
    cache, plan = tmp_path / "cache", tmp_path / "schedule.json"
    plan.write_text(planned(pins).to_json())
    done = subprocess.run(
        [sys.executable, "-c", AS_A_RANK, str(plan), str(cache)],
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    number, before, after = done.stdout.splitlines()
    assert int(number) == len(before.split()) == kernels
    assert after == before


def planned(pins: dict[str, str]) -> Schedule:
    machine = topologies.load("h200-nvswitch", 2)
    sizes = {"M": 1024, "K": 512, "N": 512}
    return declaration(Operator.GEMM_RS, False).plan_for(machine, sizes, "bf16", pins)
