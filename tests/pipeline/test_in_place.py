"""Outputs that peers put together in place: whose memory they are, and where that cannot be."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.pipeline.features import planned
from tests.pipeline.workloads import load
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import World
from tilelink.errors import IdlePin, IllegalPin, NoLegalSchedule
from tilelink.ir.nodes import Finish, Memory
from tilelink.ir.schedule import Schedule
from tilelink.runtime.compare import compare_call
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import kept, make_inputs

GEMM_AR = "04_gemm_ar.py:gemm_ar"
IN_PLACE = {"algorithm": "in-place"}


def test_one_kernel_is_the_whole_call() -> None:
    schedule = planned("in place: one kernel", 4)
    _, finish = schedule.launches
    assert isinstance(finish, Finish)
    assert finish.meets
    assert finish.within
    assert [signal.name for signal in elaborated(schedule).signals if signal.name.startswith("out")] == []
    source = lowering.emit(schedule)
    assert source.count("main.launch(") == 1


def test_every_call_returns_the_same_memory_and_fresh_outputs_do_not() -> None:
    """What was kept before the next call is right; the returned tensor holds the result of the last one."""
    schedule = planned("in place: one kernel")
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
