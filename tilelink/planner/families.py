"""Families of schedules: what moves by whom, in which direction and by which protocol, and who computes what.

x_full.protocol=simple, x_full.mover=CopyEngine(), x_full.transfer=push, out.compute=triton

Schedules of a family differ in numbers: chunks, tiles, SMs that communicate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tilelink.ir.movers import Mover
from tilelink.planner import fields
from tilelink.planner.build import build
from tilelink.planner.choices import Pin, Pins
from tilelink.planner.decisions import decided
from tilelink.planner.layout import Illegal
from tilelink.planner.moves import kind_of
from tilelink.planner.predicted import time_us
from tilelink.planner.terms import Account, Part, Term, account_of
from tilelink.planner.timing import Candidate
from topologies.topology import Topology

# of pins, that say which family it is
_FIELDS = (*fields.OF_COLLECTIVES, fields.TRANSFER, fields.COMPUTE, fields.SUM, fields.LOOP)
_TIMED = 6  # of the candidates of a family that were not


@dataclass(frozen=True, slots=True)
class Family:
    """`fields`: choices that tell it from others, as pins; a mover of SMs has the best number of them. `us`: the predicted time
    of its best schedule among those that the search looked at."""

    fields: Pins
    us: float
    candidate: Candidate

    def differs(self, other: Family) -> dict[Pin, object]:
        """Its fields that are not those of `other`, but for the number of SMs."""
        return {pin: value for pin, value in self.fields.items() if kind(other.fields.get(pin)) != kind(value)}


@dataclass(frozen=True, slots=True)
class Rejected:
    """A family that is slower than the chosen schedule. `fields` are pins that plan it, of which the chosen family has others
    than `differs`. `lost_by`: the part in which it loses most, so many us, and the term there that is most above that of the
    chosen one, if it has any. `account`: its terms."""

    fields: Pins
    differs: Pins
    us: float
    lost_by: Part
    lost_us: float
    term: Term | None
    account: Account


def kind(value: object) -> object:
    """Movers of one class are of one kind, whatever their number of SMs."""
    return type(value) if isinstance(value, Mover) else value


def family_of(candidate: Candidate) -> Family:
    """The family of a candidate, which has its time."""
    problem = candidate.problem
    every = decided(problem.structure, problem.choices)
    return Family({pin: value for pin, value in every.items() if pin[1] in _FIELDS}, candidate.us, candidate)


def key_of(family: Family) -> object:
    """What families are told apart by."""
    return tuple((pin, kind(value)) for pin, value in family.fields.items())


def families(candidates: Iterable[Candidate]) -> list[Family]:
    """The families that a search looked at, the fastest first, each by its best legal schedule. Of candidates that the search has
    passed over by what they take at least, some of each family are timed now."""
    groups: dict[object, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda one: one.us):
        kinds = candidate.structure, *map(kind_of, candidate.options.values())
        groups.setdefault(kinds, []).append(candidate)
    best = (one for one in map(_best, groups.values()) if one is not None)
    found: dict[object, Family] = {}
    for family in sorted(map(family_of, best), key=lambda one: one.us):
        found.setdefault(key_of(family), family)
    return list(found.values())


def _best(candidates: list[Candidate]) -> Candidate | None:
    """The best of candidates in the order of their times or bounds, or None if none of those that are timed is legal."""
    best = next((one for one in candidates if one.exact), None)
    for candidate in [one for one in candidates if not one.exact][:_TIMED]:
        limit = best.us if best is not None else math.inf
        if candidate.us >= limit:
            break
        try:
            us, exact = time_us(candidate.problem, limit)
        except Illegal:
            continue
        best = Candidate(us, True, candidate.structure, candidate.options) if exact else best
    return best


def rejected(topology: Topology, best: Account, chosen: Family, other: Family) -> Rejected:
    """Why `other` lost to the chosen family, whose best schedule has the terms `best`."""
    account = account_of(build(other.candidate.problem), topology)
    part = max(Part, key=lambda part: account.us(part) - best.us(part))
    held = {term.what: term.us for term in best.critical}
    terms = [term for term in account.critical if term.part is part]
    largest = max(terms, key=lambda term: term.us - held.get(term.what, 0.0), default=None)
    return Rejected(
        other.fields, other.differs(chosen), other.us, part, account.us(part) - best.us(part), largest, account
    )
