"""Results of `tilelink bench --json` as a page and a picture; nothing in them is typed by hand.

python benchmarks/bench_report.py benchmarks/results/bench_2xh100.json --markdown PAGE.md --into docs/performance.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tilelink.bench.record import Record, RowResult, read
from tilelink.bench.summary import ASYNC_TP, SEQUENTIAL, RowSummary, by_operator, failures, summarize
from tilelink.bench.table import ratio_text, us_text
from tilelink.measuring.results import ContenderResult
from topologies.errors import UserError

TWO_STREAMS = ("two_stream_2", "two_stream_4")
SYMMETRIC = ("one_shot", "two_shot")
OTHERS = {"NCCL + cuBLAS": (SEQUENTIAL,), "async-TP": ASYNC_TP, "two streams": TWO_STREAMS}  # columns of baselines
EXPERTS = {
    "NCCL, grouped": ("nccl_grouped",),
    "NCCL, fused": ("nccl_fused",),
    "triton_kernels": ("triton_kernels",),
}
BARS = {  # what the plot compares, as a fraction of the physical limit
    "planned": ("planned",),
    "planned, outputs reused": ("reused",),
    "NCCL + cuBLAS": (SEQUENTIAL,),
    "async-TP": ASYNC_TP,
    "two streams": TWO_STREAMS,
    "symmetric AllReduce": SYMMETRIC,
    **EXPERTS,
}
_SHOWN = {"torch": "torch", "triton": "Triton", "nccl": "NCCL"}  # versions in the caption of a page
_OF_EXPERTS = (
    "With experts, M are tokens, E experts and K experts of a token. Index work is in the time, and ids change between replays. "
    "*busiest rank* is the largest share of assignments that a rank has in any drawing. *GEMM alone* is torch's grouped matmul."
)
COLOURS = ("#1b6ca8", "#5aa9d6", "#9aa0a6", "#e07b39", "#c9b458", "#7b5ea7", "#9aa0a6", "#e07b39", "#c9b458")


def markdown(record: Record) -> str:
    """The page: machine, one table an operator, geometric means, what failed, host times."""
    machine = record.machine
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items() if number)
    cold = (
        " The L2 is overwritten before each call; the time of that is subtracted." if record.options["l2_cold"] else ""
    )
    before = {"load_ms": "the matmul alone", "settle_ms": "its own load"}
    loaded = "".join(
        f" Before its samples of a round comes {ms:g} ms of {what}."
        for option, what in before.items()
        if (ms := float(record.options.get(option, 0)))
    )
    against = str(record.options.get("against", "")).replace(",", ", ")
    only = f" Of the baselines only {against} took part." if against else ""
    lines = [
        f"# {machine.num_ranks} x {machine.gpu}",
        "",
        f"{record.date}, commit {record.commit}, driver {machine.driver}, {versions}, planned for {machine.topology}."
        f"{'' if record.complete else ' **The run was cut short.**'}",
        "",
        "Times in us: median of the rounds, the slowest rank of each sample, 10th to 90th percentile of all samples in brackets. "
        "All contenders of a row run in one process group and in turns, in a new order each round. "
        "CUDA-graph replays of several calls back to back, "
        f"except `async_tp`, which is eager.{loaded}{cold}{only}",
        "",
        "*limit* is max(GEMM alone by cuBLAS, bytes into a rank / link rate); *limit / planned* is 1.0 where overlap is perfect. "
        "*best / planned* above 1 means that what the planner picks is faster than every baseline. *reused* is what it picks if "
        "the next call may overwrite outputs, as `one_shot` and `two_shot` do.",
    ]
    if any(row.experts is not None for row in record.rows):
        lines += ["", _OF_EXPERTS]
    for operator in dict.fromkeys(row.operator for row in record.rows):
        lines += ["", f"## {operator}", "", *_table([row for row in record.rows if row.operator == operator])]
    lines += ["", "## Geometric means", "", *_means(record)]
    for title, found in (
        ("What failed", _failures(record)),
        ("Time of the host for one eager call, us", _hosts(record)),
    ):
        if found:
            lines += ["", f"## {title}", "", *found]
    return "\n".join(lines) + "\n"


def _table(rows: list[RowResult]) -> list[str]:
    """Of one operator; those with experts have baselines of their own."""
    has_experts = any(row.experts is not None for row in rows)
    heads = ["row", "sizes", *(["routing", "busiest rank"] if has_experts else [])]
    heads += ["planned", "predicted", "reused", "tuned", "best baseline", *(EXPERTS if has_experts else OTHERS)]
    heads += ["GEMM alone", "NCCL alone", "limit", "best / planned", "limit / planned"]
    return [_line(heads), _line(["---"] * len(heads)), *(_line(_cells(summarize(row))) for row in rows)]


def _cells(found: RowSummary) -> list[str]:
    row, ours, experts = found.row, found.ours, found.row.experts
    predicted = ours.schedule.predicted_us if ours is not None and ours.schedule is not None else None
    best = f"{us_text(found.best_us)} `{found.best.name}`" if found.best is not None else "-"
    sizes = f"M={row.m} H={row.hidden} F={row.ffn}"
    drawn = []
    if experts is not None:
        sizes += f" E={experts.experts} K={experts.choices}"
        drawn = [experts.routing, f"{experts.busiest_rank_share:.2f}"]
    parts = [found.us(*names) for names in (OTHERS if experts is None else EXPERTS).values()]
    parts += [found.us("gemm"), found.us("collective")]
    return [
        row.name,
        f"{sizes} {row.dtype}",
        *drawn,
        _with_spread(ours),
        us_text(predicted),
        us_text(found.reused_us),
        us_text(found.tuned_us),
        best,
        *map(us_text, [*parts, found.limit_us]),
        ratio_text(found.speedup),
        ratio_text(found.of_limit),
    ]


def _with_spread(result: ContenderResult | None) -> str:
    if result is None or result.median_us is None:
        return "-"
    return f"**{us_text(result.median_us)}** ({us_text(result.p10_us)}–{us_text(result.p90_us)})"


def _means(record: Record) -> list[str]:
    heads = [
        "operator",
        "rows",
        "limit / planned",
        "best / planned",
        "NCCL + cuBLAS / planned",
        "rows behind a baseline",
    ]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for mean in by_operator(record.rows):
        ratios = map(ratio_text, (mean.of_limit, mean.speedup, mean.over_sequential))
        lines.append(_line([mean.operator, f"{mean.measured} of {mean.rows}", *ratios, str(mean.behind)]))
    return lines


def into(page: str, record: Record) -> str:
    """`page` with the table of geometric means between the two markers for these GPUs. Raises ValueError if it has none."""
    machine = f"{record.machine.num_ranks} x {record.machine.gpu}"
    first, last = f"<!-- bench {machine}: begin -->\n", f"<!-- bench {machine}: end -->"
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no lines {first.strip()} and {last}")
    short = "" if record.complete else " The run was cut short, and rows that it did not come to are not counted."
    found = record.machine.versions
    versions = "".join(f", {shown} {found[name]}" for name, shown in _SHOWN.items() if found.get(name))
    caption = f"{machine}{versions}, measured on {record.date[:10]}, planned without pins.{short}"
    return before + begin + "\n".join([caption, "", *_means(record), ""]) + end + after


def _failures(record: Record) -> list[str]:
    return [f"- {row.key}: {' '.join(line.split())}" for row in record.rows for line in failures(row)]


def _hosts(record: Record) -> list[str]:
    names = list(dict.fromkeys(c.name for row in record.rows for c in row.contenders if c.host_us is not None))
    if not names:
        return []
    lines = [_line(["row", *names]), _line(["---"] * (len(names) + 1))]
    for row in record.rows:
        found = {c.name: c.host_us for c in row.contenders}
        lines.append(_line([row.key, *(us_text(found.get(name)) for name in names)]))
    return lines


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def fractions(rows: list[RowSummary]) -> dict[str, list[float]]:
    """Heights of the bars: limit / time for each row, 0 where there is none; series without any are left out."""
    series: dict[str, list[float]] = {}
    for label, names in BARS.items():
        times = [(found.limit_us, found.us(*names)) for found in rows]
        heights = [limit / us if limit and us else 0.0 for limit, us in times]
        if any(heights):
            series[label] = heights
    return series


def plot(record: Record, path: Path) -> None:
    """Bars, one panel an operator: how near to the physical limit each contender comes."""
    import matplotlib  # type: ignore[import-not-found,unused-ignore]

    matplotlib.use("Agg")
    from matplotlib import pyplot

    operators = list(dict.fromkeys(row.operator for row in record.rows))
    figure, panels = pyplot.subplots(len(operators), 1, figsize=(12, 3.2 * len(operators)), squeeze=False)
    for panel, operator in zip(panels[:, 0], operators, strict=True):
        rows = [summarize(row) for row in record.rows if row.operator == operator]
        series = fractions(rows)
        width = 0.8 / max(1, len(series))
        for number, (label, heights) in enumerate(series.items()):
            places = [index + (number - (len(series) - 1) / 2) * width for index in range(len(rows))]
            panel.bar(places, heights, width, label=label, color=COLOURS[list(BARS).index(label)])
        panel.axhline(1.0, color="black", linewidth=0.8)
        panel.set_xticks(range(len(rows)), [found.row.name for found in rows], rotation=20, ha="right")
        panel.set_ylabel("physical limit / time")
        panel.set_title(f"{operator} on {record.machine.num_ranks} x {record.machine.gpu}", loc="left")
        panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(BARS), frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--into", type=Path, help="a page with markers, in which the table of means is renewed")
    arguments = parser.parse_args()
    try:
        record = read(arguments.results)
    except UserError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(2)
    if arguments.plot is not None:
        plot(record, arguments.plot)
    if arguments.markdown is not None:
        arguments.markdown.write_text(markdown(record), encoding="utf-8")
    if arguments.into is not None:
        renewed = into(arguments.into.read_text(encoding="utf-8"), record)
        partial = arguments.into.with_suffix(".part")
        partial.write_text(renewed, encoding="utf-8")
        partial.rename(arguments.into)
    if arguments.markdown is None and arguments.plot is None and arguments.into is None:
        print(markdown(record), end="")


if __name__ == "__main__":
    main()
