"""`tilelink mutate`: planted bugs, and which of them `verify` finds."""

from __future__ import annotations

from typing import Annotated

import typer

from tilelink.adversary.small import small_form
from tilelink.command_arguments import Dtype, Nodes, Pins, Ranks, Sizes, Spec, TopologyName, planned
from tilelink.mutation.campaign import campaign
from tilelink.runtime.machine import PLANNED_FOR
from tilelink.terminal import working

ENOUGH = 0.95  # of the mutants that matter


def mutate(
    spec: Spec,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    nodes: Nodes = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    sample: Annotated[int, typer.Option("--sample", min=0, help="Mutants of each kind; 0: all.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sample.")] = 0,
    workers: Annotated[int, typer.Option("--workers", min=1, max=2, help="Number of worker processes.")] = 2,
    json: Annotated[bool, typer.Option("--json", help="Print JSON: every mutant and what became of it.")] = False,
) -> None:
    """Plant bugs in the steps of a schedule and in its source, and count those that are found. Exit 1 below 95 %."""
    declared, machine, schedule = planned(spec, sizes, topology, ranks, dtype, pin, nodes)
    small = small_form(declared, schedule, machine)
    with working("judging mutants"):
        found = campaign(small, sample, seed, workers)
    typer.echo(found.to_json() if json else found.text(), nl=False)
    raise typer.Exit(0 if found.score >= ENOUGH else 1)
