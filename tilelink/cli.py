"""The command line: `tilelink topo | plan | emit | run | verify | mutate`. Results go to stdout, everything else to stderr.

Exit codes: 0 done; 1 a run whose result differs from the reference, or a refuted operator; 2 bad input; 3 no legal
schedule; 4 a mistake of tilelink: it built no schedule that its own proof accepts.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import lowering
import topologies
from tilelink.adversary.small import small_form
from tilelink.bench.command import bench
from tilelink.cli_errors import OptionOfApi, SizesOfFile
from tilelink.declaration import Overlap
from tilelink.demo_command import show_demo
from tilelink.dialect_api import Vendor
from tilelink.emulated_time import announce, of_spec
from tilelink.emulator import EmulationError, StepLimit
from tilelink.emulator.errors import Unsupported
from tilelink.errors import NoLegalSchedule, RunFailed, ScheduleRefuted
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Spec as DeclaredSpec
from tilelink.mutation.campaign import campaign
from tilelink.run_command import Device, introduction, machine_of, run_schedule
from tilelink.runtime.machine import EMULATED, PLANNED_FOR
from tilelink.spec_file import load_overlap, parse_pins, parse_sizes
from tilelink.terminal import working, write_file
from tilelink.usage import plain
from tilelink.verify_command import Effort, verify_api, verify_file, verify_schedule
from topologies.errors import UserError
from topologies.topology import Topology


class Commands(TyperGroup):
    """Turns a user's mistake in any command into one message and an exit code, in one place."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plain(error.message)
            raise
        except UserError as error:
            typer.echo(f"{type(error).__name__}: {error}", err=True)
            raise typer.Exit(_exit_code(error)) from None


def _exit_code(error: UserError) -> int:
    if isinstance(error, StepLimit | Unsupported):
        return 2  # it says something of the emulator, and nothing of the source
    if isinstance(error, EmulationError | RunFailed):
        return 1  # the source hangs, crashes or leaves its buffers: refuted, not misused
    if isinstance(error, ScheduleRefuted):
        return 4  # a mistake of ours, whatever was typed
    return 3 if isinstance(error, NoLegalSchedule) else 2


app = typer.Typer(
    cls=Commands,
    help="Declare the tile graph, get the overlap schedule.",
    add_completion=False,
    no_args_is_help=True,
    # a traceback is for a bug of ours, and then it has to be whole
    pretty_exceptions_enable=False,
)
topo = typer.Typer(help="Topology descriptors: what the planner knows of a machine.", no_args_is_help=True)
app.add_typer(topo, name="topo")
app.command()(bench)

Spec = Annotated[str, typer.Argument(metavar="SPEC", help="The overlap function, as path.py:function.")]
Sizes = Annotated[list[str] | None, typer.Argument(metavar="SIZES", help="Global sizes, M=8192 K=4096.")]
TopologyName = Annotated[str, typer.Option("--topology", metavar="NAME|FILE", help="Name, or path of a TOML.")]
Ranks = Annotated[int | None, typer.Option("--ranks", help="Number of ranks.", show_default="all of the topology")]
Dtype = Annotated[str, typer.Option("--dtype", help="Element type of tensors that declare none.")]
Pins = Annotated[list[str] | None, typer.Option("--pin", metavar="K=V", help="Fix one choice; repeatable.")]
Target = Annotated[str, typer.Option("--target", help=f"The language of the source: {' or '.join(lowering.TARGETS)}.")]

MaxMinutes = Annotated[
    float, typer.Option("--max-minutes", min=0, help="Refuse a run that is estimated to take emulated ranks longer.")
]

ENOUGH = 0.95  # of the mutants that matter


def main() -> None:
    """The console entry point."""
    app(prog_name="tilelink")


@topo.command("list")
def topo_list() -> None:
    """List the descriptors that come with tilelink."""
    known = [topologies.load(name) for name in topologies.names()]
    name_width = max(len(topology.name) for topology in known)
    gpu_width = max(len(topology.gpu.name) for topology in known)
    for topology in known:
        levels = ", ".join(f"{level.fabric.value} of {level.size}" for level in topology.levels)
        gpus = f"{topology.num_ranks:>2} x {topology.gpu.name:<{gpu_width}}"
        typer.echo(f"{topology.name:<{name_width}}  {gpus}  {levels}")


@topo.command("show")
def topo_show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A name of `topo list`, or a TOML.")],
    ranks: Ranks = None,
) -> None:
    """Draw who is linked to whom, at which rate, and where each number comes from."""
    typer.echo(topologies.show(topologies.load(name, ranks)))


@topo.command("detect")
def topo_detect() -> None:
    """Show the descriptor of this machine."""
    with working("looking for GPUs"):
        found = topologies.detect()
    typer.echo(topologies.show(found))


@app.command()
def plan(
    spec: Spec,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the design review.")] = False,
) -> None:
    """Print the schedule."""
    schedule = _schedule(spec, sizes, topology, ranks, dtype, pin)
    typer.echo(schedule.to_json() if json else str(schedule))


@app.command()
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
    schedule = _schedule(spec, sizes, topology, ranks, dtype, pin)
    with working("emitting"):
        source = lowering.emit(schedule, target)
    caveat = lowering.caveat(schedule, target)
    if caveat:
        typer.echo(f"{schedule.name} for {schedule.machine.topology}: {caveat}", err=True)
    if output is None:
        typer.echo(source, nl=False)
    else:
        write_file(output, source)


_SMALLER = "Take smaller sizes; `tilelink verify` proves the schedule of these and runs a small form of it."


@app.command()
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
) -> None:
    """Run the operator on all ranks and compare with a torch reference."""
    overlap, _, schedule = _plan(spec, sizes, lambda: machine_of(device, topology, ranks), dtype, pin)
    if device is Device.CPU:
        announce(f"{calls} emulated calls", of_spec(schedule.spec, calls), max_minutes, _SMALLER)
    for line in introduction(overlap, schedule, topology, dtype, parse_pins(pin or ())):
        typer.echo(line)
    with working(f"running {calls} calls on {device.value}"):
        result = run_schedule(device, schedule, target, calls, seed, share_gpus)
    for line in result.lines():
        typer.echo(line)
    raise typer.Exit(0 if result.equal else 1)


@app.command()
def verify(
    subject: Annotated[
        str, typer.Argument(metavar="SPEC|FILE.py", help="path.py:function, or a file with an operator in it.")
    ],
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=0, help="Number of random runs; the directed runs always happen.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first random run.")] = 0,
    sms: Annotated[int | None, typer.Option("--sms", min=1, help="SMs of each emulated rank that runs FILE.")] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Number of worker processes.")] = min(
        8, os.cpu_count() or 1
    ),
    max_minutes: MaxMinutes = 30.0,
    replay: Annotated[
        str, typer.Option("--replay", metavar="RUN", help="Repeat one run, named as a counterexample names it.")
    ] = "",
    target: Target = "triton",
    api: Annotated[bool, typer.Option("--api", help="Check FILE.py against the API of Triton-distributed.")] = False,
    vendor: Annotated[
        Vendor | None,
        typer.Option("--vendor", help="Library whose API --api checks.", show_default="what the file imports"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prove a schedule, then run its source against an adversary. A FILE.py is run, or checked with --api.

    Exit 0: not refuted, 1: refuted, 2: not checked, inconclusive or bad input.
    """
    if vendor is not None and not api:
        raise OptionOfApi(vendor=vendor.value)
    if api:
        if sizes:
            raise SizesOfFile(path=subject, sizes=" ".join(sizes))
        report = verify_api(Path(subject), vendor)
        typer.echo(report.to_json() if json else "\n".join(report.lines()))
        raise typer.Exit(report.exit_code)
    effort = Effort(seeds, seed, workers, replay, max_minutes)
    if ":" in subject:
        declared, machine, schedule = _planned(subject, sizes, topology, ranks, dtype, pin)
        command = _again(subject, sizes, topology, machine.num_ranks, dtype, pin, target)
        found = verify_schedule(declared, schedule, machine, target, command, effort)
    else:
        if sizes:
            raise SizesOfFile(path=subject, sizes=" ".join(sizes))
        found = verify_file(Path(subject), ranks, sms, effort)
    typer.echo(found.to_json() if json else "\n".join(found.lines()))
    raise typer.Exit(found.kind.exit_code)


@app.command()
def mutate(
    spec: Spec,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Mutants of each kind; 0: all.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample.")] = 0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=2, help="Number of worker processes.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: every mutant and what became of it.")] = False,
) -> None:
    """Plant bugs in a schedule and in its source, and count those that `verify` finds. Exit 1 below 95 %."""
    declared, machine, schedule = _planned(spec, sizes, topology, ranks, dtype, pin)
    small = small_form(declared, schedule, machine)
    with working("judging mutants"):
        found = campaign(small, sample, seed, workers)
    typer.echo(found.to_json() if json else found.text(), nl=False)
    raise typer.Exit(0 if found.score >= ENOUGH else 1)


def _again(
    subject: str, sizes: list[str] | None, topology: str, ranks: int, dtype: str, pin: list[str] | None, target: str
) -> str:
    """The command that verifies the same, for a counterexample."""
    words = ["tilelink", "verify", subject, *(sizes or ()), "--topology", topology, "--ranks", str(ranks)]
    words += ["--dtype", dtype] if dtype != "bf16" else []
    words += ["--target", target] if target != "triton" else []
    for one in pin or ():
        words += ["--pin", one]
    return shlex.join(words)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", metavar="FILE", help="Where to write the emitted file.")] = Path(
        "ag_gemm_tilelink.py"
    ),
) -> None:
    """From a spec to a schedule, a readable file, and an equal result on emulated ranks."""
    raise typer.Exit(0 if show_demo(output) else 1)


def _schedule(
    spec: str, sizes: list[str] | None, name: str, ranks: int | None, dtype: str, pins: list[str] | None
) -> Schedule:
    return _planned(spec, sizes, name, ranks, dtype, pins)[2]


def _planned(
    spec: str, sizes: list[str] | None, name: str, ranks: int | None, dtype: str, pins: list[str] | None
) -> tuple[DeclaredSpec, Topology, Schedule]:
    overlap, topology, schedule = _plan(spec, sizes, lambda: topologies.load(name, ranks), dtype, pins)
    return overlap.spec, topology, schedule


def _plan(
    spec: str, sizes: list[str] | None, machine: Callable[[], Topology], dtype: str, pins: list[str] | None
) -> tuple[Overlap, Topology, Schedule]:
    # the cheap checks come first: a typing mistake is answered before the user's file runs
    wanted = parse_sizes(sizes or ())
    pinned = parse_pins(pins or ())
    topology = machine()
    # what the user's file prints must not end up in the JSON or the source
    with working("planning"), redirect_stdout(sys.stderr):
        overlap = load_overlap(spec)
        return overlap, topology, overlap.plan_for(topology, wanted, dtype, pinned)
