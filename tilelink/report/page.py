"""A plan as one page of HTML, which needs neither network nor framework."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tilelink.report.data import island
from tilelink.report.facts import Facts
from tilelink.report.heat_map import drawn, heat_map
from tilelink.report.html import Html, code, el, joined, link, section
from tilelink.report.listing import graph_section, schedule_section, source_section, spec_section
from tilelink.report.summary import not_overlapped, where_the_time_goes
from tilelink.report.tables import (
    alternatives_section,
    limits_section,
    memory_section,
    proof_section,
    signals_section,
)
from tilelink.report.timeline import timeline_section
from tilelink.version import own_version

_CELLS = 3000  # of all maps together
SECTIONS = (
    ("time", "Where the time goes"),
    ("exposed", "Not overlapped"),
    ("timeline", "Time line"),
    ("order", "Tile order"),
    ("limits", "Limits"),
    ("alternatives", "Alternatives"),
    ("spec", "Spec"),
    ("graph", "Tile graph"),
    ("schedule", "Schedule"),
    ("signals", "Signals"),
    ("memory", "Memory"),
    ("proof", "Proof"),
    ("source", "Emitted file"),
)


def page(facts: Facts) -> str:
    """The whole file."""
    schedule = facts.schedule
    title = f"{schedule.name} on {schedule.machine.topology} x{schedule.num_ranks}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Html(_file("style.css"))),
    )
    nav = el("nav", el("ul", *(el("li", link(name, text)) for name, text in SECTIONS)), aria_label="Sections")
    main = el("main", *_sections(facts), id="main")
    data = el("script", Html(island(facts)), type="application/json", id="data")
    script = el("script", Html(_file("script.js")))
    body = el(
        "body",
        link("main", "Skip to the report"),
        _header(facts, title),
        el("div", nav, main, class_="page"),
        data,
        script,
    )
    return "<!doctype html>\n" + el("html", head, Html("\n"), body, lang="en") + "\n"


def _header(facts: Facts, title: str) -> Html:
    schedule = facts.schedule
    sizes = " ".join(f"{name}={size}" for name, size in schedule.spec.sizes)
    return el(
        "header",
        el("h1", title),
        el(
            "p",
            f"{sizes}, {schedule.spec.inputs[0].dtype}. Schedule ",
            code(schedule.hash),
            f", {'proved' if facts.proof.proved else 'refuted'}. tilelink {own_version()}.",
        ),
    )


def _sections(facts: Facts) -> Iterator[Html]:
    yield where_the_time_goes(facts)
    yield not_overlapped(facts)
    yield timeline_section(facts)
    yield _order(facts)
    yield limits_section(facts)
    yield alternatives_section(facts)
    yield spec_section(facts)
    yield graph_section(facts)
    yield schedule_section(facts)
    yield signals_section(facts)
    yield memory_section(facts)
    yield proof_section(facts)
    yield source_section(facts)


def _order(facts: Facts) -> Html:
    found = facts.course.tiles
    if not found:
        return section("order", "Tile order", el("p", "No tile loop is ours: the library computes everything."))
    maps = [heat_map(name, tiles, _CELLS // len(found)) for name, tiles in found.items()]
    text = "Each cell is a tile of the output; its colour says when it is done. Hover shows its place in the order and its times."
    return section(
        "order",
        "Tile order",
        el("p", text),
        *(drawn(one, number, facts.schedule.num_ranks) for number, one in enumerate(maps)),
    )


@cache
def _file(name: str) -> str:
    return joined([Html((Path(__file__).parent / name).read_text(encoding="utf-8"))]).strip()
