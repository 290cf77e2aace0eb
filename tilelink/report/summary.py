"""The first sections of a page: what the time of a call goes to, and what of it is not overlapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilelink.planner.terms import Part, Term
from tilelink.profiling.parts import parts_of
from tilelink.report.exposed import WHERE, Exposed, exposed_of, is_work, work_us
from tilelink.report.facts import Facts
from tilelink.report.html import Html, el, exact, option, percent, section, table, timed, us
from tilelink.report.idle import shares_of
from tilelink.report.measured import Measured

_SHOWN = 0.05  # us: the data have shorter terms, too
CLASS = {
    Part.LOOP: "work2",
    Part.TILES: "tiles",
    Part.SENDS: "move",
    Part.WAIT: "wait",
    Part.COLLECTIVE: "move2",
    Part.LAUNCH: "launch",
    Part.CALL: "call",
    Part.BESIDE: "beside",
    Part.CLOCKS: "clocks",
}


def headline(facts: Facts) -> Html:
    """Two or three sentences that somebody would quote."""
    account, limits = facts.account, facts.limits
    work, least = work_us(account), limits.least_us
    over = account.total_us - work
    lines = [
        el(
            "p",
            el("strong", us(account.total_us)),
            " predicted for one call, by the cost model. ",
            *_work(facts, work, over),
        ),
    ]
    if least > 0:
        lines.append(
            el(
                "p",
                "Exposed communication, predicted, which is all that exceeds both limits: ",
                el("strong", us(account.total_us - least)),
                f" = {us(account.total_us)} − max({us(limits.alone_us)} for {limits.alone_by}, ",
                f"{us(limits.links_us)} on the link).",
                " Its tiles are faster than the library's." if account.total_us < least else "",
                id="exposed-predicted",
            )
        )
    if facts.measured is not None:
        lines += measured_lines(facts)
    return el("div", *lines, class_="headline")


def _work(facts: Facts, work: float, over: float) -> Iterator[str]:
    terms = [term for term in facts.account.critical if not is_work(term) and term.us >= _SHOWN]
    longest = sorted(terms, key=lambda term: -term.us)[:3]
    if work > 0:
        yield f"{us(work)} of it are {facts.limits.work} on the critical path; "
        yield el("strong", f"{us(over)} go beyond that")
    else:
        yield "Nothing is multiplied; "
        yield el("strong", f"all of it, {us(over)}, moves and waits")
    if longest:
        named = [f"{term.what} ({us(term.us)})" for term in longest]
        yield f". The longest {'is' if len(named) == 1 else 'are'}: {', '.join(named)}."
    else:
        yield "."
    slower = work - facts.limits.alone_us
    if work > 0 and facts.limits.by_library and abs(slower) >= _SHOWN:
        more = "more" if slower > 0 else "less"
        yield (
            f" The program that ends last multiplies for {us(abs(slower))} {more} than {facts.limits.alone_by} would take, "
            f"{us(facts.limits.alone_us)}."
        )


def measured_lines(facts: Facts) -> list[Html]:
    """What a measured call exposes."""
    measured, limits = facts.measured, facts.limits
    assert measured is not None, "there is a measurement"
    alone = _alone(facts, measured)
    by = "measured" if measured.alone_us is not None else "predicted, as the file has none"
    exposed = measured.call_us - max(alone, limits.links_us)
    off = 100 * (facts.account.total_us / measured.call_us - 1)
    return [
        el(
            "p",
            el("strong", us(measured.call_us)),
            f" measured, {measured.machine}, calls back to back without stamps; the prediction is off by {percent(off, 100)}.",
        ),
        el(
            "p",
            "Exposed communication = measured − max(compute alone, link time): ",
            el("strong", us(exposed)),
            f" = {us(measured.call_us)} − max({us(alone)} compute alone ({by}), {us(limits.links_us)} on the link)."
            + (" The call is faster than that: none is exposed." if exposed < 0 else ""),
            id="exposed-measured",
        ),
    ]


def _alone(facts: Facts, measured: Measured) -> float:
    """Computing alone, in us, measured if it was."""
    return measured.alone_us if measured.alone_us is not None else facts.limits.alone_us


def _measured_parts(facts: Facts) -> Iterator[Html]:
    """What a call takes beyond computing alone, in parts; nothing where the file has sums only."""
    measured = facts.measured
    if measured is None or measured.summed:
        return
    alone = _alone(facts, measured)
    found = parts_of(measured.spans, measured.call_us, alone)
    if found is None:
        return
    rows = [
        [el("code", what) if ":" in what else what, timed(spent)] for what, spent in found.parts if abs(spent) >= _SHOWN
    ]
    rows.append([el("strong", "in all"), timed(measured.call_us - alone)])
    title = f"Measured: what a call takes beyond computing alone, on average over programs of rank {found.rank}, which ends last"
    yield table(title, ("part", "time"), rows, (1,))


def where_the_time_goes(facts: Facts) -> Html:
    account, limits = facts.account, facts.limits
    terms = [term for term in account.critical if abs(term.us) >= _SHOWN]
    scale = max(account.total_us + sum(-term.us for term in terms if term.us < 0), limits.least_us)
    bars = [("this schedule", [(_class(term), term.us, term.what) for term in terms if term.us > 0], account.total_us)]
    if limits.alone_us:
        bars.append(("computing alone", [("work", limits.alone_us, limits.alone_by)], limits.alone_us))
    if limits.links_us:
        over = f"{limits.bytes_in:,.0f} bytes over the link"
        bars.append(("link alone", [("move", limits.links_us, over)], limits.links_us))
    exposed = [term.us for term in terms if not is_work(term)]
    most = max(map(abs, exposed), default=1.0)
    rows = [
        [
            term.what,
            timed(term.us),
            percent(term.us, account.total_us),
            ""
            if is_work(term)
            else strip([(_class(term), abs(term.us), term.what)], most, f"{term.what}, {exact(term.us)}"),
        ]
        for term in terms
    ]
    rows.append([el("strong", "predicted"), timed(account.total_us), "100.0 %", ""])
    heads = ("term of the critical path", "time", "share", f"beyond {limits.work}")
    hidden = [[term.what, timed(term.us), term.hidden_by] for term in account.hidden]
    parts = [
        el("div", *(_bar(name, pieces, whole, scale) for name, pieces, whole in bars), class_="bars"),
        _key(terms, facts.limits.work),
        table("Terms of the critical path, which add up to the predicted time", heads, rows, (1, 2)),
        *_measured_parts(facts),
    ]
    if hidden:
        parts.append(table("Hidden: what movers do meanwhile", ("what", "time", "hidden by"), hidden, (1,)))
    return section("time", "Where the time goes", headline(facts), *parts)


def _class(term: Term) -> str:
    return "work" if is_work(term) else CLASS[term.part]


def _bar(name: str, pieces: Sequence[tuple[str, float, str]], whole: float, scale: float) -> Html:
    """`whole`: what the pieces come to, with what shortens them."""
    drawn = sum(length for _, length, _ in pieces)
    less = f", of which {exact(drawn - whole)} are saved again" if drawn - whole >= _SHOWN else ""
    return el(
        "div",
        el("span", name, class_="bar-name"),
        strip(pieces, scale, f"{name}: {exact(whole)}"),
        el("span", us(whole), title=f"{exact(drawn)}{less}", class_="bar-end"),
        class_="bar",
    )


def _key(terms: Sequence[Term], work: str) -> Html:
    """What the colours mean."""
    names = dict.fromkeys((_class(term), work if is_work(term) else term.part.value) for term in terms)
    keys = [el("span", el("span", "", class_=f"key {class_}", aria_hidden="true"), name) for class_, name in names]
    return el("div", el("span", *keys, class_="legend"), class_="tools")


def strip(pieces: Iterable[tuple[str, float, str]], scale: float, label: str) -> Html:
    """Pieces behind each other, `scale` us wide: (class, us, what)."""
    at, rects = 0.0, list[Html]()
    for class_, length, what in pieces:
        title = el("title", f"{what}: {exact(length)}")
        rects.append(el("rect", title, x=f"{at:.4f}", y=0, width=f"{length:.4f}", height=1, class_=class_))
        at += length
    return el(
        "svg",
        *rects,
        viewBox=f"0 0 {scale:.4f} 1",
        preserveAspectRatio="none",
        class_="strip",
        role="img",
        aria_label=label,
    )


def not_overlapped(facts: Facts) -> Html:
    """Each exposed term in a sentence, in the order of its place in the call."""
    others = facts.explanation.others if facts.others_of else ()
    found = exposed_of(facts.account, others, facts.course, facts.topology)
    total = sum(one.term.us for one in found)
    parts = [
        el(
            "p",
            f"{us(total)} of the predicted {us(facts.account.total_us)} go beyond {facts.limits.work}. ",
            "A pin below is that of the fastest other family that spends less there. The model puts it behind in all: "
            "it is worth a measurement, no promise.",
        )
    ]
    for place, title in WHERE.items():
        here = [one for one in found if one.where == place]
        if here:
            sums = sum(one.term.us for one in here)
            parts.append(el("h3", f"{title[0].upper()}{title[1:]}: {us(sums)}"))
            parts.append(el("ul", *(_item(one, facts.account.total_us) for one in here), class_="exposed"))
    if facts.course.tiles:
        parts += _programs(facts)
    return section("exposed", "What is not overlapped, and why", *parts)


def _programs(facts: Facts) -> Iterator[Html]:
    """All programs of the tile loops, where the list above has the one that ends last."""
    yield el("h3", "All programs, on average")
    rows: list[list[str]] = []
    covered = 0.0
    for name, tiles in facts.course.tiles.items():
        found, programs = shares_of(tiles), f"{name.removesuffix('_kernel')}, {tiles.times.programs} programs"
        covered += found.whole_us - found.late_us
        parts = [
            ("tiles of the loop before", found.late_us),
            ("computing tiles", found.tiles_us),
            *((f"waiting for {exchange}", us) for exchange, us in found.waits),
            ("behind the epilogue of the tile before", found.held_us),
            ("no further product: epilogue, then idle", found.rest_us),
        ]
        whole = facts.course.drawn_us
        rows += [[programs, what, timed(spent), percent(spent, whole)] for what, spent in parts if spent >= _SHOWN]
    outside = facts.course.drawn_us - covered
    if outside >= _SHOWN:
        outside_of = "no tile loop: launches, collectives, begin and end of the call"
        rows.append(["all", outside_of, timed(outside), percent(outside, facts.course.drawn_us)])
    yield table("Time of a program, the mean of all", ("tile loop", "what", "time", "of the call"), rows, (2, 3))


def _item(one: Exposed, total_us: float) -> Html:
    share = f" ({percent(one.term.us, total_us)})"
    parts: list[str] = [el("strong", timed(one.term.us), share), f": {one.term.what}. ", one.why]
    if one.pins:
        pins = [option(name, value) for name, value in one.pins]
        alone = abs(one.instead_of_us - one.term.us) < _SHOWN
        where = "" if alone else f" in all of {one.term.part.value}"
        more = one.pinned_us - total_us
        than = f"{us(abs(more))} {'more' if more > 0 else 'less'} than as planned"
        spent = (
            f": {us(one.spent_us)} instead of {us(one.instead_of_us)}{where}, and {us(one.pinned_us)} a call, {than}."
        )
        parts += [" With ", *_between(pins, " "), spent]
    return el("li", *parts)


def _between(pieces: Sequence[str], text: str) -> Iterator[str]:
    for number, piece in enumerate(pieces):
        if number:
            yield text
        yield piece
