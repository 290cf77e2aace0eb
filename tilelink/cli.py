"""The command line: `tilelink plan | explain | show | emit | run | verify | mutate | bench | regret | demo | topo`. Results go to
stdout, everything else to stderr.

Exit codes: 0 done; 1 a run whose result differs from the reference, or a refuted operator; 2 bad input; 3 no legal
schedule; 4 a mistake of tilelink: it built no schedule that its own proof accepts.

A command is a function of a module of its own, which is imported when the command is called: `tilelink --help` and
`tilelink topo list` wait for no compiler.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tilelink.late_command import Late, LateCommand
from tilelink.usage import plain
from tilelink.version import versions
from topologies.errors import UserError

COMMANDS = (
    Late(
        "bench",
        "tilelink.bench.command",
        "bench",
        "Measure on GPUs: ours, NCCL + cuBLAS, async-TP and others, interleaved in one process group.",
    ),
    Late(
        "regret",
        "tilelink.bench.regret_command",
        "regret",
        "Say how much slower than the fastest measured schedule the one is that the model picks.",
    ),
    Late(
        "tune",
        "tilelink.tune_command",
        "tune",
        "Measure the planner's best schedules on these GPUs, and keep the fastest for compile(tune=N).",
    ),
    Late("plan", "tilelink.plan_command", "plan", "Print the schedule."),
    Late(
        "explain",
        "tilelink.explain_command",
        "explain",
        "Say why a schedule is chosen: its time in named terms, what lost to it and by what, and what would flip the choice.",
    ),
    Late(
        "show",
        "tilelink.show_command",
        "show",
        "Write a page about a schedule: where its time goes, what every engine does when, what is not overlapped and why.",
    ),
    Late("emit", "tilelink.plan_command", "emit", "Print the source, or write it to a file."),
    Late("run", "tilelink.run_command", "run", "Run the operator on all ranks and compare with a torch reference."),
    Late(
        "verify",
        "tilelink.verify_command",
        "verify",
        "Prove a schedule, then run its source against an adversary. A FILE.py is run, or checked with --api.",
    ),
    Late(
        "mutate",
        "tilelink.mutate_command",
        "mutate",
        "Plant bugs in the steps of a schedule and in its source, and count those that are found. Exit 1 below 95 %.",
    ),
    Late(
        "demo",
        "tilelink.demo_command",
        "demo",
        "From a spec to a schedule, a readable file, and an equal result on emulated ranks.",
    ),
    Late("topo", "tilelink.topo_command", "topo", "Topology descriptors: what the planner knows of a machine."),
)


class Commands(TyperGroup):
    """Turns a user's mistake in any command into one message and an exit code, in one place."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {late.name: LateCommand(late) for late in COMMANDS}

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plain(error.message)
            raise
        except UserError as error:
            typer.echo(f"{type(error).__name__}: {error}", err=True)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=Commands,
    help="Declare the tile graph, get the overlap schedule.",
    no_args_is_help=True,
    # a traceback is for a bug of ours, and then it has to be whole
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    """Prints versions of what makes a schedule and its kernels, and ends."""
    if not wanted:
        return
    typer.echo("\n".join(versions()))
    raise typer.Exit


@app.callback()
def tilelink(
    *,
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print versions and exit.")
    ] = False,
) -> None:
    """Declare the tile graph, get the overlap schedule."""


def main() -> None:
    """The console entry point."""
    app(prog_name="tilelink")
