"""Results as text for a terminal: a line while the rows run, a table at the end."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from tilelink.bench.record import Record, RowResult
from tilelink.bench.summary import ASYNC_TP, GEMM, SEQUENTIAL, by_operator, failures, summarize


def us_text(us: float | None) -> str:
    """Three or four significant digits, `-` for none."""
    if us is None:
        return "-"
    return f"{us:.1f}" if us < 100 else f"{us:.0f}"


def ratio_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def row_line(row: RowResult) -> str:
    """One line of progress."""
    found = summarize(row)
    best = found.best.name if found.best is not None else "none"
    text = f"{row.key}: ours {us_text(found.ours_us)} us, best baseline {us_text(found.best_us)} ({best}), "
    text += f"limit {us_text(found.limit_us)}, {row.seconds:.1f} s"
    return "\n  ".join([text, *(failure.splitlines()[0] for failure in failures(row))])


def better_lines(rows: Iterable[RowResult]) -> list[str]:
    """A line for each row in which an alternative took less time than what was planned, with the choices that differ: pinned,
    with all others of its `choices` in the results, they make that schedule."""
    lines = []
    for row in rows:
        found = summarize(row)
        if found.ours is None or found.tuned is None or found.tuned.schedule is None or found.ours.schedule is None:
            continue
        held = found.ours.schedule.choices
        differ = [f"{name}={value}" for name, value in found.tuned.schedule.choices.items() if held.get(name) != value]
        if found.tuned is not found.ours and found.ours_us and found.tuned_us:
            less = 100 * (1 - found.tuned_us / found.ours_us)
            lines.append(f"{row.key}: {found.tuned.name} takes {less:.1f} % less than planned: {', '.join(differ)}")
    return lines


def rich_table(record: Record) -> Table:
    """A line a row, one a geometric mean."""
    machine = record.machine
    table = Table(title=f"{machine.num_ranks} x {machine.gpu}, us, slowest rank, median", title_justify="left")
    table.add_column("row", no_wrap=True)
    ours, theirs = ("planned", "reused", "tuned"), ("best baseline", "NCCL+cuBLAS", "async-TP", "GEMM", "limit")
    for name in (*ours, *theirs, "best/ours", "limit/ours"):
        table.add_column(name, justify="right")
    for row in record.rows:
        found = summarize(row)
        best = f"{us_text(found.best_us)} {found.best.name}" if found.best is not None else "-"
        times = (found.us(SEQUENTIAL), found.us(*ASYNC_TP), found.us(GEMM), found.limit_us)
        mine = map(us_text, (found.ours_us, found.reused_us, found.tuned_us))
        cells = [row.key, *mine, best, *map(us_text, times)]
        table.add_row(*cells, ratio_text(found.speedup), ratio_text(found.of_limit))
    table.add_section()
    for mean in by_operator(record.rows):
        label = f"{mean.operator} geomean of {mean.measured}/{mean.rows}"
        table.add_row(label, *[""] * 8, ratio_text(mean.speedup), ratio_text(mean.of_limit))
    return table
