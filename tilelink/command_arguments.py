"""What several commands take: their arguments, and the schedule that these name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Annotated

import typer

import lowering
import topologies
from lowering.targets import NVSHMEM
from tilelink.declaration import Overlap
from tilelink.ir.spec import Spec as DeclaredSpec
from tilelink.plan import Plan
from tilelink.spec_file import load_overlap, parse_pins, parse_sizes
from tilelink.terminal import working
from topologies.topology import Topology

Spec = Annotated[str, typer.Argument(metavar="SPEC", help="The overlap function, as path.py:function.")]
Sizes = Annotated[list[str] | None, typer.Argument(metavar="SIZES", help="Global sizes, M=8192 K=4096.")]
TopologyName = Annotated[str, typer.Option("--topology", metavar="NAME|FILE", help="Name, or path of a TOML.")]
Ranks = Annotated[int | None, typer.Option("--ranks", help="Number of ranks.", show_default="all of the topology")]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes", metavar="N", help="On so many nodes of the topology, with a NIC of 400 Gb/s for each rank."
    ),
]
Dtype = Annotated[str, typer.Option("--dtype", help="Element type of tensors that declare none.")]
Pins = Annotated[list[str] | None, typer.Option("--pin", metavar="K=V", help="Fix one choice; repeatable.")]
Target = Annotated[
    str, typer.Option("--target", help=f"The language of the source: {', '.join((*lowering.TARGETS, NVSHMEM))}.")
]

MaxMinutes = Annotated[
    float, typer.Option("--max-minutes", min=0, help="Refuse a run that is estimated to take emulated ranks longer.")
]


def planned(
    spec: str,
    sizes: list[str] | None,
    name: str,
    ranks: int | None,
    dtype: str,
    pins: list[str] | None,
    nodes: int | None = None,
    log: Callable[[str], object] | None = None,
) -> tuple[DeclaredSpec, Topology, Plan]:
    """What is declared, the machine `name`, and the plan for it."""
    overlap, topology, schedule = plan_on(spec, sizes, lambda: topologies.load(name, ranks, nodes), dtype, pins, log)
    return overlap.spec, topology, schedule


def plan_on(
    spec: str,
    sizes: list[str] | None,
    machine: Callable[[], Topology],
    dtype: str,
    pins: list[str] | None,
    log: Callable[[str], object] | None = None,
) -> tuple[Overlap, Topology, Plan]:
    """The declaration, its machine and the plan; `log` gets a line for each step of the search. Raises what reading the words,
    the machine and planning raise."""
    # the cheap checks come first: a typing mistake is answered before the user's file runs
    wanted = parse_sizes(sizes or ())
    pinned = parse_pins(pins or ())
    topology = machine()
    # what the user's file prints must not end up in the JSON or the source
    with working("planning"), redirect_stdout(sys.stderr):
        overlap = load_overlap(spec)
        return overlap, topology, overlap.plan_for(topology, wanted, dtype, pinned, log)
