"""Pins checked against the space: a name or a value that no schedule of the spec has is answered with the legal ones."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import lru_cache

from tilelink.errors import LARGEST_SIZE, IllegalPin, UnknownPin, did_you_mean
from tilelink.ir.expand import collectives
from tilelink.ir.spec import BoundSpec, Matmul
from tilelink.planner.choices import FRESH, OUTPUTS, REUSED, compute_fields, exchange_fields, loop_text
from tilelink.planner.space import compute_options, exchange_options, parse_tile, structures
from topologies.topology import Topology

_FREE_FIELDS = ("chunks", "group", "slots", "consumers")
_WORDS = {
    "prefetch": ("yes", "no"),
    "tail": ("whole", "halves"),
    "count": ("at once", "late"),
    "streams": ("one", "peer"),
}


def check_pins(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> None:
    """Every pin names a field, and its value is one that some schedule has. Raises UnknownPin, IllegalPin."""
    if not pins:
        return
    known = pin_names(spec, topology)
    fields = sorted({name.rpartition(".")[2] for name in known})
    for name, value in pins.items():
        legal = known.get(name) or {
            text for full, texts in known.items() if full.endswith(f".{name}") for text in texts
        }
        if not legal or ("." not in name and name not in fields):
            listed = ", ".join([*fields, *known])
            raise UnknownPin(name=name, hint=did_you_mean(name, [*fields, *known]), legal=listed)
        if value not in legal and not _parses(name.rpartition(".")[2], value, topology):
            shown = ", ".join(sorted(legal, key=lambda text: (len(text), text)))
            raise IllegalPin(name=name, value=value, reason="no schedule of this spec has it", legal=shown)


def _parses(field: str, value: str, topology: Topology) -> bool:
    """Whether a value that is not enumerated has a meaning of its own."""
    if field in _FREE_FIELDS:
        return _is_count(value)
    if field == "tile":
        return parse_tile(value) is not None
    if field in _WORDS:
        return value in _WORDS[field]
    number = value.removeprefix("CommSms(").removesuffix(")")
    return (
        field == "mover" and value == f"CommSms({number})" and _is_count(number) and int(number) < topology.gpu.num_sms
    )


def _is_count(value: str) -> bool:
    """A number of things, which kernels count in 32 bits."""
    return (
        value.isascii() and value.isdigit() and len(value) <= len(str(LARGEST_SIZE)) and 0 < int(value) <= LARGEST_SIZE
    )


@lru_cache(maxsize=32)
def pin_names(spec: BoundSpec, topology: Topology) -> Mapping[str, AbstractSet[str]]:
    """Every legal pin name with the texts that the space has for it (more are legal for SMs, chunks and tiles)."""
    names: dict[str, set[str]] = {OUTPUTS: {FRESH, REUSED}}
    for collective, legal in collectives(spec):
        names.setdefault(f"{collective}.algorithm", set()).update(a.value for a in legal)
    seen: set[object] = set()  # most structures have most of this in common
    for structure in structures(spec, topology, {OUTPUTS: REUSED}):
        for relation in structure.graph.relations():
            if not relation.library and relation not in seen:
                seen.add(relation)
                for option in exchange_options(structure, relation, topology, {}):
                    for field, text in exchange_fields(option).items():
                        names.setdefault(f"{relation.name}.{field}", set()).add(text)
        for group in structure.groups:
            for choice in compute_options(structure, group, topology, {}):
                if (group.name, choice) in seen:
                    continue
                seen.add((group.name, choice))
                for field, text in compute_fields(choice).items():
                    names.setdefault(f"{group.name}.{field}", set()).add(text)
        for matmul in (op for op in structure.graph.ops() if isinstance(op.operation, Matmul)):
            names.setdefault(f"{matmul.name}.compute", set()).update(("triton", "library"))
        for matmul_name, _ in structure.loops:
            names.setdefault(f"{matmul_name}.loop", set()).update(map(loop_text, (True, False)))
    return names
