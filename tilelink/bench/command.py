"""The command `tilelink bench`: plan on this machine, measure on its GPUs, print a table."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

import topologies
from tilelink.bench.against import parse_against
from tilelink.bench.drawn import drawn as drawn_rows
from tilelink.bench.drawn import parse_drawing
from tilelink.bench.errors import PlannedForAnother, RowsTwice, SpecAndRows
from tilelink.bench.files import EmittedFile, parse_file, with_files
from tilelink.bench.job import Job, read_job
from tilelink.bench.launch import run_job
from tilelink.bench.machine import DEFAULT_TOPOLOGY, topology_of_gpus
from tilelink.bench.plans import Candidate, Origin, PlannedRow, Request, parse_variant, plan_rows
from tilelink.bench.record import Record, check_folder, read
from tilelink.bench.routings import Routing, parse_routings
from tilelink.bench.rows import QUICK, Operator, parse_operators, select
from tilelink.bench.spec_rows import AnyRow, SpecRow, spec_rows
from tilelink.bench.summary import wrong_or_missing
from tilelink.bench.table import better_lines, rich_table
from tilelink.errors import RunFailed
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.measuring.measure import Options
from tilelink.runtime.torchrun import check_gpus
from tilelink.spec_file import load_overlap
from topologies.topology import Topology

QUICK_ROUNDS = 3
_HANG_S = 120.0
_WITHOUT_GPUS = "Legal on this machine: `tilelink bench --write-plans FILE`, which plans for a run on another one."
_UNNAMED = "bench_results.json"  # where ranks of a written job leave their results
_FOUR = "those without experts"

Operators = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OPERATOR|SPEC SIZES",
        help=f"{', '.join(one.value for one in Operator)}; or path.py:function M=1000,3000 K=4096.",
        show_default=_FOUR,
    ),
]
Ranks = Annotated[
    int | None, typer.Option("--ranks", help="Number of GPUs.", show_default="as planned, or all of this machine")
]
RowNames = Annotated[
    list[str] | None,
    typer.Option(
        "--rows",
        metavar="NAMES",
        help="llama3-8b, llama3-70b-m1024, sweep, 8192x4096x14336; with experts qwen3-30b-a3b-m256, 1024x2048x768x128x8; "
        "comma or repeat.",
    ),
]
Drawn = Annotated[
    str,
    typer.Option(
        "--drawn",
        metavar="SEED:COUNT",
        help="Rows that nobody chose instead: widths of published models, any number of rows.",
        show_default=False,
    ),
]
Routings = Annotated[
    list[str] | None,
    typer.Option(
        "--routing",
        metavar="NAMES",
        help=f"Which experts tokens choose: {', '.join(one.value for one in Routing)}; comma or repeat.",
        show_default="uniform",
    ),
]
Dtype = Annotated[str, typer.Option("--dtype", help=f"One of {', '.join(DTYPE_BYTES)}.")]
TopologyName = Annotated[
    str | None,
    typer.Option(
        "--topology",
        metavar="NAME|FILE",
        help="Topology that the planner plans for.",
        show_default=f"as planned, or of these GPUs, or {DEFAULT_TOPOLOGY}",
    ),
]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write every sample here; a row on each line of a FILE.jsonl."),
]
Quick = Annotated[bool, typer.Option("--quick", help="One row an operator, few rounds.")]
Tuned = Annotated[
    int, typer.Option("--tuned", metavar="N", min=0, help="Measure the planner's N best alternatives too.")
]
Variants = Annotated[
    list[str] | None, typer.Option("--variant", metavar="LABEL:PIN;PIN", help="Also a pinned schedule; repeatable.")
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="LABEL:FILE", help="Also an emitted file, edited or not; repeatable."),
]
L2Cold = Annotated[bool, typer.Option("--l2-cold", help="Overwrite the L2 before each call.")]
Rounds = Annotated[
    int, typer.Option("--rounds", min=1, help="Number of rounds; each contender has one turn in a round.")
]
RowBudget = Annotated[
    float, typer.Option("--row-budget", min=1, help="Seconds for one row; no round starts after them.")
]
Load = Annotated[
    float, typer.Option("--load", min=0, help="Milliseconds of matmul that warm the GPU before each contender.")
]
Against = Annotated[
    str,
    typer.Option("--against", metavar="NAMES", help="Baselines to measure, separated by commas.", show_default="all"),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes", min=0, help="No row starts later; --resume measures the others.", show_default="all rows"
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds for the whole command.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the inputs.")]
Commit = Annotated[str, typer.Option("--commit", help="Commit that the results name.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep the rows that stand in the --json file, and measure the others.")
]
Plans = Annotated[
    Path | None,
    typer.Option(
        "--plans", metavar="FILE", help="Measure the schedules that --write-plans wrote; --rows selects among them."
    ),
]
WritePlans = Annotated[
    Path | None,
    typer.Option(
        "--write-plans",
        metavar="FILE",
        help="Plan, write the schedules to FILE, and measure nothing. No GPU is needed.",
    ),
]


def bench(
    operators: Operators = None,
    ranks: Ranks = None,
    rows: RowNames = None,
    drawn: Drawn = "",
    routing: Routings = None,
    dtype: Dtype = "bf16",
    topology: TopologyName = None,
    json: Json = None,
    quick: Quick = False,
    tuned: Tuned = 0,
    variant: Variants = None,
    file: Files = None,
    l2_cold: L2Cold = False,
    rounds: Rounds = 7,
    row_budget_s: RowBudget = 60.0,
    load_ms: Load = 100.0,
    against: Against = "",
    minutes: Minutes = None,
    timeout_s: Timeout = 3600.0,
    seed: Seed = 0,
    commit: Commit = "unknown",
    resume: Resume = False,
    plans: Plans = None,
    write_plans: WritePlans = None,
) -> None:
    """Measure on GPUs: ours, NCCL + cuBLAS, async-TP and others, interleaved in one process group."""
    held = read_job(plans) if plans is not None else None
    machine = _machine(ranks, topology, held)
    num_ranks = machine.num_ranks
    names = [name.strip() for text in rows or () for name in text.split(",") if name.strip()]
    spec, *sizes = operators if operators and ":" in operators[0] else [""]
    chosen, routings = _operators([] if spec else operators, held), parse_routings(routing or ())
    wanted: tuple[AnyRow, ...]
    if spec:
        options_of_rows = {"--rows": names, "--drawn": drawn, "--routing": routing, "--quick": quick}
        for option in (option for option, given in options_of_rows.items() if given):
            raise SpecAndRows(spec=spec, option=option)
        wanted = spec_rows(load_overlap(spec), sizes, dtype, num_ranks)
    elif drawn:
        if names:
            raise RowsTwice(drawn=drawn, rows=",".join(names))
        wanted = drawn_rows(*parse_drawing(drawn), chosen, dtype, num_ranks, routings)
    else:
        wanted = select(chosen, names or ((QUICK,) if quick else ()), dtype, num_ranks, routings)
    request = Request(machine, tuple(parse_variant(text) for text in variant or ()), tuned)
    turns = min(rounds, QUICK_ROUNDS) if quick else rounds
    options = Options(turns, row_budget_s, l2_cold, seed, parse_against(against), load_ms)
    files = [parse_file(text) for text in file or ()]
    for path in filter(None, (json, write_plans)):
        check_folder(path)
    if write_plans is None:
        check_gpus(num_ranks, _WITHOUT_GPUS)
    known = _known(held, str(plans), machine) if held is not None else {}
    if held is not None and not (names or quick or drawn or spec):
        of_plans = [one.row for one in held.rows if isinstance(one.row, SpecRow) or one.row.operator in chosen]
        wanted = tuple(dict.fromkeys(one for row in of_plans for one in row.with_routings(routings))) or wanted
    _check_files(files, wanted, request)
    planned = with_files(_planned(wanted, known, request), files, num_ranks)
    link, until_s = machine.levels[0].gb_per_s, math.inf if minutes is None else time.time() + 60 * minutes
    job = Job(planned, num_ranks, machine.name, link, options, commit, Path(_UNNAMED), resume, _HANG_S, until_s)
    if write_plans is not None:
        job.write(write_plans)
        typer.echo(f"planned: {write_plans} ({len(job.rows)} rows)")
        return
    _measure(job, json, timeout_s)


def _check_files(files: list[EmittedFile], rows: tuple[AnyRow, ...], request: Request) -> None:
    """Before minutes of planning. Raises FileFitsNoRow, MalformedFile."""
    taken = (Origin.PLANNED.value, Origin.REUSED.value, *(variant.label for variant in request.variants))
    names = tuple(Candidate(label, Origin.PINNED, None, "") for label in taken)
    with_files((PlannedRow(row, names) for row in rows), files, request.topology.num_ranks)


def _planned(wanted: tuple[AnyRow, ...], known: dict[str, PlannedRow], request: Request) -> tuple[PlannedRow, ...]:
    """Rows of the file as they are, the others planned now; for any routing."""
    missing = [row for row in wanted if row.planned_as.key not in known]
    if missing:
        typer.echo(f"planning {len(missing)} rows", err=True)
    found = {**known, **{planned.row.planned_as.key: planned for planned in plan_rows(missing, request)}}
    return tuple(replace(found[row.planned_as.key], row=row) for row in wanted)


def _operators(names: list[str] | None, held: Job | None) -> tuple[Operator, ...]:
    """What is named; where nothing is, what was planned for. Raises UnknownOperator."""
    if names or held is None:
        return parse_operators(names or ())
    named = [one.row.operator for one in held.rows if not isinstance(one.row, SpecRow)]
    return tuple(dict.fromkeys(named)) or parse_operators(())


def _machine(ranks: int | None, topology: str | None, held: Job | None) -> Topology:
    """What is asked for; where nothing is, what was planned for, or the GPUs here."""
    if held is not None:
        ranks = held.num_ranks if ranks is None else ranks
        topology = held.topology if topology is None else topology
    num_ranks = max(2, torch.cuda.device_count()) if ranks is None else ranks
    return topologies.load(topology_of_gpus() if topology is None else topology, num_ranks)


def _known(held: Job, path: str, machine: Topology) -> dict[str, PlannedRow]:
    """Rows of a file of plans by the keys of what they are planned as. Raises PlannedForAnother."""
    if (held.num_ranks, held.topology) != (machine.num_ranks, machine.name):
        raise PlannedForAnother(
            path=path,
            held_ranks=held.num_ranks,
            held_topology=held.topology,
            num_ranks=machine.num_ranks,
            topology=machine.name,
        )
    return {planned.row.planned_as.key: planned for planned in held.rows}


def _measure(job: Job, json: Path | None, timeout_s: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        results = (json if json is not None else Path(folder) / _UNNAMED).resolve()
        try:
            record = run_job(replace(job, results=results), timeout_s, _say)
        except RunFailed:
            if results.exists():
                _print_table(read(results))
            raise
    _print_table(record)
    if not record.complete:
        typer.echo(f"{len(record.rows)} of {len(job.rows)} rows; measure the others with --resume", err=True)
    failed = wrong_or_missing(record.rows)
    for key in failed:
        typer.echo(f"no time of ours: {key}", err=True)
    raise typer.Exit(1 if failed else 0)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_table(record: Record) -> None:
    Console(width=None if sys.stdout.isatty() else 200).print(rich_table(record))
    for line in better_lines(record.rows):
        typer.echo(line)
