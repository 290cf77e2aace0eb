"""Ranks that profile a call, started from one process; and what they found, in a sentence."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilelink.errors import RunFailed
from tilelink.ir.schedule import Schedule
from tilelink.runtime.torchrun import run_to_end, torchrun

MODULE = "tilelink.profiling.ranks"


def profiled(schedule: Schedule, source: str, share_gpus: bool = False, timeout_s: float = 600.0) -> dict[str, Any]:
    """One call of `source`, as `tilelink show --measured` reads it, by a process a rank. Raises RunFailed."""
    with tempfile.TemporaryDirectory() as folder:
        planned, file, found = (Path(folder) / name for name in ("schedule.json", f"{schedule.name}.py", "spans.json"))
        planned.write_text(schedule.to_json())
        file.write_text(source)
        shared = ["tilelink.runtime.shared_gpus", "-m"] if share_gpus else []
        command = torchrun(schedule.num_ranks, "-m", *shared, MODULE, str(planned), str(file), str(found))
        reason, lines = run_to_end(command, timeout_s, lambda line: None)
        if not found.exists():
            shown = "\n".join(lines[-12:])
            raise RunFailed(num_ranks=schedule.num_ranks, operator=schedule.name, reason=reason, lines=shown)
        read: dict[str, Any] = json.loads(found.read_text())
    return read


def told(found: Mapping[str, Any], links_us: float, predicted_us: float, alone_us: float) -> list[str]:
    """What was measured, in sentences. `links_us`, `alone_us`: of the descriptor, in us; what was measured is taken instead."""
    call, alone = found["call_us"], found.get("alone_us", alone_us)
    by = "" if "alone_us" in found else ", predicted"
    longest = max(alone, links_us)
    return [
        f"a call takes {call:.1f} us ({found['call_with_stamps_us']:.1f} with stamps, {predicted_us:.1f} predicted); "
        f"clocks of ranks are known within {found['clocks_within_us']:.1f} us",
        f"exposed communication: {call - longest:.1f} us = {call:.1f} - max({alone:.1f} matmuls alone{by}, "
        f"{links_us:.1f} on the link)",
        *_split(found),
    ]


def _split(found: Mapping[str, Any]) -> list[str]:
    """Where programs are when they do not compute, on average over those of the rank that ends last."""
    spans = found["spans"]
    if not spans:
        return []
    rank = max(spans, key=lambda span: span["end_us"])["rank"]
    mine = [span for span in spans if span["rank"] == rank]
    programs = {span["lane"] for span in mine}
    tiles = [span for span in mine if span["doing"] == "tile"]
    if not tiles:
        return []
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for span in tiles:
        lane = span["lane"]
        first[lane] = min(first.get(lane, span["start_us"]), span["start_us"])
        last[lane] = max(last.get(lane, 0.0), span["end_us"])
    begin, end = min(span["start_us"] for span in mine), max(span["end_us"] for span in mine)
    waits: dict[str, float] = {}
    for span in (one for one in mine if one["doing"] == "wait"):
        waits[span["where"]] = waits.get(span["where"], 0.0) + span["end_us"] - span["start_us"]
    start, tail = sum(one - begin for one in first.values()), sum(end - one for one in last.values())
    many, longest = len(first), sorted(waits.items(), key=lambda one: -one[1])[:3]
    parts = [f"start {start / many:.1f} us", *(f"{where} {us / len(programs):.1f} us" for where, us in longest)]
    return [f"of a program of rank {rank}, on average: {', '.join([*parts, f'tail {tail / many:.1f} us'])}"]
