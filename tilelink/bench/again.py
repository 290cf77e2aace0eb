"""Times that the model of this commit predicts for schedules of a record."""

from __future__ import annotations

from collections.abc import Mapping

import topologies
from tilelink.bench.record import Record, RowResult
from tilelink.bench.regret import as_recorded
from tilelink.bench.routings import Routing
from tilelink.bench.rows import Experts, Operator, Row
from tilelink.bench.spec_rows import bound_of
from tilelink.errors import NoLegalSchedule
from tilelink.ir.spec import BoundSpec
from tilelink.planner.aliases import without_aliases
from tilelink.planner.build import build
from tilelink.planner.pins import checked_pins, pin_names
from tilelink.planner.plan import search
from topologies.errors import UserError
from topologies.topology import Topology

_LATER = "at once"  # a value that was every schedule's before it was a choice


def predicted_now(record: Record, row: RowResult) -> dict[str, float]:
    """us of each schedule that this commit still has, by the name of its contender, for the machine that measured. Of a user's
    spec, which no record holds, what was predicted then."""
    if row.operator not in {one.value for one in Operator}:
        return as_recorded(record, row)
    machine = topologies.load(record.machine.topology, record.machine.num_ranks)
    spec = bound_of(row_of(row), machine.num_ranks)
    found: dict[str, float] = {}
    for one in row.contenders:
        if one.schedule is None or one.median_us is None:
            continue
        try:
            us, shifts = _predicted(spec, machine, one.schedule.choices)
        except UserError:  # no schedule of this commit
            continue
        if shifts == one.schedule.inwards:  # else these choices are another schedule by now
            found[one.name] = us
    return found


def row_of(row: RowResult) -> Row:
    """What was measured, from its results."""
    held = row.experts
    experts = Experts(held.experts, held.choices, Routing(held.routing)) if held is not None else None
    return Row(Operator(row.operator), row.name, row.m, row.hidden, row.ffn, row.dtype, experts)


def pins_of_record(spec: BoundSpec, machine: Topology, choices: Mapping[str, str]) -> dict[str, str]:
    """Pins that lead to a recorded schedule: older records hold fields of tile loops for matmuls of the library, which have
    none, and words that stood for several fields."""
    known, plain = pin_names(spec, machine), without_aliases(spec, machine, choices)
    return {
        name: value
        for name, value in plain.items()
        if name in known and (value != "library" or name.endswith(".compute"))
    }


def _predicted(spec: BoundSpec, machine: Topology, choices: Mapping[str, str]) -> tuple[float, bool]:
    """us, and whether last tiles of rows are shifted inwards."""
    pins = pins_of_record(spec, machine, choices)
    try:
        best, _ = search(spec, machine, checked_pins(spec, machine, pins))
    except NoLegalSchedule:
        fewer = {name: value for name, value in pins.items() if value != _LATER}
        best, _ = search(spec, machine, checked_pins(spec, machine, fewer))
    return best.us, build(best.problem).shifts_rows
