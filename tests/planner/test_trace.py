"""A predicted call as a trace: its times are those of the model, and its tracks are what they say."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest

import topologies
from tests.pipeline.workloads import load
from tilelink.ir.schedule import Schedule
from tilelink.planner.cost import timeline
from tilelink.trace import predicted_trace
from topologies.topology import Topology

TOPOLOGY = topologies.load("h200-nvswitch", 8)
CASES: dict[str, tuple[str, dict[str, int], Topology]] = {
    "ag_gemm": ("02_ag_gemm.py:ag_gemm", {"M": 8192, "K": 4096, "N": 14336}, TOPOLOGY),
    "gemm_rs": ("03_gemm_rs.py:gemm_rs", {"M": 8192, "K": 14336, "N": 4096}, TOPOLOGY),
    "mlp": ("05_mlp.py:mlp", {"M": 2048, "H": 4096, "F": 14336}, TOPOLOGY),
    "experts": ("09_ep_layer.py:ep_layer", {"T": 512, "H": 2048, "F": 768, "E": 128, "K": 8}, TOPOLOGY),
    "nodes": ("02_ag_gemm.py:ag_gemm", {"M": 8192, "K": 12288, "N": 49152}, topologies.load("h800-2-nodes")),
    "packets": ("11_reduce_scatter.py:all_gather", {"M": 64, "N": 4096}, topologies.load("h800-2-nodes")),
}


def traced(case: str) -> tuple[Schedule, Topology, str]:
    spec, sizes, topology = CASES[case]
    schedule = load(spec).plan_for(topology, sizes, "bf16")
    return schedule, topology, predicted_trace(schedule, topology)


def events(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


@pytest.mark.parametrize("case", CASES)
def test_spans_lie_in_the_call_and_one_behind_the_other(case: str) -> None:
    schedule, topology, text = traced(case)
    assert len(text) < 2 << 20
    total, tracks = timeline(schedule, topology).total_us, defaultdict(list)
    names = {one["tid"]: one["args"]["name"] for one in events(text) if one["ph"] == "M"}
    for one in events(text):
        if one["ph"] == "X":
            tracks[one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
            assert one["dur"] >= 0 and one["tid"] in names
    assert (
        1 in tracks and max(end for spans in tracks.values() for _, end in spans) <= total * 1.15
    )  # before higher clocks
    for track, spans in tracks.items():
        if not 100 <= track < 1000:  # several streams of one exchange are one track
            assert all(end <= begin + 0.01 for (_, end), (begin, _) in pairwise(spans)), names[track]


@pytest.mark.parametrize("case", ["ag_gemm", "gemm_rs", "nodes"])
def test_all_tiles_and_transfers_are_counted(case: str) -> None:
    schedule, topology, text = traced(case)
    course = timeline(schedule, topology)
    last = {one["name"]: one["args"]["done"] for one in events(text) if one["ph"] == "C"}
    assert last == {f"tiles of {name}": len(tiles.ends_us) for name, tiles in course.tiles.items()} | {
        f"transfers of {name}": len(moves) for name, moves in course.moves.items()
    }


def test_arrows_go_from_the_end_of_a_transfer_to_a_tile_that_waited() -> None:
    schedule, topology, text = traced("ag_gemm")
    (moves,) = timeline(schedule, topology).moves.values()
    ends = [end for _, end in moves]
    begun = {one["id"]: one for one in events(text) if one["ph"] == "s"}
    ended = {one["id"]: one for one in events(text) if one["ph"] == "f"}
    assert begun and begun.keys() == ended.keys()
    waits = {(one["tid"], round(one["ts"] + one["dur"], 2)) for one in events(text) if one.get("name") == "wait"}
    for number, one in begun.items():
        other = ended[number]
        assert one["ts"] < other["ts"] and min(abs(one["ts"] - end) for end in ends) < 0.01
        assert any(track == other["tid"] and abs(end - other["ts"]) < 0.02 for track, end in waits)
