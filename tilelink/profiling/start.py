"""Ranks that profile a call, started from one process; and what they found, in a sentence."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tilelink.errors import RunFailed
from tilelink.ir.schedule import Schedule
from tilelink.profiling.parts import parts_of
from tilelink.runtime.torchrun import run_to_end, torchrun

_SHOWN_US = 0.1
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
        f"clocks of ranks are known within {found['clocks_within_us']:.1f} us, those of streams "
        f"within {found['streams_within_us']:.1f}",
        f"exposed communication: {call - longest:.1f} us = {call:.1f} - max({alone:.1f} computing alone{by}, "
        f"{links_us:.1f} on the link)" + ("; none, as the call is faster than that" if call < longest else ""),
        *_split(found, alone),
    ]


def _split(found: Mapping[str, Any], alone_us: float) -> list[str]:
    """Where programs are when they do not compute, on average over those of the rank that ends last."""
    parts = parts_of([SimpleNamespace(**span) for span in found["spans"]], found["call_us"], alone_us)
    if parts is None:
        return []
    shown = [f"{us:.1f} us {what}" for what, us in parts.parts if abs(us) >= _SHOWN_US]
    return [f"beyond computing alone, on average over programs of rank {parts.rank}: {'; '.join(shown)}"]
