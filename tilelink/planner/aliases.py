"""`algorithm=pooled` and its like: one word for several fields of a collective. Pins may say it; schedules never do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilelink.errors import IllegalPin
from tilelink.ir.collective import Collective, Landing
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import Fused, Library, OwnKernel
from tilelink.ir.spec import AllReduce, BoundSpec
from tilelink.planner.choices import texts
from tilelink.planner.collectives import collective_pins, legal_collectives, operation_of
from tilelink.planner.fields import likely
from topologies.topology import Topology

ALIAS = "algorithm"
ALIASES: dict[str, Collective] = {
    "one-shot": Collective(),
    "two-shot": Collective(shots=2),
    "in-place": Collective(shots=2, landing=Landing.REUSED),
    "pooled": Collective(shots=2, landing=Landing.POOLED),
    "ll": Collective(OwnKernel(), Protocol.LL),
    "ll-tiles": Collective(Fused(), Protocol.LL),
    "lamport": Collective(OwnKernel(), Protocol.LAMPORT),
    "lamport-tiles": Collective(Fused(), Protocol.LAMPORT),
    "lamport-two-shot": Collective(OwnKernel(), Protocol.LAMPORT, shots=2),
    "lamport-tiles-two-shot": Collective(Fused(), Protocol.LAMPORT, shots=2),
    "library": Collective(Library()),
}
_DIRECT = "direct"  # of what has no second shot, the alias of the first one


def without_aliases(spec: BoundSpec, topology: Topology, pins: Mapping[str, str]) -> dict[str, str]:
    """`pins` with each alias replaced by the fields that it stands for, of each collective that it is about.

    Raises IllegalPin if it is the alias of nothing legal, or says otherwise than another pin.
    """
    owners = [name for name in pins if name.rpartition(".")[2] == ALIAS]
    if not owners:
        return dict(pins)
    out = {name: text for name, text in pins.items() if name not in owners}
    legal = {name: (operation_of(spec, name), ways) for name, ways in legal_collectives(spec, topology)}
    for pin in sorted(owners, key=lambda name: "." in name):  # one with a name counts more
        about = {name: held for name, held in legal.items() if pin in (ALIAS, f"{name}.{ALIAS}")}
        if not about:
            out[pin] = pins[pin]  # there is nothing of that name
        for name, (operation, ways) in about.items():
            if pin == ALIAS and f"{name}.{ALIAS}" in pins:
                continue
            known = aliases(operation, ways)
            if pins[pin] not in known:
                reason = "no schedule of this spec has it"
                raise IllegalPin(
                    name=pin, value=pins[pin], reason=reason, hint=likely(pins[pin], known), legal=_listed(known)
                )
            for full, text in texts(collective_pins(spec, [(name, known[pins[pin]])])).items():
                if out.get(full, text) != text:
                    field = full.removeprefix(f"{name}.")
                    reason = f"it stands for {field}={text} of {name}, which is pinned to {out[full]}"
                    raise IllegalPin(name=pin, value=pins[pin], reason=reason, hint="", legal=_listed(known))
                out[full] = text
    return out


def aliases(operation: type, ways: Iterable[Collective]) -> dict[str, Collective]:
    """The aliases of ways to carry out an operation."""
    known = {how: text for text, how in ALIASES.items()}
    if operation is not AllReduce:
        known[Collective()] = _DIRECT
    return {known[how]: how for how in ways if how in known}


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(sorted(texts, key=lambda text: (len(text), text))) or "none on this machine"
