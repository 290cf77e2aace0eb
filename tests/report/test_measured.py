"""Measured calls beneath predicted ones. All times here are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import Reader
from tilelink.ir.schedule import Schedule
from tilelink.profiling.stamps import Moment, Site
from tilelink.profiling.timeline import FORMAT, shares, shares_to_json, spans, spans_to_json
from tilelink.report.errors import NotAMeasurement, OtherMeasured
from tilelink.report.facts import Facts
from tilelink.report.measured import read_measured
from tilelink.report.page import page
from tilelink.trace import predicted_trace


def a_call(schedule: Schedule, **more: object) -> dict[str, Any]:
    """Rank 1 ends last: 3 us of launch, 380 of tiles with a wait of 12.5 between them, 2 at the end."""
    made = []
    for rank, later in ((0, 0.0), (1, 4.0)):
        for doing, start, end in (("launch", 0, 3), ("tile", 3, 203), ("wait", 203, 215.5), ("tile", 215.5, 395.5)):
            made.append((rank, doing, start + later, end + later))
        made.append((rank, "end", 395.5 + later, 397.5 + later))
    spans = [
        {"rank": rank, "lane": "program 7", "doing": doing, "where": "out_tiles", "start_us": start, "end_us": end}
        for rank, doing, start, end in made
    ]
    return {
        "format": FORMAT,
        "schedule": schedule.hash,
        "machine": "a <machine>",
        "call_us": 402.0,
        "spans": spans,
    } | more


def written(path: Path, found: object) -> Path:
    path.write_text(found if isinstance(found, str) else json.dumps(found))
    return path


@pytest.mark.slow
def test_spans_stand_beneath_the_predicted_ones(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    of = facts("ag_gemm")
    measured = read_measured(written(tmp_path / "call.json", a_call(of.schedule, alone_us=371.0)), of.schedule)
    assert measured.ranks == (0, 1) and measured.end_us == 401.5 and not measured.summed
    found = Reader.of(page(replace(of, measured=measured)))
    links = of.limits.links_us
    said = found.text_of("exposed-measured")
    assert said.startswith("Exposed communication = measured − max(compute alone, link time)")
    assert f"{402.0 - max(371.0, links):.1f} us = 402.0 us − max(371.0 us compute alone (measured)" in said
    assert "402.0 us measured, a <machine>" in found.text_of("time")
    timeline = found.text_of("timeline")
    assert "Measured, rank 0" in timeline and "wait out_tiles: 207 us to 219.5 us, 12.5 us" in timeline
    assert "program 7 of rank 1, which ends last" in timeline
    waits = sum(s.end - s.begin for s in of.account.stretches if s.awaits)
    assert f"waiting {waits:.1f} us 12.5 us −{waits - 12.5:.1f} us" in timeline
    assert found.data["measured"]["call_us"] == 402.0
    where = found.text_of("time")
    assert "on average over programs of rank 1, which ends last" in where
    # tiles of 380, a launch of 3, a wait of 12.5 and an end of 2, of a rank that begins 4 us late: 397.5 of 402
    for part in (
        "wait in out_tiles 12.5 us",
        "tiles, beyond computing alone 9.0 us",
        "launch, and between kernels 3.0 us",
    ):
        assert part in where
    assert "end of the call 2.0 us between calls, less what stamps add 4.5 us in all 31.0 us" in where
    columns = found.data["measured"]["spans"]
    assert [columns["lanes"][number] for number in columns["lane"]] == ["program 7"] * 10
    assert columns["end_us"][-1] == 401.5 and len(columns["rank"]) == 10


def test_streams_are_always_drawn_and_programs_with_all_groups(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    of = facts("ag_gemm")
    one = {"rank": 0, "doing": "tile", "where": "out_turns"}
    lanes = [f"program {number}{group}" for number in range(40) for group in ("", ", out_loads", ", x_moves")]
    spans = [one | {"lane": lane, "start_us": 0.0, "end_us": 50.0 + (lane == "program 39")} for lane in lanes]
    spans += [one | {"lane": f"stream s{number}", "start_us": 0.0, "end_us": 1.0} for number in range(3)]
    measured = read_measured(written(tmp_path / "call.json", a_call(of.schedule) | {"spans": spans}), of.schedule)
    shown = list(dict.fromkeys(span.lane for span in measured.shown(0)))
    assert [lane for lane in shown if lane.startswith("stream")] == ["stream s0", "stream s1", "stream s2"]
    programs = {lane.split(",")[0] for lane in shown if lane.startswith("program")}
    assert programs == {"program 0", "program 10", "program 20", "program 30", "program 39"}  # the last one ends last
    assert len(shown) == 3 + 3 * len(programs)


@pytest.mark.slow
def test_without_the_matmul_alone_the_model_says_it(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    of = facts("ag_gemm")
    measured = read_measured(written(tmp_path / "call.json", a_call(of.schedule)), of.schedule)
    said = Reader.of(page(replace(of, measured=measured))).text_of("exposed-measured")
    assert "predicted, as the file has none" in said and f"{of.limits.alone_us:.1f} us" in said


@pytest.mark.slow
def test_stamps_are_written_as_it_reads_them(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    """What `benchmarks/timeline.py` makes of the stamps of a call, both ways."""
    of = facts("ag_gemm")
    sites = [
        Site(Moment.BEGUN, "out_kernel", "out_kernel", 0, 1),
        Site(Moment.REACHED, "out_kernel", "wait_until(x)", 1, 1),
        Site(Moment.AWAITED, "out_kernel", "wait_until(x)", 2, 1),
        Site(Moment.TILE, "out_kernel", "out_kernel", 3, 1),
        Site(Moment.CLOSED, "out_kernel", "out_kernel", 4, 1),
    ]
    found = spans([[1000, 1100], [1500, 1600], [2500, 3600], [9000, 9100], [9500, 9600]], sites)
    call = spans_to_json(of.schedule.hash, "two GPUs", 11.0, [found, found])
    one = read_measured(written(tmp_path / "spans.json", call), of.schedule)
    assert one.ranks == (0, 1) and {span.lane for span in one.spans} == {"program 0", "program 1"}
    assert sum(span.mean_us for span in one.spans if span.doing == "wait") == pytest.approx(2 * (1.0 + 2.0))
    row = {"operator": "ag_gemm", "row": "r", "label": "planned", "us": 11.0, "choices": dict(of.schedule.choices)}
    rows = [row | {"schedule": "other"}, row | {"schedule": of.schedule.hash, "ranks": [shares_to_json(shares(found))]}]
    sums = read_measured(written(tmp_path / "sums.json", {"machine": "two GPUs", "rows": rows}), of.schedule)
    assert sums.summed and sums.call_us == 11.0
    assert sums.spans[0].programs == 2
    text = Reader.of(page(replace(of, measured=sums))).text_of("timeline")
    assert "sums over programs" in text and "1.5 us each on average" in text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("no JSON", "JSONDecodeError"),
        ([1], "not an object"),
        ({"format": "trace 7"}, "'trace 7'"),
        ({"rows": 3}, "rows is no list"),
        ({}, "'rows' is missing"),
        ("spans", "'spans' is missing"),
        ({"spans": []}, "no spans"),
        ({"call_us": "fast"}, "'fast' is no time"),
        ({"call_us": 0}, "a call of 0 us"),
        ({"spans": [{"rank": 0}]}, "'start_us' is missing"),
        ({"doing": "sleep"}, "'sleep' is none of tile"),
        ({"end_us": -1.0}, "ends before it begins"),
        ({"rank": 9}, "it has rank 9"),
        ({"rank": True}, "True is no whole number"),
    ],
)
def test_what_is_no_measurement(change: object, says: str, facts: Callable[[str], Facts], tmp_path: Path) -> None:
    schedule = facts("ag_gemm").schedule
    found: object = change
    if change == "spans":
        found = {key: value for key, value in a_call(schedule).items() if key != "spans"}
    elif isinstance(change, dict) and {"doing", "end_us", "rank"} & set(change):
        call = a_call(schedule)
        found = call | {"spans": [call["spans"][0] | change]}
    elif isinstance(change, dict) and {"spans", "call_us"} & set(change):
        found = a_call(schedule) | change
    with pytest.raises(NotAMeasurement) as caught:
        read_measured(written(tmp_path / "call.json", found), schedule)
    assert says in str(caught.value.facts["reason"])
    assert "tilelink-spans 1" in str(caught.value)


def test_no_file(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    with pytest.raises(NotAMeasurement, match="No such file"):
        read_measured(tmp_path / "none.json", facts("ag_gemm").schedule)


def test_the_call_of_another_schedule(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    of, other = facts("ag_gemm"), facts("gemm_rs")
    with pytest.raises(OtherMeasured) as caught:
        read_measured(written(tmp_path / "call.json", a_call(other.schedule)), of.schedule)
    assert other.schedule.hash in str(caught.value.facts["held"])
    rows = [{"operator": "ag_gemm", "row": "llama-7b", "label": "planned", "choices": {}}]
    with pytest.raises(OtherMeasured, match="llama-7b"):
        read_measured(written(tmp_path / "rows.json", {"rows": rows}), of.schedule)


def test_of_many_programs_some_are_drawn_and_all_are_summed(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    """132 programs with a wait each, which is longer the higher the number; number 77 ends last."""
    of = facts("ag_gemm")
    made = []
    for program in range(132):
        times = (
            ("tile", 0.0, 100.0),
            ("wait", 100.0, 100.0 + program),
            ("tile", 100.0 + program, 300.0 + (program == 77)),
        )
        made += [
            {"rank": 0, "lane": f"program {program}", "doing": doing, "where": doing, "start_us": a, "end_us": b}
            for doing, a, b in times
        ]
    path = written(tmp_path / "many.json", a_call(of.schedule) | {"spans": made})
    measured = read_measured(path, of.schedule)
    shown = measured.shown(0)
    lanes = {span.lane for span in shown}
    assert 12 <= len(lanes) <= 13 and {"program 0", "program 77"} <= lanes and len(shown) == 3 * len(lanes)
    assert measured.shown(1) == ()
    wait = next(one for one in measured.sums(0) if one.doing == "wait")
    assert (wait.programs, wait.mean_us, wait.end_us) == (132, 65.5, 231.0)
    found = page(replace(of, measured=measured))
    assert "program 77" in found and "program 76" not in found
    assert "65.5" in Reader.of(found).text_of("timeline")


def test_a_trace_has_both_calls(facts: Callable[[str], Facts], tmp_path: Path) -> None:
    of = facts("ag_gemm")
    measured = read_measured(written(tmp_path / "call.json", a_call(of.schedule)), of.schedule)
    events = json.loads(predicted_trace(of.schedule, of.topology, measured))["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert set(names) == {1, 2, 3} and names[1].startswith("predicted") and names[3].startswith("measured: rank 1")
    spans = [one for one in events if one["ph"] == "X" and one["pid"] == 3]
    assert [(one["ts"], one["dur"]) for one in spans] == [(4, 3), (7, 200), (207, 12.5), (219.5, 180), (399.5, 2)]
    assert spans[2]["name"] == "wait: out_tiles"
    alone = json.loads(predicted_trace(of.schedule, of.topology))["traceEvents"]
    assert [one for one in events if one["pid"] == 1] == alone
