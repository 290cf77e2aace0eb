"""The sections that are code: the user's spec, the tile graph, the schedule with its links, and the emitted file."""

from __future__ import annotations

from html import escape
from pathlib import Path

from tilelink.elaborate.review import landing_bytes, sized
from tilelink.report.facts import Facts
from tilelink.report.html import Html, el, folded, joined, link, section
from tilelink.schedule.printing import LEGEND, lines_of

_LINKS = 3  # of a line of the schedule


def spec_section(facts: Facts) -> Html:
    """The user's lines, each with the values that it makes."""
    spec = facts.schedule.spec
    made: dict[int, list[str]] = {}
    for node in spec.nodes:
        file, _, line = node.line.rpartition(":")
        if line.isdigit() and file == Path(facts.declared.file).name:
            shape = ", ".join(map(str, node.output.shape))
            made.setdefault(int(line), []).append(f"{node.output.name} [{shape}] {node.output.placement}")
    rows = []
    for number, text in enumerate(spec.source, facts.declared.line):
        beside = "; ".join(made.get(number, ()))
        rows.append(_line(f"spec-{number}", number, text, [el("span", beside, class_="beside-line")] if beside else []))
    sizes = ", ".join(f"{name} = {size}" for name, size in spec.sizes)
    return section(
        "spec", "Spec", el("p", f"{sizes}; {facts.schedule.num_ranks} ranks."), _listing(rows, "The user's spec")
    )


def graph_section(facts: Facts) -> Html:
    note = "Boxes are tile operations with their axes, ellipses move parts of ranks. The graph is that of the chosen collectives."
    picture = Html(
        facts.graph._repr_html_().replace("<svg ", '<svg class="graph" role="img" aria-label="Tile graph" ', 1)
    )
    return section("graph", "Tile graph", el("p", note), el("div", picture, class_="wide", tabindex=0))


def schedule_section(facts: Facts) -> Html:
    """The schedule as code: behind a line the numbers of the lines that spell it in the emitted file."""
    rows, linked, count = [], 0, 0
    for number, (line, named) in enumerate(zip(lines_of(facts.steps), lines_of(facts.printed), strict=True), 1):
        found = facts.source.lines_of(named)
        count, linked = count + 1, linked + bool(found)
        every = ", ".join(map(str, found))
        links = [link(f"L{one}", str(one), f"emitted file, line {every}") for one in found[:_LINKS]]
        more = ["…"] if len(found) > _LINKS else []
        beside = [el("span", *_apart([*links, *more]), class_="to-source")] if links else []
        rows.append(_line(f"step-{number}", number, line.text.removeprefix("  "), beside))
    lands = landing_bytes(facts.steps)
    signs = [el("div", el("dt", sign), el("dd", meaning)) for sign, meaning in LEGEND]
    return section(
        "schedule",
        "Schedule",
        el(
            "p",
            "What every rank does, in order. Numbers at the right are lines of the ",
            link("source", "emitted file"),
            f" that spell the step; they follow names that both have. {linked} of {count} lines have one; the others are "
            "spelled by helpers, or by no line alone.",
        ),
        _listing(rows, "The schedule as code"),
        el("p", f"{sized(lands)} of symmetric memory a rank.") if lands else "",
        folded("Signs", el("dl", *signs, class_="signs")),
    )


def source_section(facts: Facts) -> Html:
    """All lines of the emitted file, which is `tilelink emit` of this schedule."""
    rows = [
        Html(f'<span id="L{number}"><a href="#L{number}">{number:>5}</a> {escape(text)}\n</span>')
        for number, text in enumerate(facts.source.lines, 1)
    ]
    text = el("pre", joined(rows), class_="source", tabindex=0, aria_label="The emitted file")
    return section(
        "source", "Emitted file", folded(f"{len(rows):,} lines, which {facts.schedule.hash} is emitted as", text)
    )


def _listing(rows: list[Html], label: str) -> Html:
    return el("div", *rows, class_="listing", tabindex=0, role="group", aria_label=label)


def _line(name: str, number: int, text: str, beside: list[Html]) -> Html:
    return el("div", el("span", str(number), class_="at"), el("code", text or " "), *beside, id=name, class_="row")


def _apart(pieces: list[str]) -> list[str]:
    return [one for number, piece in enumerate(pieces) for one in ([", "] if number else []) + [piece]]
