"""Outputs that peers put together in place, and calls that end together: emulated, for both targets."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.pipeline.test_emitted import compiles
from tests.pipeline.workloads import STOCK_FIRST, load
from tilelink.emulator import World
from tilelink.errors import IdlePin, IllegalPin, NoLegalSchedule
from tilelink.ir.nodes import Begin, Finish, Memory
from tilelink.ir.schedule import Schedule
from tilelink.runtime.compare import compare_call
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import kept, make_inputs
from tilelink.runtime.run import run_emulated

GEMM_AR = "04_gemm_ar.py:gemm_ar"
IN_PLACE = {"algorithm": "in-place"}
TILE = {"y.compute": "triton", "y.tile": "16x32x16/4w2s"}
SCHEDULES = {
    "one kernel": {**TILE, "mover": "Fused()", "transfer": "push", "sum": "epilogue"},
    "the library, then one kernel": {"y.compute": "library", "mover": "Fused()"},
    "copy engines in chunks": {**TILE, "mover": "CopyEngine()", "sum": "epilogue", "out.chunks": "3"},
    "copies in, stores out": {**TILE, "y_parts.mover": "CopyEngine()", "out.mover": "Fused()", "sum": "epilogue"},
    "SMs in, copies out, a sum of its own": {
        **TILE,
        "y_parts.mover": "CommSms(2)",
        "out.mover": "CopyEngine()",
        "sum": "kernel",
    },
}


def planned(num_ranks: int, pins: dict[str, str], rows: int = 40) -> Schedule:
    sizes = {"M": rows * num_ranks, "K": 32 * num_ranks, "N": 64}
    machine = topologies.load("laptop-switch", num_ranks)
    return load(GEMM_AR).plan_for(machine, sizes, "bf16", {**IN_PLACE, **pins})


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize(
    "num_ranks", [2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.quick(3)
def test_runs(name: str, num_ranks: int, target: str) -> None:
    schedule = planned(num_ranks, SCHEDULES[name])
    assert schedule.buffer("out").memory is Memory.SYMMETRIC
    result = run_emulated(schedule, lowering.emit(schedule, target), calls=3, seed=num_ranks)
    assert result.equal, f"{result.lines()}\n{schedule}"


def test_one_kernel_is_the_whole_call() -> None:
    schedule = planned(4, SCHEDULES["one kernel"])
    _, finish = schedule.launches
    assert isinstance(finish, Finish)
    assert finish.meets
    assert finish.within
    assert [signal.name for signal in schedule.signals if signal.name.startswith("out")] == []
    source = lowering.emit(schedule)
    assert source.count("main.launch(") == 1


def test_every_call_returns_the_same_memory_and_fresh_outputs_do_not() -> None:
    """What was kept before the next call is right; the returned tensor holds the result of the last one."""
    schedule = planned(2, SCHEDULES["one kernel"])
    build = operator_class(load_source(lowering.emit(schedule), schedule.name))
    world = World(2, num_sms=schedule.machine.num_sms, seed=3, lazy_loading=True)
    operators = [build(fabric) for fabric in world.fabrics]
    calls = [make_inputs(schedule.spec, seed) for seed in (1, 2)]
    results, copies = [], []
    for inputs in calls:
        found = [op(*parts.values()) for op, parts in zip(operators, inputs, strict=True)]
        copies.append([kept(fabric.main(), (out,)) for fabric, out in zip(world.fabrics, found, strict=True)])
        results.append(found)
    world.run()
    assert all(results[0][rank].data_ptr() == results[1][rank].data_ptr() for rank in range(2))
    assert not compare_call(schedule, calls[1], [(result,) for result in results[0]]).differences
    assert not any(compare_call(schedule, inputs, kept).differences for inputs, kept in zip(calls, copies, strict=True))


def of(name: str, topology: str, sizes: dict[str, int], pins: dict[str, str] | None = None) -> Schedule:
    return load(name).plan_for(topologies.load(topology, 2), sizes, "bf16", pins)


@pytest.mark.slow
def test_only_a_promise_or_a_pin_makes_outputs_reused() -> None:
    """Fresh outputs lie in a pool; under the promise one place is enough, and no rank has to be told where."""
    real = (GEMM_AR, "h200-nvswitch", {"M": 2048, "K": 14336, "N": 4096})
    fresh, reused = of(*real), of(*real, {"outputs": "reused"})
    assert fresh.buffer("out").memory is Memory.POOL
    assert reused.buffer("out").memory is Memory.SYMMETRIC
    assert reused.predicted_us < fresh.predicted_us
    assert of(*real, {"outputs": "fresh"}) == fresh
    assert of(*real, dict(reused.choices)) == reused


def test_a_promise_that_no_size_can_use_is_refused() -> None:
    """Of a spec whose outputs nobody could put together in place; sizes for which it has no use change nothing."""
    gathers = ("02_ag_gemm.py:ag_gemm", "laptop-switch", {"M": 512, "K": 256, "N": 512})
    with pytest.raises(IdlePin, match="an all_reduce whose result is an output"):
        of(*gathers, {"outputs": "reused"})
    odd = (GEMM_AR, "laptop-switch", {"M": 41, "K": 64, "N": 64})
    assert of(*odd, {"outputs": "reused"}) == of(*odd)


@pytest.mark.parametrize(
    ("topology", "rows", "pins"),
    [
        ("laptop-switch", 41, {}),  # rows that the ranks do not divide
        ("laptop-switch", 64, {"out.mover": "CommSms(2)"}),
        ("laptop-switch", 64, {"out.transfer": "pull"}),
        ("laptop-switch", 64, {"out.mover": "Fused()", "out.chunks": "2"}),
        ("l20-pcie", 64, {}),  # ranks meet by atomics
    ],
)
def test_what_cannot_be_put_together_in_place(topology: str, rows: int, pins: dict[str, str]) -> None:
    with pytest.raises((NoLegalSchedule, IllegalPin)):
        load(GEMM_AR).plan(topology, 2, pin={**IN_PLACE, **pins}, M=rows, K=64, N=64)


@pytest.mark.parametrize(
    ("name", "pins"),
    [
        ("02_ag_gemm.py:ag_gemm", {"mover": "CopyEngine()", "transfer": "pull"}),
        ("03_gemm_rs.py:gemm_rs", {"compute": "library", "mover": "Fused()"}),
        (GEMM_AR, {"algorithm": "two-shot", "y_parts.mover": "CopyEngine()", "out_whole.mover": "CommSms(2)"}),
    ],
)
@pytest.mark.quick(1)
def test_calls_end_together_where_they_would_wait_at_the_beginning(name: str, pins: dict[str, str]) -> None:
    schedule = load(name).plan("laptop-switch", 3, pin=pins, M=96, K=96, N=96)
    assert not any(isinstance(launch, Begin) for launch in schedule.launches)
    last = schedule.launches[-1]
    assert isinstance(last, Finish)
    assert last.meets
    result = run_emulated(schedule, lowering.emit(schedule), calls=4, seed=5)
    assert result.equal, f"{result.lines()}\n{schedule}"


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("topology", "arch"), [("h200-nvswitch", "sm_90"), ("mi300x-full-mesh", "gfx942")])
def test_compiles(name: str, topology: str, arch: str) -> None:
    machine = topologies.load(topology, 4)
    pins = {**IN_PLACE, **SCHEDULES[name]} | ({"y.tile": "128x128x64/8w2s"} if "y.tile" in SCHEDULES[name] else {})
    sizes = {"M": 4096, "K": 14336, "N": 4096}
    compiles(lowering.emit(load(GEMM_AR).plan_for(machine, sizes, "bf16", pins)), topology, arch)
