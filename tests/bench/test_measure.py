"""The measuring loop on a device whose clock the contenders advance."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
import torch

from tests.bench.fakes import ROW, FakeDevice, doubling, problem
from tilelink.bench.contender import Setting
from tilelink.measuring.contender import Contender, Kind, Mode
from tilelink.measuring.device import Call
from tilelink.measuring.measure import DeviceLost, Options, calls_per_batch, measure_row
from tilelink.measuring.results import ContenderResult


def measured(device: FakeDevice, *contenders: Contender, options: Options | None = None) -> dict[str, ContenderResult]:
    found = measure_row(device, problem(), contenders, options or Options(rounds=4), lambda step, contender: None)
    assert [result.name for result in found] == [contender.name for contender in contenders]
    return {result.name: result for result in found}


def test_times_are_those_of_the_contenders() -> None:
    device = FakeDevice()
    found = measured(
        device, doubling(device, "a", 300.0), doubling(device, "b", 450.0, mode=Mode.EAGER), doubling(device, "c", 9.0)
    )
    assert {name: result.median_us for name, result in found.items()} == {"a": 300.0, "b": 450.0, "c": 9.0}
    assert {name: result.mode for name, result in found.items()} == {"a": "graph", "b": "eager", "c": "graph"}
    assert all(len(result.rounds_us) == 4 for result in found.values())
    assert all(result.error_before == result.error_after == 0.0 for result in found.values())
    assert not any(result.failure for result in found.values())


def test_the_slowest_rank_counts() -> None:
    """The peer is twice as slow in every sample."""

    def slower(text: str) -> str:
        data = json.loads(text) if text.startswith("[[") else None
        return json.dumps([[[2 * us for us in samples] for samples in data[0]], data[1]]) if data else text

    device = FakeDevice(peer=slower)
    assert measured(device, doubling(device, "a", 300.0))["a"].median_us == 600.0


def test_contenders_take_turns_in_an_order_that_is_new_each_round_and_the_same_on_every_rank() -> None:
    def turns() -> list[str]:
        device, notes = FakeDevice(), list[tuple[str, str]]()
        contenders = [doubling(device, name, 5000.0) for name in "abcd"]
        measure_row(device, problem(), contenders, Options(rounds=6), lambda *note: notes.append(note))
        return [contender for step, contender in notes if step.startswith("round")]

    found = turns()
    rounds = [tuple(found[start : start + 4]) for start in range(0, 24, 4)]
    assert all(sorted(one) == list("abcd") for one in rounds)
    assert len(set(rounds)) > 3
    before = {(first, second) for one in rounds for first, second in itertools.pairwise(one)}
    assert len(before) > 6  # nobody always comes after the same one
    assert turns() == found


def test_a_wrong_result_is_not_timed() -> None:
    device = FakeDevice()

    def prepare(setting: Setting) -> Call:
        return lambda: (setting.x * 2.1,)

    found = measured(device, Contender("wrong", Kind.OURS, Mode.GRAPH, prepare), doubling(device, "right", 10.0))
    assert found["wrong"].median_us is None
    assert found["wrong"].rounds_us == ()
    failure = found["wrong"].failure
    assert failure.startswith("wrong result before timing: rank 0: 1 of 1 elements are wrong, in rows 0 to 0")
    assert "[0, 0] is 2.1 and should be 2 ± 0.02; rank 1: " in failure
    assert found["right"].median_us == 10.0


def test_a_result_that_is_wrong_on_the_other_rank_only() -> None:
    device = FakeDevice(peer=lambda text: '[50.0, "row 3 is off"]' if text == '[0.0, ""]' else text)
    assert measured(device, doubling(device, "a", 10.0))["a"].failure == (
        "wrong result before timing: rank 1: row 3 is off"
    )


def test_nan_is_wrong() -> None:
    device = FakeDevice()
    nothing = Contender("nan", Kind.OURS, Mode.GRAPH, lambda setting: lambda: (setting.x * float("nan"),))
    assert "[0, 0] is nan and should be 2" in measured(device, nothing)["nan"].failure


def test_a_graph_that_ignores_fresh_inputs_is_found_out() -> None:
    """What was right once is held: its time does not count, its samples are kept."""
    device = FakeDevice()

    def prepare(setting: Setting) -> Call:
        held = setting.x * 2

        def call() -> tuple[torch.Tensor]:
            device.clock_us += 5.0
            return (held,)

        return call

    found = measured(device, Contender("stale", Kind.OURS, Mode.GRAPH, prepare))["stale"]
    assert found.failure.startswith("wrong result after timing")
    assert found.median_us is None
    assert found.rounds_us


def test_a_contender_that_raises_spares_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    device = FakeDevice()

    def prepare(setting: Setting) -> Call:
        raise NotImplementedError("no such operator here")

    found = measured(device, Contender("absent", Kind.BASELINE, Mode.GRAPH, prepare), doubling(device, "a", 7.0))
    assert found["absent"].failure == "rank 0: NotImplementedError: no such operator here"
    assert found["a"].median_us == 7.0
    assert "Traceback" in capsys.readouterr().err


def test_a_failure_of_another_rank_takes_the_contender_out_here() -> None:
    device = FakeDevice(peer=lambda text: '["out of memory", true]' if text == '["", true]' else text)
    assert measured(device, doubling(device, "a", 7.0))["a"].failure == "rank 1: out of memory"


def test_a_lost_device_ends_the_row() -> None:
    device = FakeDevice(works=False)

    def prepare(setting: Setting) -> Call:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(DeviceLost, match="illegal memory access"):
        measured(device, Contender("a", Kind.BASELINE, Mode.GRAPH, prepare))


def test_what_fails_while_it_is_timed_ends_the_row() -> None:
    """Other ranks are inside the batch then, and would wait for ever."""
    device = FakeDevice(captures=False)
    calls = 0

    def prepare(setting: Setting) -> Call:
        def call() -> tuple[torch.Tensor]:
            nonlocal calls
            calls += 1
            if calls > 3:
                raise RuntimeError("launch failed")
            return (setting.x * 2,)

        return call

    with pytest.raises(DeviceLost, match="launch failed"):
        measured(device, Contender("a", Kind.BASELINE, Mode.GRAPH, prepare))


def test_without_a_graph_it_is_timed_eager_and_that_is_noted() -> None:
    device = FakeDevice(captures=False)
    found = measured(device, doubling(device, "a", 20.0))["a"]
    assert (found.mode, found.median_us) == ("eager", 20.0)
    assert "operation not permitted" in found.note


def test_a_contender_that_failed_before_is_left_out() -> None:
    device = FakeDevice()
    absent = replace(doubling(device, "a", 1.0), failure="NoLegalSchedule: none")
    found = measured(device, absent)["a"]
    assert (found.failure, found.median_us) == ("NoLegalSchedule: none", None)
    assert device.order == []


def test_cold_l2_is_flushed_before_each_call_and_subtracted() -> None:
    device = FakeDevice()
    found = measured(device, doubling(device, "a", 40.0), options=Options(rounds=3, l2_cold=True))["a"]
    assert found.median_us == 40.0
    assert device.flushes > len(device.order) * 0.5
    assert min(device.flushes_before_capture) > 0  # the buffer is not allocated in a graph


def test_parts_are_not_compared() -> None:
    device = FakeDevice()
    found = measured(device, doubling(device, "gemm", 8.0, kind=Kind.PART))["gemm"]
    assert (found.median_us, found.error_before, found.error_after) == (8.0, None, None)


def test_host_time_where_asked_for() -> None:
    device = FakeDevice()
    found = measured(device, doubling(device, "a", 8.0, host=True), doubling(device, "b", 8.0))
    assert (found["a"].host_us, found["b"].host_us) == (12.5, None)


def test_the_budget_stops_rounds_but_not_before_the_third() -> None:
    device = FakeDevice()
    options = Options(rounds=50, row_budget_s=1e-9)
    assert len(measured(device, doubling(device, "a", 10.0), options=options)["a"].rounds_us) == 3


def test_rows_do_not_share_their_orders() -> None:
    """With a few rounds the same orders in every row would be for or against the same contenders."""

    def first_rounds(name: str) -> list[str]:
        device, notes = FakeDevice(), list[tuple[str, str]]()
        contenders = [doubling(device, name, 5000.0) for name in "abcdefgh"]
        row = problem(row=replace(ROW, name=name))
        measure_row(device, row, contenders, Options(rounds=3), lambda *note: notes.append(note))
        return [contender for step, contender in notes if step.startswith("round")]

    assert first_rounds("llama-7b") == first_rounds("llama-7b") != first_rounds("llama3-8b")


def test_every_contender_comes_after_the_same_load() -> None:
    """Whatever ran before in the round leaves its clocks and its heat, and would favour or handicap the next one."""
    device = FakeDevice()
    contenders = [doubling(device, name, 900.0) for name in "abc"]
    parts = [doubling(device, "gemm", 700.0, kind=Kind.PART)]
    found = measured(device, *contenders, *parts, options=Options(rounds=3, load_ms=20))
    timed = [
        at for at, (name, calls) in enumerate(device.runs) if name in "abc" and calls > 3 * found[name].calls_per_sample
    ]
    before = [device.runs[at - 1] for at in timed]
    assert len(timed) == 3 * 3 and {name for name, _ in before} == {"gemm"}
    assert all(calls * 700.0 >= 20_000 for _, calls in before)
    assert all(len(samples) >= 3 for result in found.values() for samples in result.rounds_us)


def test_rows_without_a_matmul_alone_are_measured_without_load() -> None:
    device = FakeDevice()
    assert measured(device, doubling(device, "a", 10.0))["a"].median_us == 10.0
    assert {name for name, _ in device.runs} == {"a"}


@pytest.mark.parametrize(
    ("m", "calls"),
    [(16, 40), (8192, 5), (2048, 9)],  # 20 us of latency at least; 687 us; 172 us
)
def test_short_calls_are_put_together(m: int, calls: int) -> None:
    assert calls_per_batch(problem(row=replace(ROW, m=m)).setting) == calls
