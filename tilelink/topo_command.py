"""`tilelink topo`: the descriptors of machines. It needs nothing but topologies, so it answers at once."""

from __future__ import annotations

from typing import Annotated

import typer

import topologies
from tilelink.terminal import working

topo = typer.Typer(help="Topology descriptors: what the planner knows of a machine.", no_args_is_help=True)


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
    ranks: Annotated[
        int | None, typer.Option("--ranks", help="Number of ranks.", show_default="all of the topology")
    ] = None,
) -> None:
    """Draw who is linked to whom, at which rate, and where each number comes from."""
    typer.echo(topologies.show(topologies.load(name, ranks)))


@topo.command("detect")
def topo_detect() -> None:
    """Show the descriptor of this machine."""
    with working("looking for GPUs"):
        found = topologies.detect()
    typer.echo(topologies.show(found))
