"""Pins as users give them: texts and objects become values here, and nowhere else.

What names no choice of the spec, or has a value that no schedule has, is answered with the legal ones. A pin is honoured or
refused, never passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from tilelink.errors import IdlePin, IllegalPin, UnknownPin, did_you_mean
from tilelink.ir.movers import MOVERS, ChunkMover
from tilelink.ir.nodes import TileShape
from tilelink.ir.spec import AllReduce, BoundSpec
from tilelink.ir.steps import SMALLEST_DOT
from tilelink.planner import fields
from tilelink.planner.aliases import ALIAS, without_aliases
from tilelink.planner.choices import (
    REUSED,
    Pin,
    Pins,
    asked_of_all,
    compute_fields,
    exchange_fields,
    group_fields,
    pin_name,
    texts,
)
from tilelink.planner.collectives import collective_pins, legal_collectives, why_none_fits, why_not_here
from tilelink.planner.fields import likely, pin_text
from tilelink.planner.in_library import in_library
from tilelink.planner.options import compute_options, exchange_options
from tilelink.planner.search import descent_of
from tilelink.planner.space import structures, why_not_attended
from tilelink.planner.structure import Structure
from topologies.topology import Topology

_ANY_NUMBER = (fields.GROUP, fields.SLOTS, fields.CONSUMERS, fields.SPLITS)
_LISTED = 12  # values of a pin, in a message about several


@dataclass
class Space:
    """The pins of a spec on a machine: `names` with the values that the search tries; `rows`: the most chunks of an exchange;
    `matmuls`: groups whose tiles have a depth; `short`: those that a pin with their field alone is about."""

    names: dict[Pin, set[object]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    matmuls: set[str] = field(default_factory=set)
    short: set[Pin] = field(default_factory=set)

    def covered(self, pin: Pin) -> list[Pin]:
        """Those with a name that the pin is about."""
        if pin in self.names or pin[0]:
            return [pin] if pin in self.names else []
        return [one for one in self.names if one in self.short and one[1] is pin[1]]

    def values(self, pin: Pin) -> set[object]:
        """All that the search tries where the pin is about it."""
        return {value for one in self.covered(pin) for value in self.names[one]}

    def known(self) -> list[str]:
        """Names of pins, first those without a value's name."""
        return list(dict.fromkeys([*sorted(field.name for _, field in self.short), *map(pin_name, self.names)]))


def checked_pins(spec: BoundSpec, topology: Topology, pins: Mapping[str, object]) -> Pins:
    """The pins as values, without aliases. Every one names a choice, and its value is one that some schedule has.

    Raises UnknownPin, IdlePin, IllegalPin."""
    if not pins:
        return {}
    given = without_aliases(spec, topology, {name: pin_text(value) for name, value in pins.items()})
    space = _space(spec, topology)
    found: dict[Pin, object] = {}
    for name, text in given.items():
        pin = _pin(name)
        covered = space.covered(pin) if pin is not None else []
        if pin is None or not covered:
            _nothing_to_pin(spec, topology, name, text)
        value = pin[1].parsed(text)
        if not any(value in space.names[one] or _has_meaning(space, one, value, topology) for one in covered):
            raise _illegal(spec, topology, pin, given)
        found[pin] = value
    return found


def _pin(name: str) -> Pin | None:
    """`x_full.chunks` or `chunks`; None if there is no such field."""
    owner, _, field_name = name.rpartition(".")
    pin = (owner, fields.BY_NAME[field_name]) if field_name in fields.BY_NAME else None
    return pin if pin is not None and pin_name(pin) == name else None


def _read(given: Mapping[str, str]) -> Pins | None:
    """The values of texts, or None if one of them names no field or has no value of it."""
    found = {pin: pin[1].parsed(text) for name, text in given.items() if (pin := _pin(name)) is not None}
    return found if len(found) == len(given) and None not in found.values() else None


def _illegal(spec: BoundSpec, topology: Topology, pin: Pin, given: Mapping[str, str]) -> IllegalPin:
    """Of a pin whose value no schedule has, with those that are legal."""
    space, name = _space(spec, topology), pin_name(pin)
    text, values = given[name], space.values(pin)
    others = _read({other: value for other, value in given.items() if other != name})
    legal = _legal(spec, topology, pin, values, others) if others is not None else []
    legal = legal or _legal(spec, topology, pin, values, {})
    if not legal:  # of what lies where the caller reads it
        promise = ", ".join(f"{one}={value}" for one, value in texts(REUSED).items())
        legal = [f"{one} with {promise}" for one in _legal(spec, topology, pin, values, REUSED)]
    value = pin[1].parsed(text)
    reason = why_none_fits(spec, topology, {pin: text if value is None else value})  # a text is no value of anything
    return IllegalPin(
        name=name,
        value=text,
        reason=reason or "no schedule of this spec has it",
        hint=likely(text, map(pin[1].text, values)),
        legal=", ".join([*legal, *_patterns(space, space.covered(pin), topology)]) or "none on this machine",
    )


def pin_names(spec: BoundSpec, topology: Topology) -> Mapping[str, AbstractSet[str]]:
    """Every legal pin name with the values that the search tries (more are legal for numbers and tiles)."""
    return {pin_name(pin): set(map(pin[1].text, values)) for pin, values in _space(spec, topology).names.items()}


def why_none(spec: BoundSpec, topology: Topology, pins: Pins) -> str:
    """Why no structure leaves each of these pins, which are legal one by one, something to apply to."""
    if reason := why_none_fits(spec, topology, pins) or why_not_attended(spec, topology, pins):
        return reason
    space = _space(spec, topology)
    found = [f"{pin_name(pin)} applies to {_listed(space.covered(pin))}" for pin in pins if pin not in REUSED]
    return (
        f"no choice of collectives and of library matmuls leaves each of them something to apply to: {'; '.join(found)}"
    )


def legal_beside(spec: BoundSpec, topology: Topology, pins: Mapping[str, object]) -> str:
    """Values of each pin that go with all others, ` Legal beside the others: transfer=pull.`; nothing if there are none, or only
    one pin."""
    space, found = _space(spec, topology), []
    checked = checked_pins(spec, topology, pins)
    for pin in checked if len(checked) > 1 else ():
        others = {other: value for other, value in checked.items() if other != pin}
        legal = _legal(spec, topology, pin, _by_size(pin, space.values(pin))[:_LISTED], others)
        found += [f"{pin_name(pin)}={', '.join(legal)}"] if legal else []
    return f" Legal beside the others: {'; '.join(found)}." if found else ""


def _legal(spec: BoundSpec, topology: Topology, pin: Pin, values: Iterable[object], others: Pins) -> list[str]:
    """The values with which some schedule has the pin, and all others, as texts."""
    ordered = _by_size(pin, values)
    return [pin[1].text(value) for value in ordered if _leads_somewhere(spec, topology, {**others, pin: value})]


def _nothing_to_pin(spec: BoundSpec, topology: Topology, name: str, value: str) -> NoReturn:
    """Raises IllegalPin for a choice that other machines have, IdlePin for one that other specs or other values have, and
    UnknownPin for what is no choice at all."""
    space, asked = _space(spec, topology), _read({name: value})
    if asked and (reason := why_not_here(spec, topology, asked)):
        raise IllegalPin(name=name, value=value, reason=reason, hint="", legal="none on this machine")
    known, applies = space.known(), {**{one.name: one.applies for one in fields.BY_NAME.values()}, ALIAS: "collectives"}
    owner, _, field_name = name.rpartition(".")
    values = {node.output.name for node in spec.nodes} | {one for one, _ in space.names}
    if field_name not in applies or (owner and owner not in values):
        raise UnknownPin(name=name, hint=did_you_mean(name, known), legal=", ".join(known))
    here = [one for one in space.names if one[1].name == field_name and pin_name(one) != name]
    where = f"here: {_listed(here)}" if here else "there are none here"
    raise IdlePin(name=name, value=value, applies=f"{applies[field_name]}; {where}", legal=", ".join(known))


def _listed(pins: Iterable[Pin]) -> str:
    return ", ".join(map(pin_name, pins))


def _by_size(pin: Pin, values: Iterable[object]) -> list[object]:
    """Short texts first."""
    return sorted(values, key=lambda value: (len(text := pin[1].text(value)), text))


def _has_meaning(space: Space, pin: Pin, value: object, topology: Topology) -> bool:
    """Whether a value that the search does not try is legal, as `_patterns` says."""
    name, which = pin
    match value:
        case TileShape() if which is fields.FOLD:
            return value.k in {one.k for one in space.names[pin] if isinstance(one, TileShape)}
        case TileShape():
            return value.k >= SMALLEST_DOT if name in space.matmuls else value.k == 0
        case ChunkMover():
            return value.sms < topology.gpu.num_sms and any(isinstance(one, type(value)) for one in space.names[pin])
        case int():
            return which in _ANY_NUMBER or (which is fields.CHUNKS and value <= space.rows[name])
    return False


def _patterns(space: Space, pins: list[Pin], topology: Topology) -> Iterator[str]:
    """Legal values that are too many to list, in words."""
    names, which = [name for name, _ in pins], pins[0][1]
    if which is fields.CHUNKS:
        yield f"or any whole number from 1 to {max(space.rows[name] for name in names)} that cuts the rows"
    if which in _ANY_NUMBER:
        yield "or any whole number from 1 on"
    if which is fields.TILE and any(name in space.matmuls for name in names):
        yield "or MxNxK/WwSs: powers of two from 16 on, W warps, S stages; 2p: two programs an SM, 2g: two warpgroups"
    if which is fields.TILE and any(name not in space.matmuls for name in names):
        yield "or MxNx0/Ww1s: powers of two from 16 on, W warps"
    if which is fields.MOVER:
        kinds = {type(value) for pin in pins for value in space.names[pin]}
        yield from (f"or {more}" for kind in MOVERS if kind in kinds and (more := kind.more(topology.gpu)))


def _leads_somewhere(spec: BoundSpec, topology: Topology, pins: Pins) -> bool:
    """Whether some schedule has these pins, however slow."""
    for structure in structures(spec, topology, pins):
        search, _ = descent_of(structure, pins)
        if search is not None and search.first_legal()[0] is not None:
            return True
    return False


@lru_cache(maxsize=32)
def _space(spec: BoundSpec, topology: Topology) -> Space:
    space = Space()
    if any(isinstance(node.operation, AllReduce) and _is_only_output(spec, node.output.name) for node in spec.nodes):
        _add(space, ("", fields.OUTPUTS), (True, False))
    for collective, legal in legal_collectives(spec, topology):
        for how in legal:
            for pin, value in collective_pins(spec, [(collective, how)]).items():
                _add(space, pin, (value,))
    seen: set[object] = set()  # most structures have most of this in common
    for structure in structures(spec, topology, REUSED):
        _add_exchanges(space, structure, seen)
        _add_loops(space, structure, seen)
    return space


def _is_only_output(spec: BoundSpec, value: str) -> bool:
    return value in spec.outputs and not any(value in node.inputs for node in spec.nodes)


def _add(space: Space, pin: Pin, values: Iterable[object], *, short: bool = True) -> None:
    space.names.setdefault(pin, set()).update(values)
    if short:
        space.short.add(pin)


def _add_exchanges(space: Space, structure: Structure, seen: set[object]) -> None:
    for relation in structure.relations:
        for option in exchange_options(structure, relation, {}, every=True):
            if (relation.name, option) not in seen:
                seen.add((relation.name, option))
                for which, value in exchange_fields(option).items():
                    _add(space, (relation.name, which), (True, False) if which is fields.STREAMS else (value,))
                space.rows[relation.name] = max(space.rows.get(relation.name, 0), relation.part[0])


def _add_loops(space: Space, structure: Structure, seen: set[object]) -> None:
    for name in in_library(structure.spec):
        _add(space, (name, fields.COMPUTE), (True, False))
    for name, _ in structure.loops:
        _add(space, (name, fields.LOOP), (True, False))
    for group in structure.groups:
        here = group_fields(structure, group)
        for option in compute_options(structure, group, {}):
            if (group.name, option) not in seen:
                seen.add((group.name, option))
                values = compute_fields(option)
                for which in here:
                    tried = (True, False) if which in (fields.PREFETCH, fields.OWN) else (values[which],)
                    _add(space, (group.name, which), tried, short=which in asked_of_all(group))
        if group.deep and fields.TILE in here:
            space.matmuls.add(group.name)
