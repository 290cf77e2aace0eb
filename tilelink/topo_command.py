"""`tilelink topo`: the descriptors of machines. It needs nothing but topologies, so it answers at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer

import topologies
from tilelink.terminal import working
from topologies.topology import Topology

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
topo = typer.Typer(help="Topology descriptors: what the planner knows of a machine.", no_args_is_help=True)


@topo.command("list")
def topo_list(as_json: Json = False) -> None:
    """List the descriptors that come with tilelink."""
    known = [topologies.load(name) for name in topologies.names()]
    if as_json:
        typer.echo(_json([asdict(one) for one in known]))
        return
    name_width = max(len(topology.name) for topology in known)
    gpu_width = max(len(topology.gpu.name) for topology in known)
    for topology in known:
        levels = ", ".join(f"{level.fabric.value} of {level.size}" for level in topology.levels)
        gpus = f"{topology.num_ranks:>2} x {topology.gpu.name:<{gpu_width}}"
        typer.echo(f"{topology.name:<{name_width}}  {gpus}  {levels}")


@topo.command("show")
def topo_show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A name of `topo list`, or a TOML.")],
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="Number of ranks.", show_default="all of the topology")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw who is linked to whom, at which rate, and where each number comes from."""
    _shown(topologies.load(name, ranks), as_json)


@topo.command("detect")
def topo_detect(as_json: Json = False) -> None:
    """Show the descriptor of this machine."""
    with working("looking for GPUs"):
        found = topologies.detect()
    _shown(found, as_json)


def _shown(topology: Topology, as_json: bool) -> None:
    typer.echo(_json(asdict(topology)) if as_json else topologies.show(topology))


def _json(found: object) -> str:
    return json.dumps(found, indent=1, default=lambda one: one.value if isinstance(one, Enum) else str(one))
