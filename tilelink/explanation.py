"""`Explanation` as text for a person, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tilelink.planner.choices import Pins, texts
from tilelink.planner.explain import Explanation
from tilelink.planner.families import Rejected
from tilelink.planner.flips import NETWORK_RATES, Flip, Walked
from tilelink.planner.terms import Term

_SHOWN = 0.05  # us: JSON has shorter terms, too


def explanation_text(explanation: Explanation) -> str:
    return "\n".join(_lines(explanation))


def explanation_json(explanation: Explanation) -> str:
    """`explanation_data` as text."""
    return json.dumps(explanation_data(explanation), indent=1)


def explanation_data(explanation: Explanation) -> dict[str, object]:
    """An object of JSON: `predicted_us`, `family` and `choices` as pins, `critical` and `hidden` terms, `rejected` families with
    the number that is left out (`more`), `flips`, and axes without one (`unflipped`). Times are in us."""
    schedule, account = explanation.schedule, explanation.account
    unflipped = [one for one in explanation.walked if one.flip is None]
    return {
        "function": schedule.name,
        "topology": schedule.machine.topology,
        "ranks": schedule.machine.num_ranks,
        "predicted_us": account.total_us,
        "family": texts(explanation.family),
        "choices": dict(schedule.choices),
        "critical": [_term(term) for term in account.critical],
        "hidden": [{**_term(term), "hidden_by": term.hidden_by} for term in account.hidden],
        "rejected": [_rejected(one) for one in explanation.others],
        "more": explanation.more,
        "flips": [_flip(one.flip) for one in explanation.walked if one.flip is not None],
        **({"levels": {one.level: one.us for one in explanation.levels}} if explanation.levels else {}),
        "unflipped": [{"axis": w.axis, "larger": w.larger, "last": w.last, "why": w.why} for w in unflipped],
    }


def _term(term: Term) -> dict[str, object]:
    return {"what": term.what, "us": term.us, "part": term.part.value}


def _rejected(one: Rejected) -> dict[str, object]:
    term = None if one.term is None else _term(one.term)
    return {
        "family": texts(one.fields),
        "differs": texts(one.differs),
        "us": one.us,
        "lost_by": one.lost_by.value,
        "lost_us": one.lost_us,
        "term": term,
    }


def _flip(flip: Flip) -> dict[str, object]:
    return {
        "axis": flip.axis,
        "value": flip.value,
        "before": flip.before,
        "family": texts(flip.fields),
        "differs": texts(flip.differs),
        "us": flip.us,
    }


def _lines(explanation: Explanation) -> Iterator[str]:
    account, schedule = explanation.account, explanation.schedule
    machine = f"{schedule.machine.topology} x{schedule.machine.num_ranks}"
    yield f"{schedule.name} on {machine}: {account.total_us:.1f} us predicted, with {_pins(explanation.family)}"
    yield "\ncritical path:"
    for term in (term for term in account.critical if abs(term.us) >= _SHOWN):
        yield f"{term.us:10.1f} us {100 * term.us / account.total_us:5.1f} %  {term.what}"
    if account.hidden:
        yield "\nhidden:"
        for term in account.hidden:
            yield f"{term.us:10.1f} us  {term.what}, by {term.hidden_by}"
    if explanation.levels:
        yield "\nlevels of the fabric, and how long bytes of a rank pass them:"
        slowest = max(explanation.levels, key=lambda one: one.us)
        for level in explanation.levels:
            yield f"{level.us:10.1f} us  {level.level}{', which binds' if level is slowest else ''}"
    if explanation.others:
        yield "\nfamilies that lost, each by the best schedule that the search has seen of it:"
        for one in explanation.others:
            yield f"{one.us:10.1f} us  {_pins(one.differs)}"
            lost = f", {one.term.what} {one.term.us:.1f}" if one.term is not None else ""
            yield f"{'':15}it loses {one.lost_us:.1f} us in {one.lost_by.value}{lost}"
        if explanation.more:
            yield f"{'':15}and {explanation.more} slower ones"
    yield from flip_lines(explanation.walked)


def flip_lines(walked: tuple[Walked, ...]) -> Iterator[str]:
    """Sizes and rates at which another family wins, and those at which none does."""
    flipped = [one.flip for one in walked if one.flip is not None]
    yield "\nanother family wins:" if flipped else "\nno size or rate that was tried makes another family win:"
    for flip in flipped:
        yield f"    with {_at(flip.axis, flip.value)}, not yet with {_number(flip.axis, flip.before)}{_likely(flip)}:"
        yield f"{'':8}{_pins(flip.differs)}, {flip.us:.1f} us"
    others = [one for one in walked if one.flip is None]
    if flipped and others:
        yield "the same family wins:"
    for one in others:
        if one.why == "not tried":
            yield f"    with {'larger' if one.larger else 'smaller'} {one.axis}: not tried"
        else:
            yield f"    with {'larger' if one.larger else 'smaller'} {one.axis}, to {_number(one.axis, one.last)}; {one.why}"


def _likely(flip: Flip) -> str:
    """Of what a network passes, less is known than of anything else."""
    rate = NETWORK_RATES.get(flip.axis)
    if rate is None:
        return ""
    least, most = rate.likely
    return f", and x {least:.2f} to {most:.2f} is likely" if least <= flip.value <= most else ", which is not likely"


def _at(axis: str, value: float) -> str:
    return f"{axis}={value:.0f}" if axis.isidentifier() else f"{axis} {_number(axis, value)}"


def _number(axis: str, value: float) -> str:
    """Sizes are names, rates are words."""
    return f"{value:.0f}" if axis.isidentifier() else f"x {value:.2f}"


def _pins(pins: Pins) -> str:
    return ", ".join(f"{name}={value}" for name, value in texts(pins).items()) or "the same fields"
