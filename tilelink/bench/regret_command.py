"""The command `tilelink regret`: how good the choice of the model is, on schedules that were measured."""

from __future__ import annotations

import json as texts
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tilelink.bench.again import predicted_now
from tilelink.bench.errors import NoRegret
from tilelink.bench.record import check_folder, read
from tilelink.bench.regret import TOPS, Report, as_json, as_recorded, regrets, reports
from tilelink.bench.table import ratio_text
from tilelink.terminal import working

Corpus = Annotated[
    list[Path],
    typer.Argument(
        metavar="CORPUS...", help="Files that `tilelink bench --tuned N --json FILE` wrote.", show_default=False
    ),
]
Recorded = Annotated[
    bool, typer.Option("--recorded", help="Believe the predictions in the file, not those of this commit.")
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers of every row here.")]


def regret(corpus: Corpus, recorded: Recorded = False, json: Json = None) -> None:
    """Say how much slower than the fastest measured schedule the one is that the model picks."""
    if json is not None:
        check_folder(json)
    rows = []
    with working("predicting"):
        for file in corpus:
            rows += regrets(read(file), as_recorded if recorded else predicted_now)
    if not rows:
        raise NoRegret(paths=", ".join(map(str, corpus)))
    found = reports(rows)
    Console(width=None if sys.stdout.isatty() else 200).print(_table(found))
    every = found[-1]
    typer.echo(f"worst: {every.worst_row}, {_percent(every.worst)} %")
    if json is not None:
        json.write_text(texts.dumps(as_json(found, rows), indent=1) + "\n", encoding="utf-8")


def _table(found: list[Report]) -> Table:
    table = Table(title="regret in % of the fastest measured schedule", title_justify="left")
    table.add_column("rows of", no_wrap=True)
    tops = [f"top {top}" for top in TOPS[1:]]
    ratios = ("best/pick", "behind", "NCCL+cuBLAS/pick", "limit/pick")
    for name in ("rows", "schedules", "wMAPE", "mean", "p95", "max", *tops, *ratios):
        table.add_column(name, justify="right")
    for one in found:
        first, *others = one.mean
        regret = map(_percent, (one.wmape, first, one.p95, one.worst, *others))
        ahead = ratio_text(one.ahead), str(one.behind), ratio_text(one.over_sequential), ratio_text(one.of_limit)
        table.add_row(one.what, str(one.rows), str(one.schedules), *regret, *ahead)
    return table


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.1f}"
