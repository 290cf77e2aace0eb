"""`tilelink demo`: from a spec to a schedule, a readable file, and an equal result on emulated ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import lowering
import topologies
from tilelink.cli_errors import WouldOverwrite
from tilelink.demo import ag_gemm
from tilelink.ir.schedule import Schedule
from tilelink.runtime.machine import EMULATED
from tilelink.runtime.run import run_emulated
from tilelink.terminal import write_file

_RANKS = 2
_SIZES = {
    "M": 2048,
    "K": 512,
    "N": 2048,
}  # the smallest of which the planner sends parts in chunks; emulated in seconds
_READ = """
How to read it:
  - A rank holds {rows} of {all_rows} rows of x and needs all of them. Its copy engine sends {chunks} chunks of {chunk_rows} rows
    to each peer; `notify` raises a signal behind each chunk.
  - Meanwhile all {sms} SMs multiply. Tiles of the own rows come first. Any other tile waits for the chunk that holds its rows.
  - The planner's model says {planned:.0f} us, and {plain:.0f} us one after the other, by NCCL and cuBLAS.
"""


def show_demo(output: Path) -> bool:
    """Print everything and write the file; whether the result is equal. Raises OutputNotWritable, and WouldOverwrite of a file
    that somebody has edited."""
    for line in ag_gemm.spec.source:
        typer.echo(line)
    machine = topologies.load(EMULATED, _RANKS)
    schedule = ag_gemm.plan_for(machine, _SIZES)
    typer.echo(f"\n{schedule}")
    typer.echo(_read(schedule, ag_gemm.plan_for(machine, _SIZES, pin={"algorithm": "library", "compute": "library"})))
    source = lowering.emit(schedule)
    if output.is_file() and output.read_text(encoding="utf-8", errors="replace") != source:
        raise WouldOverwrite(path=output)
    write_file(output, source)
    typer.echo(f"emitted: {output} ({len(source.splitlines())} lines)")
    result = run_emulated(schedule, source, calls=2)
    for line in result.lines():
        typer.echo(line)
    return result.equal


def _read(schedule: Schedule, plain: Schedule) -> str:
    """What to look for in the print of `schedule`; `plain` is the one that overlaps nothing."""
    (exchange,) = schedule.exchanges
    rows = _SIZES["M"] // _RANKS
    return _READ.format(
        rows=rows,
        all_rows=_SIZES["M"],
        chunks=exchange.chunks,
        chunk_rows=rows // exchange.chunks,
        sms=schedule.machine.num_sms,
        planned=schedule.predicted_us,
        plain=plain.predicted_us,
    )


def demo(
    output: Annotated[Path, typer.Option("-o", metavar="FILE", help="Where to write the emitted file.")] = Path(
        "ag_gemm_tilelink.py"
    ),
) -> None:
    """From a spec to a schedule, a readable file, and an equal result on emulated ranks."""
    raise typer.Exit(0 if show_demo(output) else 1)
