"""Lanes as a chart: one SVG for the bars, whose x is microseconds, and HTML around it for names and numbers.

The picture stretches with the page, or with the zoom, along time alone; text stands beside it and keeps its size. So it needs no
script: with one it zooms, and says at once what is under the pointer or the focus.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from tilelink.report.html import Html, el, exact, joined
from tilelink.report.lanes import Bar, Lane

ROW, BAR = 24, 18  # pixels: a lane, and a bar in it
_ROOM = 0.055  # of the time: a bar so long has room for its label
_HIGH = 0.7  # of the lane: so high is a bar that text fits on
_TICKS, _CLOSE = 8, 5  # round times on an axis, and how many more stand between two of them when it is zoomed
_SEEN = 0.97  # of the time: a number further to the right would be cut off


def chart(lanes: Sequence[Lane], total_us: float, label: str) -> Html:
    """The lanes over `total_us`. `label` names the chart for who cannot see it."""
    height, wide = ROW * len(lanes), ticks(_SEEN * total_us)
    rows = [_lane(lane, number, total_us) for number, lane in enumerate(lanes)]
    grid = [el("line", x1=_x(at), x2=_x(at), y1=0, y2=height, class_="grid") for at in wide]
    view = f"0 0 {total_us:.6f} {height}"
    picture = el(
        "svg",
        *grid,
        *rows,
        viewBox=view,
        preserveAspectRatio="none",
        height=height,
        role="group",
        aria_label=label,
    )
    texts = [_labels(lane, number, total_us) for number, lane in enumerate(lanes)]
    axis = [
        el("span", f"{at:g}", style=f"left:{100 * at / total_us:.3f}%", class_=None if at in wide else "near")
        for at in ticks(_SEEN * total_us, _CLOSE)
    ]
    names = [el("div", el("span", lane.name), class_=f"name {_class(lane)}", title=_about(lane)) for lane in lanes]
    return el(
        "div",
        el("div", el("div", "us", class_="name axis-name"), *names, class_="names"),
        el(
            "div",
            el("div", el("div", *axis, class_="axis", aria_hidden="true"), picture, *texts, class_="plot"),
            class_="pane",
            tabindex=0,
            role="group",
            aria_label=f"{label}; plus and minus zoom, 0 shows all",
        ),
        class_="chart",
    )


def ticks(total_us: float, parts: int = 1) -> list[float]:
    """Round times, about `_TICKS` of them, or between two of them `parts` as many."""
    if total_us <= 0:
        return [0.0]
    unit = 10 ** floor(log10(total_us / _TICKS))
    step = next(unit * times for times in (1, 2, 5, 10) if unit * times * _TICKS >= total_us * 0.8)
    step /= parts
    return [round(step * number, 9) for number in range(int(total_us / step * 1.0001) + 1)]


def _lane(lane: Lane, number: int, total_us: float) -> Html:
    top = number * ROW + (ROW - BAR) / 2
    bars = [_bar(bar, top) for bar in lane.bars]
    return el("g", *bars, class_="lane", tabindex=0, role="img", aria_label=_about(lane))


def _bar(bar: Bar, top: float) -> Html:
    high = max(1.0, BAR * bar.share)
    return el(
        "rect",
        el("title", bar.title),
        x=_x(bar.begin),
        y=f"{top + BAR - high:g}",
        width=_x(max(bar.end - bar.begin, 0.0)),
        height=f"{high:.3g}",
        class_=bar.kind,
    )


def _labels(lane: Lane, number: int, total_us: float) -> Html:
    """What is written on long bars."""
    found = [
        el(
            "span",
            bar.label,
            class_=f"on {bar.kind}",
            style=f"left:{100 * bar.begin / total_us:.3f}%;width:{100 * (bar.end - bar.begin) / total_us:.3f}%;"
            f"top:{number * ROW + ROW}px",
        )
        for bar in lane.bars
        if bar.label and bar.end - bar.begin >= _ROOM * total_us and bar.share > _HIGH and lane.engine != "program"
    ]
    return joined(found)


def _about(lane: Lane) -> str:
    begin, end = min(bar.begin for bar in lane.bars), max(bar.end for bar in lane.bars)
    note = f"; {lane.note}" if lane.note else ""
    return f"{lane.name}: {len(lane.bars)} bars from {exact(begin)} to {exact(end)}{note}"


def _class(lane: Lane) -> str:
    return lane.engine.replace(" ", "-").lower()


def _x(us: float) -> str:
    return f"{us:.3f}".rstrip("0").rstrip(".") or "0"
