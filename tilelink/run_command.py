"""`tilelink run`: for which machine it plans, what it says of the schedule, and the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer

import lowering
import topologies
from tilelink.command_arguments import Dtype, MaxMinutes, Nodes, Pins, Ranks, Sizes, Spec, Target, plan_on
from tilelink.declaration import Overlap
from tilelink.emulated_time import announce, of_spec
from tilelink.errors import FabricUnavailable, ProfileNeedsGpus
from tilelink.ir.expand import expand
from tilelink.ir.schedule import Schedule
from tilelink.profiling.start import profiled, told
from tilelink.report.limits import limits_of
from tilelink.runtime.machine import EMULATED, PLANNED_FOR
from tilelink.runtime.run import RunResult, run_cuda, run_emulated
from tilelink.spec_file import parse_pins
from tilelink.terminal import check_writable, working, write_file
from topologies.errors import TileLinkError
from topologies.topology import Topology

_NAMED = 4  # choices that differ, in one line
_SMALLER = "Take smaller sizes; `tilelink verify` proves the schedule of these and runs a small form of it."


class Device(Enum):
    CPU = "cpu"
    CUDA = "cuda"


def machine_of(device: Device, name: str | None, ranks: int | None, nodes: int | None = None) -> Topology:
    """What is planned for: the topology `name`; without it the emulated machine, or these GPUs, which are never guessed.

    `nodes`: as if so many nodes had these ranks.
    Raises UnknownTopology, IllegalRanks and their like, FabricUnavailable without GPUs, UnknownGpu.
    """
    if name is not None:
        return topologies.load(name, ranks, nodes)
    match device:
        case Device.CPU:
            return topologies.load(EMULATED, ranks, nodes)
        case Device.CUDA if not torch.cuda.is_available():
            legal = "Emulate the ranks: --device cpu."
            raise FabricUnavailable(num_ranks=ranks or "any", reason="torch sees no GPU here", legal=legal)
        case Device.CUDA:
            here = topologies.detect(ranks)
            return topologies.load(here.name, ranks, nodes) if nodes is not None else here


def introduction(
    overlap: Overlap, schedule: Schedule, topology: str | None, dtype: str, pins: Mapping[str, str]
) -> list[str]:
    """The schedule that is run, and how it differs from the one for the real machine if that is another one."""
    spec = schedule.spec
    sizes = " ".join(f"{name}={size}" for name, size in spec.sizes)
    first = f"schedule {schedule.name} {schedule.hash} on {schedule.machine.topology} x{schedule.num_ranks}, {sizes} {dtype}"
    real = _real(schedule)
    if real == schedule.machine.topology or (topology is not None and not torch.cuda.is_available()):
        return [first]  # the same machine, or one that the user has named where no other is known
    try:
        other = overlap.plan_for(topologies.load(real, schedule.num_ranks), dict(spec.sizes), dtype, pins)
    except TileLinkError:
        return [first, f"  there is none of these sizes, ranks and pins for {real}"]
    mine, theirs = dict(schedule.choices), dict(other.choices)
    differ = [name for name in dict.fromkeys((*mine, *theirs)) if mine.get(name) != theirs.get(name)]
    if not differ:
        return [first, f"  its choices are those for {real}, whose schedule is {other.hash}"]
    named = [f"{name} {mine.get(name, 'none')}, there {theirs.get(name, 'none')}" for name in differ[:_NAMED]]
    more = f"; and {len(differ) - _NAMED} more" if len(differ) > _NAMED else ""
    return [
        first,
        f"  another one than for {real}, {other.hash}: {'; '.join(named)}{more}",
        f"  --topology {real} runs that one",
    ]


def _real(schedule: Schedule) -> str:
    """The GPUs that are here, or those that `plan` and `emit` plan for."""
    try:
        return topologies.detect(schedule.num_ranks).name
    except TileLinkError:
        return PLANNED_FOR


def run_schedule(device: Device, schedule: Schedule, target: str, calls: int, seed: int, share_gpus: bool) -> RunResult:
    """Raises UnknownTarget, the errors of tilelink.emulator, FabricUnavailable, NoReference and RunFailed."""
    source = lowering.emit(schedule, target)
    match device:
        case Device.CPU:
            return run_emulated(schedule, source, calls=calls, seed=seed)
        case Device.CUDA:
            return run_cuda(schedule, source, calls=calls, seed=seed, share_gpus=share_gpus)


def result_json(result: RunResult, schedule: Schedule, dtype: str, target: str, seed: int) -> str:
    """What was run, and the fields of a `RunResult`."""
    of = {"function": schedule.name, "schedule": schedule.hash, "topology": schedule.machine.topology}
    asked = {"sizes": dict(schedule.spec.sizes), "dtype": dtype, "target": target, "seed": seed}
    return json.dumps({**of, **asked, **asdict(result)}, indent=1)


def profile_lines(schedule: Schedule, machine: Topology, share_gpus: bool, output: Path) -> list[str]:
    """Measure a call, write its spans, and say what is exposed. Raises RunFailed, OutputNotWritable."""
    with working("profiling a call"):
        found = profiled(schedule, lowering.emit(schedule), share_gpus)
    write_file(output, json.dumps(found))
    limits = limits_of(schedule, expand(schedule.spec, dict(schedule.decided.collectives)), machine)
    lines = told(found, limits.links_us, schedule.predicted_us, limits.alone_us)
    return [*lines, f"{output}: draw it with `tilelink show ... --measured {output}`"]


def run(
    spec: Spec,
    sizes: Sizes = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="NAME|FILE",
            help="Name, or path of a TOML.",
            show_default=f"{EMULATED} on cpu, these GPUs on cuda",
        ),
    ] = None,
    ranks: Ranks = None,
    nodes: Nodes = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    device: Annotated[Device, typer.Option("--device", help="Emulated ranks, or GPUs.")] = Device.CPU,
    calls: Annotated[int, typer.Option("--calls", min=1, help="How often the operator is called.")] = 2,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the inputs and of the emulated interleaving.")] = 0,
    target: Target = "triton",
    share_gpus: Annotated[
        bool,
        typer.Option(
            "--share-gpus", help="Let several ranks share a GPU in turn: results are checked, times mean nothing."
        ),
    ] = False,
    max_minutes: MaxMinutes = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of sentences.")] = False,
    profile: Annotated[
        Path | None,
        typer.Option("--profile", metavar="FILE", help="Measure what each program does when: for `show --measured`."),
    ] = None,
) -> None:
    """Run the operator on all ranks and compare with a torch reference."""
    if profile is not None:
        if device is not Device.CUDA or target != "triton":
            raise ProfileNeedsGpus(device=device.value, target=target)
        check_writable(profile)
    overlap, machine, schedule = plan_on(spec, sizes, lambda: machine_of(device, topology, ranks, nodes), dtype, pin)
    if device is Device.CPU:
        announce(f"{calls} emulated calls", of_spec(schedule.spec, calls), max_minutes, _SMALLER)
    named = schedule.machine.topology if nodes is not None else topology
    for line in () if as_json else introduction(overlap, schedule, named, dtype, parse_pins(pin or ())):
        typer.echo(line)
    with working(f"running {calls} calls on {device.value}"):
        result = run_schedule(device, schedule, target, calls, seed, share_gpus)
    for line in (result_json(result, schedule, dtype, target, seed),) if as_json else result.lines():
        typer.echo(line)
    if profile is not None and result.equal:
        for line in profile_lines(schedule, machine, share_gpus, profile):
            typer.echo(line, err=as_json)
    raise typer.Exit(0 if result.equal else 1)
