"""The sections that are tables: signals, memory, limits, what lost, choices, proof."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.elaborate.review import buffer_bytes, landing_bytes, sized
from tilelink.explanation import flip_lines
from tilelink.planner.choices import Pins, texts
from tilelink.planner.families import Rejected
from tilelink.planner.terms import Account, Part
from tilelink.report.exposed import work_us
from tilelink.report.facts import Facts
from tilelink.report.html import Html, code, el, percent, section, table, timed, us
from tilelink.report.signals import Use, words_of
from tilelink.report.summary import CLASS, strip
from tilelink.schedule.index import rank
from tilelink.schedule.memory import Memory
from tilelink.schedule.printing import engine_text
from tilelink.schedule.roles import Schedule
from tilelink.schedule.walk import phases, read, steps_in, written


def signals_section(facts: Facts) -> Html:
    steps = facts.steps
    if not steps.signals:
        return section("signals", "Signals", el("p", "The schedule has none: streams order all that it does."))
    rows = [list(_signal(facts, signal.name, words_of(steps, signal))) for signal in steps.signals]
    heads = ("signal", "words a rank", "raised by", "times a call", "awaited by", "times a call")
    note = (
        "Counts are those of the first or the last rank, the larger one, in a call behind the first, over all its programs. A "
        "raise may go to a word of a peer; words only grow."
    )
    return section(
        "signals", "Signals", el("p", note), table("Who raises a signal and who awaits it", heads, rows, (1, 3, 5))
    )


def _signal(facts: Facts, name: str, words: int) -> Iterator[str]:
    raises = [use for use in facts.uses if use.signal == name and use.raises]
    waits = [use for use in facts.uses if use.signal == name and not use.raises]
    yield code(name)
    yield f"{words:,}"
    for found in (raises, waits):
        yield el("ul", *(_use(use) for use in found), class_="plain") if found else "nobody"
        yield el("ul", *(el("li", _count(use)) for use in found), class_="plain") if found else ""


def _use(use: Use) -> Html:
    return el("li", f"{use.role}: ", code(use.text), title=f"on {engine_text(use.engine)}, stream {use.stream}")


def _count(use: Use) -> str:
    return "as a table says" if use.count is None else f"{use.count:,}"


def memory_section(facts: Facts) -> Html:
    steps = facts.steps
    rows = []
    for buffer in steps.buffers:
        size, shape = buffer_bytes(steps, buffer), ", ".join(map(str, steps.shapes[buffer.name]))
        writers, readers = _touched(steps, buffer.name)
        kind = f"{buffer.memory.value}{', for the caller' if buffer.for_caller else ''}"
        packets = f", {buffer.protocol.value} packets" if buffer.protocol.value != "simple" else ""
        exactly = el("span", sized(size), title=f"{size:,} bytes")
        cells = [code(buffer.name), kind, f"[{shape}] {buffer.dtype}{packets}", exactly]
        given, taken = buffer.memory is Memory.INPUT, buffer.memory is Memory.OUTPUT or buffer.for_caller
        writers, readers = ["the caller"] * given + writers, readers + ["the caller"] * taken
        rows.append([*cells, ", ".join(writers) or "–", ", ".join(readers) or "–"])
    totals = [
        f"{sized(total)} {memory.value}"
        for memory in Memory
        if (total := sum(buffer_bytes(steps, one) for one in steps.buffers if one.memory is memory))
    ]
    lands = landing_bytes(steps)
    words = sum(words_of(steps, signal) for signal in steps.signals)
    text = f"A rank holds {', '.join(totals)}, and {words:,} words of signals. Peers reach {sized(lands)} of it."
    heads = ("buffer", "memory", "shape", "bytes", "written by", "read by")
    return section("memory", "Memory", el("p", text), table("Buffers of a rank", heads, rows, (3,)))


def _touched(steps: Schedule, buffer: str) -> tuple[list[str], list[str]]:
    """Roles that write a buffer, and roles that read it."""
    writers, readers = dict[str, None](), dict[str, None]()
    for _, role, phase in phases(steps):
        for step in steps_in(phase.body):
            for found, regions in ((writers, written(step)), (readers, read(step))):
                found |= {
                    f"{role.name}{'' if region.at == rank else ' of peers' if found is writers else ' at peers'}": None
                    for region in regions
                    if region.buffer == buffer
                }
    return list(writers), list(readers)


def limits_section(facts: Facts) -> Html:
    limits, total = facts.limits, facts.account.total_us
    gpu = facts.topology.gpu
    rows: list[list[str]] = []

    def row(what: str, amount: str, rate: str, time: float) -> None:
        rows.append([what, amount, rate, timed(time), percent(time, total)])

    if limits.flops:
        flops = el("span", f"{limits.flops / 1e9:,.1f} Gflop", title=f"{limits.flops:,.0f} flops")
        row("tensor cores at their peak", flops, f"{limits.flops / limits.peak_us / 1e6:,.0f} TFLOP/s", limits.peak_us)
        row(limits.alone_by, flops, f"{limits.flops / limits.alone_us / 1e6:,.0f} TFLOP/s", limits.alone_us)
        row(f"{limits.work} of this schedule", flops, "", work_us(facts.account))
    if limits.bytes_in:
        rate = f"{limits.gb_per_s:g} GB/s"
        row("bytes that collectives bring in, over the link", f"{limits.bytes_in:,.0f} bytes", rate, limits.links_us)
    for name, sent in limits.sent:
        listed = facts.schedule.exchange(name).sent is not None
        what = f"{name}, sent by a rank{', at most' if listed else ''}"
        row(what, f"{sent:,} bytes", f"{limits.gb_per_s:g} GB/s", sent / limits.gb_per_s / 1e3)
    for level in limits.levels:
        row(f"bytes that pass {level.level}", "", "", level.us)
    rate = f"{gpu.memory_gb_per_s:g} GB/s"
    row("inputs and outputs once through memory", f"{limits.memory_bytes:,} bytes", rate, limits.memory_us)
    row("launches of kernels", f"{limits.launches}", f"{gpu.kernel_launch_us:g} us each", limits.launch_us)
    least = (
        f"Overlap can hide the shorter one of computing alone, {us(limits.alone_us)}, and of bytes over the link, "
        f"{us(limits.links_us)}. The longer one is {percent(limits.least_us, total)} of the predicted time."
    )
    heads = ("limit of one rank", "amount", "rate", "time", "of the call")
    return section(
        "limits", "Limits", el("p", least), table("What a call takes at least, each alone", heads, rows, (1, 2, 3, 4))
    )


def alternatives_section(facts: Facts) -> Html:
    found = facts.explanation
    parts: list[str] = []
    if not facts.others_of:
        text = "The search puts another schedule first than the one of this page; the families stand behind that one."
        parts.append(el("p", text, class_="note"))
    most = max([found.account.total_us, *(one.us for one in found.others)])
    most = min(most, 3 * found.account.total_us)
    rows = [_lost(one, found.account, most) for one in found.others]
    if rows:
        chosen = [el("strong", "chosen"), timed(found.account.total_us), "", "", _strip(found.account, most)]
        heads = ("family, by the pins in which it differs", "predicted", "slower by", "loses most in", "its time")
        caption = "Families that lost, each by the best schedule that the search has seen of it"
        parts.append(table(caption, heads, [chosen, *rows], (1, 2)))
    else:
        parts.append(el("p", "No other family is legal with these pins."))
    if found.more:
        parts.append(el("p", f"And {found.more} slower ones: more with --families."))
    parts.append(_flips(facts))
    rows = [[code(name), value] for name, value in facts.schedule.choices]
    parts.append(table("All choices: pinning them gives this schedule", ("pin", "value"), rows))
    return section("alternatives", "Alternatives", *parts)


def _lost(one: Rejected, best: Account, most: float) -> list[str]:
    term = f": {one.term.what}, {us(one.term.us)}" if one.term is not None else ""
    lost = f"{us(one.lost_us)} in {one.lost_by.value}{term}"
    return [_pins(one.differs), timed(one.us), timed(one.us - best.total_us), lost, _strip(one.account, most)]


def _strip(account: Account, most: float) -> Html:
    """Parts of a time, that of computing first."""
    pieces = [("work" if part is Part.LOOP else CLASS[part], account.us(part), part.value) for part in Part]
    shown = [(class_, length, what) for class_, length, what in pieces if length > 0]
    label = ", ".join(f"{what} {us(length)}" for _, length, what in shown)
    return strip(shown, most, label)


def _pins(pins: Pins) -> str:
    return Html("<br/>".join(code(f"{name}={value}") for name, value in texts(pins).items())) or "the same fields"


def _flips(facts: Facts) -> Html:
    tried = [one for one in facts.explanation.walked if one.flip is not None or one.why != "not tried"]
    if not tried:
        return el("p", "Sizes and rates at which another family wins were not looked for: --seconds N does.")
    lines = [line.strip() for line in flip_lines(facts.explanation.walked) if line.strip()]
    return el("div", el("h3", "What would flip the choice"), el("ul", *(el("li", line) for line in lines)))


def proof_section(facts: Facts) -> Html:
    proof = facts.proof
    if not proof.proved:
        findings = [el("li", el("pre", str(finding))) for finding in proof.findings]
        return section("proof", "Proof", el("p", "Refuted:"), el("ul", *findings))
    counts = [[name, f"{count:,}"] for name, count in proof.checked]
    order = f"As steps {proof.order}." if proof.order is not None else ""
    return section(
        "proof",
        "Proof",
        el(
            "p",
            "Proved for all ranks and every interleaving: each output has the values of the spec, no access comes too early or "
            f"too late, and nothing hangs. {order}",
        ),
        table(f"What was looked at, in {proof.seconds * 1e3:.0f} ms", ("what", "number"), counts, (1,)),
        el(
            "p",
            "The proof is about the schedule. ",
            code("tilelink verify"),
            " checks the compiled file and runs it, too.",
        ),
    )
