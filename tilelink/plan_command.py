"""`tilelink plan` and `tilelink emit`: the schedule, and its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import lowering
from tilelink.command_arguments import Dtype, Nodes, Pins, Ranks, Sizes, Spec, Target, TopologyName, planned
from tilelink.elaborate.review import design_review
from tilelink.plan import Plan
from tilelink.proof.verify import verify
from tilelink.run_errors import NoStoredSchedule, StoredScheduleRefuted
from tilelink.runtime.machine import PLANNED_FOR
from tilelink.terminal import working, write_file
from tilelink.trace import predicted_trace


def plan(
    spec: Spec,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    nodes: Nodes = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    legend: Annotated[bool, typer.Option("--legend", help="Say what the signs of the design review mean.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the design review.")] = False,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Write what the search tries, a line a step.")
    ] = None,
    perfetto: Annotated[
        Path | None,
        typer.Option("--perfetto", metavar="FILE", help="Write the predicted call as a trace for ui.perfetto.dev."),
    ] = None,
) -> None:
    """Print the schedule."""
    lines = list[str]()
    _, machine, schedule = planned(
        spec, sizes, topology, ranks, dtype, pin, nodes, lines.append if log is not None else None
    )
    if log is not None:
        write_file(log, "".join(f"{line}\n" for line in lines))
    if perfetto is not None:
        write_file(perfetto, predicted_trace(schedule, machine))
    typer.echo(schedule.to_json() if json else design_review(schedule, legend))


def stored(path: Path) -> Plan:
    """The schedule of a file, which is proved again. Raises NoStoredSchedule, NotASchedule, StoredScheduleRefuted."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NoStoredSchedule(path=path, reason=f"{type(error).__name__}: {error}") from error
    schedule = Plan.from_json(text)
    proof = verify(schedule)
    if not proof.proved:
        raise StoredScheduleRefuted(path=path, shown="\n".join(proof.lines()), findings=proof.findings)
    return schedule


def emit(
    spec: Annotated[
        str | None, typer.Argument(metavar="SPEC", help="The overlap function, as path.py:function.")
    ] = None,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    nodes: Nodes = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    target: Target = "triton",
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write here, not on stdout.")] = None,
    of: Annotated[
        Path | None, typer.Option("--schedule", metavar="FILE", help="Of what `plan --json` wrote, instead of SPEC.")
    ] = None,
) -> None:
    """Print the source, or write it to a file."""
    if (spec is None) == (of is None):
        raise typer.BadParameter("give SPEC with its SIZES, or --schedule FILE: one of both")
    if of is not None and (sizes or ranks or pin or topology != PLANNED_FOR or dtype != "bf16"):
        raise typer.BadParameter("the schedule of a file has its sizes, ranks and choices: give no others")
    if of is not None:
        with working("proving"):
            schedule = stored(of)
    else:
        assert spec is not None, "one of both is given"
        _, _, schedule = planned(spec, sizes, topology, ranks, dtype, pin, nodes)
    with working("emitting"):
        source = lowering.emit(schedule, target)
    caveat = lowering.caveat(schedule, target)
    if caveat:
        typer.echo(f"{schedule.name} for {schedule.machine.topology}: {caveat}", err=True)
    if output is None:
        typer.echo(source, nl=False)
    else:
        write_file(output, source)
