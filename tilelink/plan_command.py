"""`tilelink plan` and `tilelink emit`: the schedule, and its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import lowering
from tilelink.command_arguments import Dtype, Pins, Ranks, Sizes, Spec, Target, TopologyName, planned
from tilelink.elaborate.review import design_review
from tilelink.runtime.machine import PLANNED_FOR
from tilelink.terminal import working, write_file


def plan(
    spec: Spec,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    legend: Annotated[bool, typer.Option("--legend", help="Say what the signs of the design review mean.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the design review.")] = False,
) -> None:
    """Print the schedule."""
    _, _, schedule = planned(spec, sizes, topology, ranks, dtype, pin)
    typer.echo(schedule.to_json() if json else design_review(schedule, legend))


def emit(
    spec: Spec,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    target: Target = "triton",
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write here, not on stdout.")] = None,
) -> None:
    """Print the source, or write it to a file."""
    _, _, schedule = planned(spec, sizes, topology, ranks, dtype, pin)
    with working("emitting"):
        source = lowering.emit(schedule, target)
    caveat = lowering.caveat(schedule, target)
    if caveat:
        typer.echo(f"{schedule.name} for {schedule.machine.topology}: {caveat}", err=True)
    if output is None:
        typer.echo(source, nl=False)
    else:
        write_file(output, source)
