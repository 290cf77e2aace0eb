"""The data of a page as JSON, for programs that read it: times in us, bytes, names as in the schedule."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

from tilelink.elaborate.review import buffer_bytes, landing_bytes
from tilelink.explanation import explanation_data
from tilelink.report.exposed import exposed_of
from tilelink.report.facts import Facts
from tilelink.report.idle import shares_of
from tilelink.report.measured import Measured
from tilelink.report.signals import words_of

SCHEMA = 2  # a change of meaning raises it; keys may come without
_DIGITS = 6  # of a microsecond
_MOST_TILES = 4096  # tiles of a loop whose times are in the data


def data_of(facts: Facts) -> dict[str, object]:
    """`schedule` is what `tilelink plan --json` prints, `why` what `tilelink explain --json` does."""
    schedule, steps, course = facts.schedule, facts.steps, facts.course
    tiles = {
        name: {
            "programs": one.times.programs,
            "tile_us": one.times.tile_us,
            "begins_us": _rounded(one.begins_us.tolist()),
            "ends_us": _rounded(one.times.ends_us.tolist()),
            "segments": one.times.segments.tolist(),
            "programs_us": asdict(shares_of(one)),
            "there_us": {exchange: _rounded(times.tolist()) for exchange, times in one.there.items()},
        }
        if len(one.times.ends_us) <= _MOST_TILES
        else {"programs": one.times.programs, "tile_us": one.times.tile_us, "tiles": len(one.times.ends_us)}
        for name, one in course.tiles.items()
    }
    others = facts.explanation.others if facts.others_of else ()
    exposed = exposed_of(facts.account, others, course, facts.topology)
    return {
        "schema": SCHEMA,
        "hash": schedule.hash,
        "schedule": json.loads(schedule.to_json()),
        "why": explanation_data(facts.explanation),
        "predicted_us": facts.account.total_us,
        "stretches": [{"what": s.what, "begin_us": s.begin, "end_us": s.end} for s in facts.account.stretches],
        "not_overlapped": [
            {"what": one.term.what, "us": one.term.us, "where": one.where, "why": one.why, "pins": dict(one.pins)}
            for one in exposed
        ],
        "timeline": {
            "drawn_us": course.drawn_us,
            "moves": {name: [_rounded(span) for span in found] for name, found in course.moves.items()},
            "passes": {name: [_rounded(span) for span in found] for name, found in course.passes.items()},
            "tiles": tiles,
        },
        "signals": [
            {
                "name": signal.name,
                "words": words_of(steps, signal),
                "uses": [
                    {"role": use.role, "raises": use.raises, "step": use.text, "times": use.count}
                    for use in facts.uses
                    if use.signal == signal.name
                ],
            }
            for signal in steps.signals
        ],
        "memory": {
            "symmetric_bytes": landing_bytes(steps),
            "buffers": [
                {"name": one.name, "memory": one.memory.value, "bytes": buffer_bytes(steps, one)}
                for one in steps.buffers
            ],
        },
        "limits": {key: value for key, value in asdict(facts.limits).items() if key not in ("sent", "levels")}
        | {"sent": dict(facts.limits.sent), "levels": {one.level: one.us for one in facts.limits.levels}},
        "proof": {
            "proved": facts.proof.proved,
            "checked": dict(facts.proof.checked),
            "order": str(facts.proof.order) if facts.proof.order is not None else "",
            "findings": [str(finding) for finding in facts.proof.findings],
        },
        "measured": _measured(facts.measured) if facts.measured is not None else None,
    }


def _measured(measured: Measured) -> dict[str, object]:
    """What the page shows of it: single spans of some programs, sums over all. Single spans are columns; `lane` and `where` are
    places in `lanes` and `places`: there may be thousands."""
    found = asdict(replace(measured, spans=()))
    shown = [span for rank in measured.ranks for span in measured.shown(rank)]
    if measured.summed:
        return found | {"spans": [asdict(span) for span in shown], "sums": []}
    lanes, places = (list(dict.fromkeys(getattr(one, name) for one in shown)) for name in ("lane", "where"))
    columns = {
        "lanes": lanes,
        "places": places,
        "rank": [span.rank for span in shown],
        "lane": [lanes.index(span.lane) for span in shown],
        "doing": [span.doing for span in shown],
        "where": [places.index(span.where) for span in shown],
        "start_us": _rounded([span.start_us for span in shown]),
        "end_us": _rounded([span.end_us for span in shown]),
    }
    sums = [asdict(span) for rank in measured.ranks for span in measured.sums(rank)]
    return found | {"spans": columns, "sums": sums}


def island(facts: Facts) -> str:
    """The data as text that may stand in a script element."""
    text = json.dumps(data_of(facts), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _rounded(found: object) -> list[float]:
    assert isinstance(found, list | tuple), "times"
    return [round(float(one), _DIGITS) for one in found]
