"""`tilelink tune`: measure the best alternatives of a spec on the GPUs here, and keep the fastest for `compile(tune=N)`."""

from __future__ import annotations

import json as texts
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

import topologies
from tilelink.command_arguments import Dtype, Pins, Ranks, Sizes, Spec, plan_on
from tilelink.errors import FabricUnavailable, RunFailed
from tilelink.planner.plan_cache import cache_folder
from tilelink.runtime.torchrun import check_gpus, run_to_end, torchrun
from tilelink.spec_file import parse_pins
from tilelink.terminal import working, write_file
from tilelink.tuning import PLANNED
from topologies.topology import Topology

_LEGAL = "Tune on the machine that will run it; `tilelink plan` chooses by predicted times anywhere."
_LAST_LINES = 12


def tune(
    spec: Spec,
    sizes: Sizes = None,
    topology: Annotated[
        str | None,
        typer.Option("--topology", metavar="NAME|FILE", help="Name, or path of a TOML.", show_default="these GPUs"),
    ] = None,
    ranks: Ranks = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Measure so many alternatives.")] = 5,
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write what was measured here.")] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", min=1, help="Seconds for the whole run.")] = 600.0,
) -> None:
    """Measure the planner's best schedules on these GPUs, and keep the fastest for compile(tune=N)."""
    _, machine, schedule = plan_on(spec, sizes, lambda: _machine(topology, ranks), dtype, pin)
    check_gpus(machine.num_ranks, _LEGAL)
    name = machine.name if topology is None or not Path(topology).is_file() else str(Path(topology).resolve())
    job = {"topology": name, "schedule": schedule.to_json(), "count": top, "pins": parse_pins(pin or ())}
    with working(f"measuring {top} alternatives"):
        found = _run(job, machine.num_ranks, schedule.name, timeout_s)
    for line in lines(found):
        typer.echo(line)
    if json is not None:
        write_file(json, texts.dumps(found, indent=1) + "\n")


def _machine(name: str | None, ranks: int | None) -> Topology:
    """What is asked for, or these GPUs, which are never guessed. Raises FabricUnavailable without them."""
    if name is not None:
        return topologies.load(name, ranks)
    if not torch.cuda.is_available():
        raise FabricUnavailable(num_ranks=ranks or "any", reason="torch sees no GPU here", legal=_LEGAL)
    return topologies.detect(ranks)


def _run(job: Mapping[str, object], num_ranks: int, operator: str, timeout_s: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file, found = Path(folder) / "job.json", Path(folder) / "found.json"
        file.write_text(texts.dumps({**job, "found": str(found)}), encoding="utf-8")
        command = torchrun(num_ranks, "--module", "tilelink.tune_ranks", str(file))
        reason, last = run_to_end(command, timeout_s, lambda line: None)
        if not found.exists():
            shown = "\n".join(last[-_LAST_LINES:])
            raise RunFailed(num_ranks=num_ranks, operator=operator, reason=reason or "no result", lines=shown)
        data: dict[str, Any] = texts.loads(found.read_text(encoding="utf-8"))
        return data


def lines(found: Mapping[str, Any]) -> list[str]:
    """A line for each schedule: predicted and measured us, and how its choices differ from what is planned unmeasured."""
    timed = found["timed"]
    planned: dict[str, str] = next((one["choices"] for one in timed if one["name"] == PLANNED), {})
    rows = ["us, slowest rank, median of rounds" + (" (known from an earlier run)" if found["known"] else "")]
    for one in timed:
        differ = ", ".join(f"{name}={value}" for name, value in one["choices"].items() if planned.get(name) != value)
        us = f"{one['us']:9.1f}" if one["us"] is not None else "   failed"
        what = one["failure"].splitlines()[0] if one["failure"] else differ
        rows.append(f"{one['name']:>14}  predicted {one['predicted_us']:9.1f}  measured {us}  {what}".rstrip())
    folder = cache_folder()
    kept = "kept for compile(tune=N)" if folder is not None else "not kept: TILELINK_CACHE=off"
    return [*rows, f"chosen: {found['chosen']}, schedule {found['hash']}; {kept}"]
