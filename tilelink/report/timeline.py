"""The section with all ranks by engine: predicted, and measured beneath it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilelink.report.facts import Facts
from tilelink.report.gantt import chart
from tilelink.report.html import Html, el, folded, section, table, timed, us
from tilelink.report.lanes import CALL, HELD, LAUNCH, MOVE, WAIT, WORK, Bar, Lane, from_to, program_lanes, rank_lanes
from tilelink.report.measured import MeasuredSpan

_MOST_RANKS = 16  # ranks that are drawn
_MARKS = 6000  # about, of all charts
_SHORT_US, _MOST_RUNS = 0.5, 80
_RUNS = {WORK: "computing", WAIT: "waiting", MOVE: "moving", CALL: "begin and end of the call", LAUNCH: "launches"}
_PROGRAMS = 12  # of each tile loop on rank 0
_KINDS = {"tile": WORK, "wait": WAIT, "move": MOVE, "end": CALL, "launch": LAUNCH}
_OF_ONE = (
    "The call that is drawn has stamps and is the last of some in a row, so that it takes another time than those without. "
    "A rank begins it when it has ended the one before: ranks wait for one that begins late. Names are those of functions of the "
    "emitted file; behind a comma is a group of warps that loads or copies for its program."
)
_LEGEND = (
    (WORK, "computing"),
    (WAIT, "waiting for data"),
    (HELD, "behind the tile before"),
    (MOVE, "moving bytes"),
    (LAUNCH, "launch"),
    (CALL, "begin and end of the call"),
    ("kernel", "kernel on the stream"),
)


def timeline_section(facts: Facts) -> Html:
    course, account, ranks = facts.course, facts.account, facts.schedule.num_ranks
    total = max(course.drawn_us, facts.measured.end_us if facts.measured is not None else 0.0)
    shown = min(ranks, _MOST_RANKS)
    drawn = {bar.kind for lane in _lanes(facts, 0) for bar in lane.bars}
    drawn |= {bar.kind for lane in program_lanes(facts.schedule, course, 0, _PROGRAMS, _MARKS) for bar in lane.bars}
    drawn |= {bar.kind for lane in measured_lanes(facts, 0) for bar in lane.bars}
    kinds = [(kind, text) for kind, text in _LEGEND if kind in drawn]
    legend = [el("span", el("span", "", class_=f"key {kind}", aria_hidden="true"), text) for kind, text in kinds]
    rest = account.total_us - course.drawn_us
    notes = [
        "Predicted, in us from the start of the call. ",
        "In the model all ranks do the same at the same time, with peers of their own. ",
        f"Events end at {us(course.drawn_us)}. ",
    ]
    if abs(rest) >= 0.05:
        notes.append(
            f"Higher clocks and copies beside tiles change that by {us(rest)} to the predicted {us(account.total_us)}. "
        )
    if shown < ranks:
        notes.append(f"Ranks 0 to {shown - 1} of {ranks} are drawn. ")
    notes.append("The critical path is the program that ends last, with the launches before and behind it.")
    zoom = [
        el("button", text, type="button", data_zoom=by, title=title)
        for text, by, title in (
            ("−", "out", "Shorter (key −)"),
            ("+", "in", "Longer (key +)"),
            ("fit", "fit", "All (key 0)"),
        )
    ]
    tools = el(
        "div", el("span", *legend, class_="legend"), el("span", *zoom, class_="zoom", hidden=True), class_="tools"
    )
    readout = el("output", "Hover a bar, or focus a lane and use the arrow keys.", class_="readout", aria_live="polite")
    groups = [_rank(facts, rank, total, shown) for rank in range(shown)]
    return section(
        "timeline", "Time line", el("p", *notes), tools, readout, *groups, *_compared(facts), _programs(facts, total)
    )


def _lanes(facts: Facts, rank: int) -> list[Lane]:
    return rank_lanes(facts.schedule, facts.course, facts.account, facts.limits.gb_per_s, rank)


def _rank(facts: Facts, rank: int, total: float, shown: int) -> Html:
    lanes = _lanes(facts, rank)
    parts = [chart(lanes, total, f"Predicted lanes of rank {rank}")]
    parts += [el("p", f"{lane.name}: {lane.note}.", class_="note") for lane in lanes if lane.note and rank == 0]
    measured = measured_lanes(facts, rank)
    if measured:
        parts += [el("h4", f"Measured, rank {rank}"), chart(measured, total, f"Measured lanes of rank {rank}")]
    title = f"Rank {rank}" + (", predicted and measured" if measured else "")
    return folded(title, *parts, open_=rank < 2 or shown <= 4)


def measured_lanes(facts: Facts, rank: int) -> list[Lane]:
    """Spans of a rank, a lane for each program that is shown, each stream or sum."""
    if facts.measured is None:
        return []
    lanes: dict[str, list[Bar]] = {}
    for span in facts.measured.shown(rank):
        lanes.setdefault(span.lane, []).append(_measured_bar(span, facts.measured.summed))
    return [Lane(name, "measured", tuple(sorted(bars, key=lambda bar: bar.begin))) for name, bars in lanes.items()]


def _measured_bar(span: MeasuredSpan, summed: bool) -> Bar:
    title = f"{span.doing} {span.where}: {from_to(span.start_us, span.end_us)}"
    share = 1.0
    if summed:
        title = (
            f"{span.doing} {span.where}: {span.programs} programs between {span.start_us:g} and {span.end_us:g} us, "
            f"{span.mean_us:g} us each on average"
        )
        length = span.end_us - span.start_us
        share = min(1.0, max(0.1, span.mean_us / length)) if length > 0 else 1.0
    return Bar(span.start_us, span.end_us, _KINDS[span.doing], title, span.where or span.doing, share)


def _compared(facts: Facts) -> Iterator[Html]:
    """What the critical path spends by kind and, where there are spans of single programs, span by span."""
    measured = facts.measured
    if measured is None:
        return
    critical = next(lane for lane in _lanes(facts, 0) if lane.engine == "critical path")
    slowest = max(measured.ranks, key=lambda rank: max(span.end_us for span in measured.spans if span.rank == rank))
    spans = [span for span in measured.spans if span.rank == slowest]
    if measured.summed:
        what = f"programs of rank {slowest}, on average"
    else:
        last = max(spans, key=lambda span: span.end_us).lane
        spans, what = [span for span in spans if span.lane == last], f"{last} of rank {slowest}, which ends last"
    rows = []
    for kind, name in _RUNS.items():
        predicted = sum(bar.end - bar.begin for bar in critical.bars if bar.kind == kind)
        found = sum(span.mean_us for span in spans if _KINDS[span.doing] == kind)
        stamped = kind in (WORK, WAIT, MOVE, CALL) or found > 0  # nothing stamps a launch
        if found or predicted:
            rows.append(
                [name, timed(predicted), *([timed(found), timed(found - predicted)] if stamped else ["–", "–"])]
            )
    heads = ("the critical path", "predicted", "measured", "difference")
    yield table(f"Predicted: what ends last. Measured: {what}", heads, rows, (1, 2, 3))
    sums = [
        [
            span.doing,
            el("code", span.where),
            str(span.programs),
            timed(span.mean_us),
            timed(span.start_us),
            timed(span.end_us),
        ]
        for span in measured.sums(slowest)
        if span.mean_us >= _SHORT_US
    ]
    columns = ("measured", "where", "programs", "each, on average", "from", "to")
    yield table(f"Rank {slowest}: what programs do, and what they wait for", columns, sums, (2, 3, 4, 5))
    if measured.summed:
        yield el(
            "p",
            "The file has sums over programs: a bar spans from the first begin to the last end, its height is the share of that "
            "time which a program spends there. Its zero is when the first program began.",
            class_="note",
        )
    else:
        yield el("p", _OF_ONE, class_="note")
        yield folded("Span by span", _span_by_span(critical, spans))


def _span_by_span(critical: Lane, spans: Sequence[MeasuredSpan]) -> Html:
    """The n-th run of each kind beside the n-th that was measured; neighbours of a kind are one run."""
    predicted = _runs((bar.kind, bar.begin, bar.end) for bar in critical.bars)
    ordered = sorted(spans, key=lambda span: span.start_us)
    measured = _runs((_KINDS[span.doing], span.start_us, span.end_us) for span in ordered)
    rows = []
    alike = {
        kind for kind in _RUNS if sum(one == kind for one, _ in predicted) == sum(one == kind for one, _ in measured)
    }
    for kind, number in dict.fromkeys([*predicted, *measured]):
        one, other = predicted.get((kind, number)), measured.get((kind, number))
        cells = [f"{us(each[0])} to {us(each[1])}" if each is not None else "–" for each in (one, other)]
        both = one is not None and other is not None and kind in alike
        more = timed(other[1] - other[0] - (one[1] - one[0])) if both and one and other else "–"
        rows.append([f"{_RUNS[kind]}, {number}", *cells, more])
    heads = ("run", "predicted", "measured", "difference of lengths")
    note = f"Runs of the critical path, in order; waits below {_SHORT_US} us belong to what they interrupt"
    return table(note, heads, rows[:_MOST_RUNS], (1, 2, 3))


def _runs(found: Iterable[tuple[str, float, float]]) -> dict[tuple[str, int], tuple[float, float]]:
    runs: dict[tuple[str, int], tuple[float, float]] = {}
    count: dict[str, int] = {}
    last = ""
    for kind, begin, end in found:
        if kind == WAIT and end - begin < _SHORT_US:
            kind = last or WORK
        if kind != last:
            count[kind] = count.get(kind, 0) + 1
        held = runs.get((kind, count[kind]))
        runs[kind, count[kind]] = (held[0] if held is not None else begin, end)
        last = kind
    return runs


def _programs(facts: Facts, total: float) -> Html | str:
    """Tiles of some programs, one chart a rank."""
    if not facts.course.tiles:
        return ""
    ranks = min(facts.schedule.num_ranks, 8)
    parts = []
    for rank in range(ranks):
        programs = _PROGRAMS if rank == 0 else 4
        most = _MARKS // 3 if rank == 0 else _MARKS // 3 // ranks
        lanes = program_lanes(facts.schedule, facts.course, rank, programs, most)
        picture = chart(lanes, total, f"Programs of rank {rank}")
        parts.append(folded(f"Rank {rank}: {len(lanes)} programs", picture, open_=rank == 0))
    note = "Some programs of each tile loop, evenly spaced, with every tile of theirs. Segments are numbered by rank."
    return el("div", el("h3", "Tiles by program"), el("p", note, class_="note"), *parts)
