"""The schedules that run in a row: what the planner picks unpinned, its next structures, and what the user pins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from tilelink.bench.errors import MalformedVariant
from tilelink.bench.routings import Routing
from tilelink.bench.rows import Experts, Operator, Row
from tilelink.bench.spec_rows import AnyRow, SpecRow, bound_of
from tilelink.declaration import plan_bound
from tilelink.ir.schedule import Schedule, spec_from_data
from tilelink.ir.serialize import encode
from tilelink.planner.alternatives import alternatives, library_schedule
from tilelink.planner.choices import REUSED, texts
from tilelink.planner.collectives import legal_collectives
from tilelink.processes import fresh_processes
from topologies.errors import UserError
from topologies.topology import Topology

_ROWS_WORTH_PROCESSES = 3  # starting one costs as much as planning a row or two
_MOST_PROCESSES = 16


class Origin(Enum):
    PLANNED = "planned"  # no pins: what a user gets
    REUSED = "reused"  # no pins but the promise that outputs are read before the next call
    TUNED = "tuned"  # the best alternatives by predicted time; measuring says which is best
    PINNED = "pinned"  # fields that the user fixed
    LIBRARY = "library"  # each collective and each matmul of a user's spec is one call: the baseline of its rows
    FILE = "file"  # an emitted file, which the user may have edited


@dataclass(frozen=True, slots=True)
class Variant:
    """A labelled set of pins."""

    label: str
    pins: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule that takes part in a row, or the `source` of an emitted file, or why there is neither."""

    label: str
    origin: Origin
    schedule: Schedule | None
    failure: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class PlannedRow:
    row: AnyRow
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What is planned for each row. `tuned` counts alternatives to the planned schedule."""

    topology: Topology
    variants: tuple[Variant, ...] = ()
    tuned: int = 0


def parse_variant(text: str) -> Variant:
    """`pull:mover=CommSms(16);transfer=pull`. Raises MalformedVariant."""
    label, colon, rest = text.partition(":")
    if not colon or not label.strip():
        raise MalformedVariant(text=text, reason="it has no label")
    pins: dict[str, str] = {}
    for pin in rest.split(";"):
        name, equals, value = (part.strip() for part in pin.partition("="))
        if not name or not equals or not value:
            raise MalformedVariant(text=text, reason=f"{pin.strip()!r} does not say which choice has which value")
        if name in pins:
            raise MalformedVariant(text=text, reason=f"{name} is given twice")
        pins[name] = value
    return Variant(label.strip(), tuple(pins.items()))


def plan_row(row: AnyRow, request: Request) -> PlannedRow:
    """All candidates of a row. What has no legal schedule becomes a candidate with the reason; nothing is raised."""
    found = [_candidate(row, request.topology, "planned", Origin.PLANNED, ())]
    held = {candidate.schedule.hash for candidate in found if candidate.schedule is not None}
    if _placeable(row, request.topology):
        reused = _candidate(row, request.topology, "reused", Origin.REUSED, tuple(texts(REUSED).items()))
        if reused.schedule is None or reused.schedule.hash not in held:
            found.append(reused)
    if request.tuned and found[0].schedule is not None:
        found += _tuned(request, found[0].schedule)
    for variant in request.variants:
        found.append(_candidate(row, request.topology, variant.label, Origin.PINNED, variant.pins))
    if isinstance(row, SpecRow):
        library = library_schedule(row.spec, request.topology)
        reason = "" if library is not None else "not every operation of the spec is a call of a library"
        found.append(Candidate(Origin.LIBRARY.value, Origin.LIBRARY, library, reason))
    return PlannedRow(row, tuple(found))


def plan_rows(rows: Sequence[AnyRow], request: Request, processes: int | None = None) -> list[PlannedRow]:
    """`plan_row` of each row, in order, once for all routings; in `processes` processes, by default as many as help."""
    apart = list(dict.fromkeys(row.planned_as for row in rows))
    wanted = processes if processes is not None else min(len(apart), os.cpu_count() or 1, _MOST_PROCESSES)
    if wanted < 2 or len(apart) < _ROWS_WORTH_PROCESSES:
        found = [plan_row(row, request) for row in apart]
    else:
        with fresh_processes(wanted) as pool:
            found = list(pool.map(plan_row, apart, [request] * len(apart)))
    known = dict(zip(apart, found, strict=True))
    return [replace(known[row.planned_as], row=row) for row in rows]


def _candidate(
    row: AnyRow, topology: Topology, label: str, origin: Origin, pins: tuple[tuple[str, str], ...]
) -> Candidate:
    try:
        schedule = plan_bound(bound_of(row, topology.num_ranks), topology, dict(pins))
    except UserError as error:
        return Candidate(label, origin, None, f"{type(error).__name__}: {error}")
    return Candidate(label, origin, schedule, "")


def _tuned(request: Request, planned: Schedule) -> list[Candidate]:
    try:
        others = alternatives(request.topology, planned, request.tuned)
    except UserError as error:
        return [Candidate("tuned", Origin.TUNED, None, f"{type(error).__name__}: {error}")]
    return [Candidate(f"tuned {at + 1}", Origin.TUNED, other, "") for at, other in enumerate(others)]


def _placeable(row: AnyRow, topology: Topology) -> bool:
    """Whether an output could be put together in place, if the next call may overwrite it."""
    spec = bound_of(row, topology.num_ranks)
    return any(how.lands_there for _, legal in legal_collectives(spec, topology) for how in legal)


def planned_to_json(planned: PlannedRow) -> dict[str, object]:
    row = planned.row
    listed = [_candidate_to_json(one) for one in planned.candidates]
    if isinstance(row, SpecRow):
        return {"spec": encode(row.spec), "dtype": row.dtype, "candidates": listed}
    fields = {"name": row.name, "m": row.m, "hidden": row.hidden, "ffn": row.ffn, "dtype": row.dtype}
    held = row.experts
    experts = {"number": held.number, "choices": held.choices, "routing": held.routing.value} if held else None
    return {"operator": row.operator.value, **fields, "experts": experts, "candidates": listed}


def _candidate_to_json(candidate: Candidate) -> dict[str, str]:
    return {
        "label": candidate.label,
        "origin": candidate.origin.value,
        "schedule": candidate.schedule.to_json() if candidate.schedule is not None else "",
        "failure": candidate.failure,
        "source": candidate.source,
    }


def planned_from_json(data: dict[str, object]) -> PlannedRow:
    listed = data["candidates"]
    assert isinstance(listed, list), "planned_to_json wrote a list"
    return PlannedRow(_row_from_json(data), tuple(map(_candidate_from_json, listed)))


def _candidate_from_json(entry: dict[str, str]) -> Candidate:
    schedule = Schedule.from_json(entry["schedule"]) if entry["schedule"] else None
    texts = entry["failure"], entry.get("source", "")  # older files have none
    return Candidate(entry["label"], Origin(entry["origin"]), schedule, *texts)


def _row_from_json(data: dict[str, object]) -> AnyRow:
    if "spec" in data:
        return SpecRow(spec_from_data(data["spec"]), str(data["dtype"]))
    sizes = {name: int(str(data[name])) for name in ("m", "hidden", "ffn")}
    held = data.get("experts")  # older files have none
    experts = Experts(held["number"], held["choices"], Routing(held["routing"])) if isinstance(held, dict) else None
    return Row(Operator(data["operator"]), str(data["name"]), **sizes, dtype=str(data["dtype"]), experts=experts)
