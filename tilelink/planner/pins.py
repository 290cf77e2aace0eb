"""Pins checked against the space: what names no choice of the spec, or has a value that no schedule has, is answered with the
legal ones. A pin is honoured or refused, never passed over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NoReturn

from tilelink.errors import IdlePin, IllegalPin, UnknownPin, did_you_mean
from tilelink.ir.movers import MOVERS, ChunkMover, parsed_mover
from tilelink.ir.spec import AllReduce, BoundSpec, Matmul
from tilelink.ir.steps import SMALLEST_DOT
from tilelink.planner.aliases import without_aliases
from tilelink.planner.choices import FRESH, OUTPUTS, REUSED, compute_fields, exchange_fields, likely, loop_text
from tilelink.planner.collectives import (
    collective_fields,
    legal_collectives,
    operation_of,
    why_none_fits,
)
from tilelink.planner.fields import APPLIES_TO, asked_of_all
from tilelink.planner.search import descent_of
from tilelink.planner.space import (
    compute_options,
    exchange_options,
    fields_of,
    is_number,
    parse_tile,
    structures,
)
from tilelink.planner.structure import Structure
from topologies.topology import Topology

_LISTED = 12  # values of a pin, in a message about several


@dataclass
class Space:
    """The pins of a spec on a machine: `names` with the values that the search tries; `rows`: the most chunks of an exchange;
    `matmuls`: names whose tiles have a depth; `short`: names that a pin with their field alone is about."""

    names: dict[str, set[str]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    matmuls: set[str] = field(default_factory=set)
    short: set[str] = field(default_factory=set)

    def covered(self, pin: str) -> list[str]:
        """Full names that the pin is about."""
        if pin in self.names:
            return [pin]
        return [name for name in self.names if name in self.short and name.endswith(f".{pin}")]

    def fields(self) -> list[str]:
        """Names of pins without a value's name."""
        return sorted({name.rpartition(".")[2] for name in self.short})


def checked_pins(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> dict[str, str]:
    """The pins without aliases. Every one names a choice, and its value is one that some schedule has.

    Raises UnknownPin, IdlePin, IllegalPin."""
    if not pins:
        return {}
    pins = without_aliases(spec, topology, pins)
    space = _space(spec, topology)
    for name, value in pins.items():
        covered = space.covered(name)
        if not covered:
            _nothing_to_pin(spec, space, name, value)
        texts = {text for one in covered for text in space.names[one]}
        if value not in texts and not any(_has_meaning(space, one, value, topology) for one in covered):
            others = {other: text for other, text in pins.items() if other != name}
            legal = _legal(spec, topology, name, texts, others) or _legal(spec, topology, name, texts, {})
            if not legal:  # of what lies where the caller reads it
                promised = _legal(spec, topology, name, texts, {OUTPUTS: REUSED})
                legal = [f"{text} with {OUTPUTS}={REUSED}" for text in promised]
            shown = ", ".join([*legal, *_patterns(space, covered, topology)])
            reason = why_none_fits(spec, topology, {name: value}) or "no schedule of this spec has it"
            hint = likely(value, texts)
            raise IllegalPin(name=name, value=value, reason=reason, hint=hint, legal=shown or "none on this machine")
    return dict(pins)


def pin_names(spec: BoundSpec, topology: Topology) -> Mapping[str, AbstractSet[str]]:
    """Every legal pin name with the values that the search tries (more are legal for numbers and tiles)."""
    return _space(spec, topology).names


def why_none(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> str:
    """Why no structure leaves each of these pins, which are legal one by one, something to apply to."""
    if reason := why_none_fits(spec, topology, pins):
        return reason
    space = _space(spec, topology)
    texts = [f"{name} applies to {_listed(space.covered(name))}" for name in pins if name != OUTPUTS]
    return (
        f"no choice of collectives and of library matmuls leaves each of them something to apply to: {'; '.join(texts)}"
    )


def legal_beside(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> str:
    """Values of each pin that go with all others, ` Legal beside the others: transfer=pull.`; nothing if there are none, or only
    one pin."""
    space, found = _space(spec, topology), []
    pins = without_aliases(spec, topology, pins)
    for name in pins if len(pins) > 1 else ():
        others = {other: text for other, text in pins.items() if other != name}
        texts = {text for one in space.covered(name) for text in space.names[one]}
        legal = _legal(spec, topology, name, sorted(texts, key=_by_size)[:_LISTED], others)
        found += [f"{name}={', '.join(legal)}"] if legal else []
    return f" Legal beside the others: {'; '.join(found)}." if found else ""


def _legal(
    spec: BoundSpec, topology: Topology, name: str, texts: Iterable[str], others: Mapping[str, str]
) -> list[str]:
    """The values with which some schedule has the pin, and all others."""
    ordered = sorted(texts, key=_by_size)
    return [text for text in ordered if _leads_somewhere(spec, topology, {**others, name: text})]


def _nothing_to_pin(spec: BoundSpec, space: Space, name: str, value: str) -> NoReturn:
    """Raises IdlePin for a choice that other specs or other values have, and UnknownPin for what is no choice at all."""
    known = list(dict.fromkeys([*space.fields(), *space.names]))
    listed = ", ".join(known)
    owner, _, field_name = name.rpartition(".")
    values = {node.output.name for node in spec.nodes} | {one.rpartition(".")[0] for one in space.names}
    if field_name not in APPLIES_TO or (owner and owner not in values):
        raise UnknownPin(name=name, hint=did_you_mean(name, known), legal=listed)
    here = [one for one in space.names if one.rpartition(".")[2] == field_name and one != name]
    where = f"here: {_listed(here)}" if here else "there are none here"
    raise IdlePin(name=name, value=value, applies=f"{APPLIES_TO[field_name]}; {where}", legal=listed)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _by_size(text: str) -> tuple[int, str]:
    return len(text), text


def _has_meaning(space: Space, name: str, value: str, topology: Topology) -> bool:
    """Whether a value that the search does not try is legal, as `_patterns` says."""
    field_name = name.rpartition(".")[2]
    match field_name:
        case "chunks":
            return is_number(value) and int(value) <= space.rows[name]
        case "group" | "slots" | "consumers":
            return is_number(value)
        case "tile":
            tile = parse_tile(value)
            return tile is not None and (tile.k >= SMALLEST_DOT if name in space.matmuls else tile.k == 0)
        case "mover":
            mover = parsed_mover(value, topology.gpu)
            return mover is not None and any(_is_of(type(mover), text) for text in space.names[name])
    return False


def _is_of(kind: type[ChunkMover], text: str) -> bool:
    return text.partition("(")[0] == kind.__name__


def _patterns(space: Space, names: list[str], topology: Topology) -> Iterator[str]:
    """Legal values that are too many to list, in words."""
    match names[0].rpartition(".")[2]:
        case "chunks":
            yield f"or any whole number from 1 to {max(space.rows[name] for name in names)} that cuts the rows"
        case "group" | "slots" | "consumers":
            yield "or any whole number from 1 on"
        case "tile":
            if any(name in space.matmuls for name in names):
                yield "or MxNxK/WwSs: powers of two from 16 on, W warps, S stages; 2p: two programs an SM, 2g: two warpgroups"
            if any(name not in space.matmuls for name in names):
                yield "or MxNx0/Ww1s: powers of two from 16 on, W warps"
        case "mover":
            texts = [text for name in names for text in space.names[name]]
            kinds = (kind for kind in MOVERS if any(_is_of(kind, text) for text in texts))
            yield from (f"or {more}" for kind in kinds if (more := kind.more(topology.gpu)))


def _leads_somewhere(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> bool:
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
        space.names[OUTPUTS] = {FRESH, REUSED}
        space.short.add(OUTPUTS)
    for collective, legal in legal_collectives(spec, topology):
        for how in legal:
            for name, text in collective_fields(operation_of(spec, collective), how).items():
                _add(space, f"{collective}.{name}", {text})
    seen: set[object] = set()  # most structures have most of this in common
    for structure in structures(spec, topology, {OUTPUTS: REUSED}):
        _add_exchanges(space, structure, seen)
        _add_loops(space, structure, seen)
    return space


def _is_only_output(spec: BoundSpec, value: str) -> bool:
    return value in spec.outputs and not any(value in node.inputs for node in spec.nodes)


def _add(space: Space, name: str, texts: Iterable[str], *, short: bool = True) -> None:
    space.names.setdefault(name, set()).update(texts)
    if short:
        space.short.add(name)


def _add_exchanges(space: Space, structure: Structure, seen: set[object]) -> None:
    for relation in structure.graph.relations():
        if relation.library:
            continue
        for option in exchange_options(structure, relation, {}):
            if (relation.name, option) not in seen:
                seen.add((relation.name, option))
                for name, text in exchange_fields(option).items():
                    _add(space, f"{relation.name}.{name}", {text})
                streams = {"one", "peer"} if "streams" in exchange_fields(option) else set[str]()
                if streams:
                    _add(space, f"{relation.name}.streams", streams)
                key = f"{relation.name}.chunks"
                space.rows[key] = max(space.rows.get(key, 0), relation.part[0])


def _add_loops(space: Space, structure: Structure, seen: set[object]) -> None:
    for matmul in (op for op in structure.graph.ops() if isinstance(op.operation, Matmul)):
        _add(space, f"{matmul.name}.compute", ("triton", "library"))
    for matmul_name, _ in structure.loops:
        _add(space, f"{matmul_name}.loop", map(loop_text, (True, False)))
    for group in structure.groups:
        fields = fields_of(structure, group)
        for option in compute_options(structure, group, {}):
            if (group.name, option) in seen:
                continue
            seen.add((group.name, option))
            texts = compute_fields(option)
            for name in fields:
                _add(space, f"{group.name}.{name}", {texts[name]}, short=name in asked_of_all(group))
        if "prefetch" in fields:
            space.names[f"{group.name}.prefetch"] |= {"yes", "no"}
        if group.matmuls and "tile" in fields:
            space.matmuls.add(f"{group.name}.tile")
