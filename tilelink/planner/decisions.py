"""Decisions of a structure: a slot for each exchange and each group, and the options that it has."""

from __future__ import annotations

from collections.abc import Mapping

from tilelink.ir.choices import Choices, ComputeChoice, ExchangeChoice, TritonLoop
from tilelink.ir.spec import BoundSpec
from tilelink.planner import fields
from tilelink.planner.choices import Pin, Pins, compute_fields, exchange_fields, group_fields
from tilelink.planner.collectives import collective_pins
from tilelink.planner.layout import exchange_of
from tilelink.planner.options import compute_options, exchange_options
from tilelink.planner.rules import why_no_loop, why_not_beside, why_not_in_order
from tilelink.planner.space import structure_with
from tilelink.planner.structure import Structure
from topologies.topology import Topology

Option = ExchangeChoice | ComputeChoice
Slot = tuple[str, str]  # ("exchange" | "compute", name)
Slots = Mapping[Slot, tuple[Option, ...]]
Chosen = Mapping[Slot, Option]


def slots_of(structure: Structure, pins: Pins) -> dict[Slot, tuple[Option, ...]]:
    """Every decision of a structure with its options under these pins; no options where the pins leave none."""
    slots: dict[Slot, tuple[Option, ...]] = {}
    for relation in structure.relations:
        slots["exchange", relation.name] = tuple(exchange_options(structure, relation, pins))
    for group in structure.groups:
        slots["compute", group.name] = tuple(compute_options(structure, group, pins))
    return slots


def slot_names(structure: Structure) -> list[Slot]:
    """Every decision, in the order of `slots_of`."""
    exchanges = (("exchange", relation.name) for relation in structure.relations)
    return [*exchanges, *(("compute", group.name) for group in structure.groups)]


def legal_alone(structure: Structure, slots: Slots) -> tuple[dict[Slot, tuple[Option, ...]], str]:
    """The options that no rule excludes whatever else is chosen; if that leaves a slot none, the reason for its first one."""
    groups = {group.name: group for group in structure.groups}

    def why_not(name: str, option: Option) -> str:
        if isinstance(option, ComputeChoice):
            return why_no_loop(structure, groups[name], option)
        found = exchange_of(structure, name, option)
        return found if isinstance(found, str) else _why_no_order(structure, name, option, slots)

    found: dict[Slot, tuple[Option, ...]] = {}
    for (kind, name), options in slots.items():
        reasons = [why_not(name, option) for option in options]
        found[kind, name] = tuple(o for o, reason in zip(options, reasons, strict=True) if not reason)
        if not found[kind, name]:
            return {}, reasons[0] if reasons else f"the pins leave no option for {name}"
    return found, ""


def _why_no_order(structure: Structure, name: str, option: ExchangeChoice, slots: Slots) -> str:
    """Why rows cannot lie in the order of the tiles that read them, whatever tiles these are."""
    rows, relation = option.mover.tile_rows, structure.graph.relation(name)
    loops = {group: options for (kind, group), options in slots.items() if kind == "compute"}
    if not rows or relation is None or not all(loops.values()):
        return ""

    def suits(one: Option) -> tuple[bool, bool]:
        loop = one.loop if isinstance(one, ComputeChoice) else None
        in_order = isinstance(loop, TritonLoop) and not loop.own_first
        return isinstance(loop, TritonLoop) and loop.tile.m == rows, in_order

    best = {group: max(options, key=suits) for group, options in loops.items()}
    found = {group: one for group, one in best.items() if isinstance(one, ComputeChoice)}
    return why_not_in_order(structure, relation, option.mover, found)


def why_not_together(structure: Structure, chosen: Chosen) -> str:
    """Why these options do not go together, as far as that is known before they are built; else nothing."""
    loops = {name: option for (_, name), option in chosen.items() if isinstance(option, ComputeChoice)}
    for relation in structure.relations:
        option = chosen["exchange", relation.name]
        if isinstance(option, ExchangeChoice):
            reason = why_not_beside(structure, relation, option.mover, loops)
            reason = reason or why_not_in_order(structure, relation, option.mover, loops)
            if reason:
                return reason
    return ""


def choices_of(structure: Structure, chosen: Chosen) -> Choices:
    """The choices that a schedule of the structure has."""
    exchanges = tuple((name, o) for (_, name), o in chosen.items() if isinstance(o, ExchangeChoice))
    computes = tuple((name, o) for (_, name), o in chosen.items() if isinstance(o, ComputeChoice))
    return Choices(structure.collectives, exchanges, computes, structure.loops)


def decided(structure: Structure, choices: Choices) -> dict[Pin, object]:
    """Every decision of a schedule as pins."""
    found = collective_pins(structure.spec, choices.collectives)
    for name, exchange in choices.exchanges:
        found |= {(name, field): value for field, value in exchange_fields(exchange).items()}
    for group in structure.groups:
        values = compute_fields(choices.compute(group.name))
        found |= {(group.name, field): values[field] for field in group_fields(structure, group)}
    return found | {(name, fields.LOOP): shared for name, shared in choices.loops}


def pins_of(spec: BoundSpec, topology: Topology, choices: Choices) -> dict[Pin, object]:
    """All that these choices decide, as pins."""
    return decided(structure_with(spec, topology, choices), choices)
