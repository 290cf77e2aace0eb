"""`tilelink explain`: the terms of a predicted time, what lost to the schedule, and what would flip the choice."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Annotated

import typer

import topologies
from tilelink.command_arguments import Dtype, Nodes, Pins, Ranks, Sizes, Spec, TopologyName
from tilelink.explanation import explanation_json, explanation_text
from tilelink.ir.spec import BoundSpec, bind
from tilelink.planner.explain import explain as explained
from tilelink.runtime.machine import PLANNED_FOR
from tilelink.spec_file import load_overlap, parse_pins, parse_sizes
from tilelink.terminal import working

Families = Annotated[
    int, typer.Option("--families", min=0, help="So many of the families that lost, the fastest first.")
]
Seconds = Annotated[
    float,
    typer.Option("--seconds", min=0, help="Time to look for sizes and rates that flip the choice; 0 looks for none."),
]


def explain(
    spec: Spec,
    sizes: Sizes = None,
    topology: TopologyName = PLANNED_FOR,
    ranks: Ranks = None,
    nodes: Nodes = None,
    dtype: Dtype = "bf16",
    pin: Pins = None,
    families: Families = 10,
    seconds: Seconds = 5.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Say why a schedule is chosen: its time in named terms, what lost to it and by what, and what would flip the choice.

    Terms of the critical path add up to the predicted time; hidden ones run beside them. A family is who moves what, in
    which direction and by which algorithm, and who computes it; its pins plan it. A choice flips at the nearest size, and at
    the factor of a rate of the machine, at which the search chooses another family.
    """
    wanted, pins = parse_sizes(sizes or ()), parse_pins(pin or ())
    machine = topologies.load(topology, ranks, nodes)
    with working("planning"), redirect_stdout(sys.stderr):
        overlap = load_overlap(spec)

        def bound(values: Mapping[str, int]) -> BoundSpec:
            return bind(overlap.spec, values, machine.num_ranks, dtype)

        bound(wanted)  # names of sizes are checked before any of them is changed
        ends = time.monotonic() + seconds
        found = explained(bound, wanted, machine, pins, families, lambda: time.monotonic() < ends)
    typer.echo(explanation_json(found) if json else explanation_text(found))
