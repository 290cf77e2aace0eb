"""`tilelink show`: a plan as one page of HTML."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

import topologies
from tilelink.command_arguments import Dtype, Nodes, Pins, Ranks, Sizes, Spec, TopologyName
from tilelink.declaration import Overlap
from tilelink.errors import NoLegalSchedule
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.explain import Explanation, explain
from tilelink.proof.proved import Proof
from tilelink.proof.verify import verify
from tilelink.report.facts import facts_of
from tilelink.report.measured import measured_of, parsed
from tilelink.report.page import page
from tilelink.runtime.machine import PLANNED_FOR
from tilelink.spec_file import load_overlap, parse_pins, parse_sizes
from tilelink.terminal import check_writable, working, write_file
from tilelink.trace import predicted_trace
from topologies.topology import Topology


def show(
    spec: Spec,
    output: Annotated[Path, typer.Option("-o", metavar="FILE", help="Write the page here.")],
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    nodes: Nodes = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            "--measured", metavar="FILE", help="Draw a measured call beneath the predicted one: JSON of spans."
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option("--perfetto", metavar="FILE", help="Write both calls as a trace, too, for ui.perfetto.dev."),
    ] = None,
    families: Annotated[
        int, typer.Option("--families", min=0, help="So many of the families that lost, the fastest first.")
    ] = 10,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="Time to look for sizes and rates that flip the choice; 0: none.")
    ] = 0.0,
) -> None:
    """Write a page about a schedule: where its time goes, what every engine does when, what is not overlapped and why.

    The page is one file that needs no network: spec, graph, schedule and emitted source, time line, tile order, signals, memory,
    limits, what lost, and the proof.
    """
    wanted, pins = parse_sizes(sizes or ()), parse_pins(pin or ())
    machine = topologies.load(topology, ranks, nodes)
    check_writable(output)
    if perfetto is not None:
        check_writable(perfetto)
    call = None if measured is None else parsed(measured)
    began = time.monotonic()
    with working("planning"), redirect_stdout(sys.stderr):
        overlap = load_overlap(spec)
        schedule, found, proof = _planned(overlap, machine, wanted, dtype, pins, families, seconds)
    held = None if measured is None or call is None else measured_of(measured, call, schedule)
    planned = time.monotonic()
    with working("drawing"):
        text = page(facts_of(schedule, machine, found, proof, overlap.spec.location, held))
        write_file(output, text)
        if perfetto is not None:
            write_file(perfetto, predicted_trace(schedule, machine, held))
    drawn = time.monotonic()
    size = f"{len(text.encode()) / 1e6:.2f} MB"
    typer.echo(f"{output}: {size}, planned in {planned - began:.1f} s, drawn in {drawn - planned:.1f} s", err=True)


def _planned(
    overlap: Overlap,
    machine: Topology,
    sizes: Mapping[str, int],
    dtype: str,
    pins: Mapping[str, str],
    families: int,
    seconds: float,
) -> tuple[Schedule, Explanation, Proof]:
    """The schedule that `plan` gives out, why it is that one, and its proof: by one search, which keeps what lost."""

    def bound(values: Mapping[str, int]) -> BoundSpec:
        return bind(overlap.spec, values, machine.num_ranks, dtype)

    bound(sizes)  # names of sizes are checked before any of them is changed
    ends = time.monotonic() + seconds
    try:
        found = explain(bound, sizes, machine, pins, families, lambda: time.monotonic() < ends)
    except NoLegalSchedule:
        overlap.plan_for(machine, sizes, dtype, pins)  # which says what is legal
        raise
    proof = verify(found.schedule)
    if proof.proved:
        return found.schedule, found, proof
    schedule = overlap.plan_for(machine, sizes, dtype, pins)  # the next one that is proved
    return schedule, found, verify(schedule)
