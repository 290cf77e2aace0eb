"""A number that was measured, and what becomes of a descriptor with such numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from topologies.topology import Ramp, Topology, numbers


@dataclass(frozen=True, slots=True)
class Finding:
    """One number of a descriptor under its dotted key."""

    key: str
    value: float | Ramp
    how: str  # for its provenance


def with_findings(
    shipped: Topology, findings: Sequence[Finding], when_and_where: str, told: Mapping[str, str], another_gpu: bool
) -> Topology:
    """`shipped` with what was found, and the provenance of all its numbers: "measured 2026-11 2xH200: how".

    `when_and_where` is "2026-11 2xH200". `told` are origins of numbers that are not measured and not `shipped`'s either. All
    others say that they are kept; `another_gpu`: from a descriptor of another GPU.
    """
    topology = shipped
    for finding in findings:
        topology = _replaced(topology, finding.key, finding.value)
    origins = {key: kept(origin, shipped.name, another_gpu) for key, origin in shipped.provenance} | dict(told)
    origins |= {finding.key: f"measured {when_and_where}: {finding.how}" for finding in findings}
    return replace(topology, provenance=tuple((key, origins[key]) for key, _ in numbers(topology)))


def kept(origin: str, name: str, another_gpu: bool) -> str:
    """Provenance of a number that descriptor `name` has and that nothing has replaced."""
    if origin.startswith("estimate"):
        _, _, why = origin.partition(": ")
        return f"estimate: kept from {name}{', ' if why else ''}{why}"
    if another_gpu:
        return f"estimate: kept from {name}, another GPU ({origin})"
    return origin if origin == "datasheet" else f"{origin}; kept from {name}"


def _replaced(topology: Topology, key: str, value: float | Ramp) -> Topology:
    where, _, field = key.rpartition(".")
    new: Mapping[str, Any] = {field: value}
    if where == "gpu":
        return replace(topology, gpu=replace(topology.gpu, **new))
    if where:
        levels = (replace(one, **new) if f"levels.{one.name}" == where else one for one in topology.levels)
        return replace(topology, levels=tuple(levels))
    return replace(topology, **new)


def table(shipped: Topology, findings: Sequence[Finding]) -> str:
    """A line for each number that was measured, and for each point of a ramp: what the shipped descriptor says beside it."""
    before = dict(numbers(shipped))
    rows = [("field", "shipped", "measured", "ratio")]
    for finding in findings:
        old = before[finding.key]
        match finding.value, old:
            case Ramp(points), Ramp():
                rows += [_row(f"{finding.key} at {x:.0f}", old.at(x), rate) for x, rate in points]
            case float(value), float() | int():
                rows.append(_row(finding.key, old, value))
            case _:
                raise AssertionError(f"{finding.key} is of another kind")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def _row(name: str, old: float, new: float) -> tuple[str, str, str, str]:
    return name, f"{old:g}", f"{new:g}", f"{new / old:.2f}"
