"""The best choices of a structure: coordinate descent over its decisions, from several starts.

Moves are those of `moves.FIELDS`, whatever the fields mean: all values of the fields that come first with what comes then as it
is, then all of that for the best ones; kinds of two decisions together, where one makes what the other one sends; and
with each of them the fields that come last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, product
from typing import TypeGuard

from tilelink.ir.choices import ComputeChoice, TritonLoop
from tilelink.ir.enums import Tail
from tilelink.ir.nodes import Kind
from tilelink.planner.bounds import alone_us, least_of_any_us, may_cut, most_gained_us, taken_sms
from tilelink.planner.choices import Pins
from tilelink.planner.decisions import Chosen, Option, Slot, legal_alone, slots_of
from tilelink.planner.moves import (
    COMPUTE,
    WIDTH,
    Options,
    Values,
    When,
    by_last,
    kind_of,
    nearest,
    of,
    other_kinds,
    values,
)
from tilelink.planner.one_launch import chains
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Candidate, Timing
from tilelink.planner.together import by_one_kind, read_together

_SWEEPS = 2
# values in their order that are no better than one before, until the rest is left out
_PATIENCE = 4
_PAIRED = 2  # options of each pair of kinds
HOPELESS = 1.2  # times the best, after a sweep: other fields will not make up for it
FAR = 1.6  # times the best, of another structure
WORTH = 1.4  # times the best, of a start: of 170 descents of recorded plans from above that, 2 came below the best
NEARER = 1.05  # times the best, after the first sweep from a start: of 493 that were beyond, none came below it
_SLACK = 1.1  # times what fields that come last gain by themselves, they may gain of a call


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search is, and the time there."""

    chosen: Chosen
    us: float


@dataclass(frozen=True)
class Descent:
    """A search over `slots`, whose options differ in more than fields that come `last`: the others of each option, and of each
    of these the option. What takes `ceiling` us or more is of no interest, however it goes on."""

    slots: Mapping[Slot, Options]
    last: Mapping[tuple[Slot, Option], tuple[Option, ...]]
    plain: Mapping[tuple[Slot, Option], Option]
    timing: Timing
    ceiling: float = math.inf

    def only(self, slot: Slot, options: Iterable[Option]) -> Descent:
        """The same with these options alone for the slot."""
        return replace(self, slots={**self.slots, slot: Options(options)})

    def at(self, chosen: Chosen, limit: float = math.inf) -> Place:
        """The best that fields that come last make of the choices; of no interest if it takes `limit` or more."""
        others = self._then_last(chosen)
        near = limit + (_SLACK * self._gain(chosen, others) if others else 0.0)
        here = Place(chosen, self.timing.us(chosen, near))
        if here.us < near:
            for slot, option in ((slot, option) for slot, found in others.items() for option in found):
                trial = {**here.chosen, slot: option}
                us = self.timing.us(trial, min(limit, here.us))
                here = Place(trial, us) if us < here.us else here
        return here

    def _then_last(self, chosen: Chosen) -> dict[Slot, tuple[Option, ...]]:
        """Of decisions with other values of fields that come last, the options that have these, as far as they may be legal."""
        structure, found = self.timing.structure, dict[Slot, tuple[Option, ...]]()
        for slot, option in chosen.items():
            if options := self.last.get((slot, option)):
                taken = taken_sms(structure, chosen)
                legal = tuple(one for one in options if not _cuts_tail(one) or may_cut(structure, slot[1], one, taken))
                if legal:
                    found[slot] = legal
        return found

    def _gain(self, chosen: Chosen, others: Mapping[Slot, tuple[Option, ...]]) -> float:
        """By how much less the choices may take with fields that come last."""
        structure, gained = self.timing.structure, 0.0
        for (_, name), found in others.items():
            loops = (one for one in found if isinstance(one, ComputeChoice))
            gained += max((most_gained_us(structure, chosen, name, one) for one in loops), default=0.0)
        return gained

    def base(self, chosen: Chosen) -> dict[Slot, Option]:
        """The choices with fields that come last as they are first."""
        return {slot: self.plain.get((slot, option), option) for slot, option in chosen.items()}

    def swept(self, order: tuple[Slot, ...], start: Place, sweeps: int = _SWEEPS) -> Place:
        """Where sweeps over the decisions in `order` end."""
        here = start
        for _ in range(sweeps):
            before = here.us
            for slot in order:
                here = self._changed(slot, here)
            if here.us == before:
                break
        return here

    def _changed(self, slot: Slot, here: Place) -> Place:
        """The best option of the slot: of the best values of fields that come first, all that comes then."""
        current = self.base(here.chosen)
        groups = self.slots[slot].by_first
        trials = {first: {**current, slot: nearest(group, current[slot])} for first, group in groups.items()}
        kept = self._by_bound(trials)
        if any(len(group) > 1 for group in groups.values()):
            kept = self._promising(kept, trials, here)
        for first in dict.fromkeys((*kept, values(current[slot], When.FIRST))):
            best, since = math.inf, 0
            for option in groups.get(first, ()):
                trial, limit = {**current, slot: option}, min(here.us, self.ceiling)
                if not self._may_improve(trial, limit):
                    continue
                found = self.at(trial, limit)
                here = found if found.us < here.us else here
                best, since = (found.us, 0) if found.us < best else (best, since + 1)
                if since == _PATIENCE:
                    break
        return here

    def _may_improve(self, trial: Chosen, limit: float) -> bool:
        """Whether the choices may take less than `limit`, with other values of fields that come last."""
        us = self.timing.us(trial, 0.0)
        return us < limit or (us < math.inf and us < limit + _SLACK * self._gain(trial, self._then_last(trial)))

    def _by_bound(self, trials: Mapping[Values, Chosen]) -> list[Values]:
        """By what they take at least: what is tried early is hard to beat."""
        return sorted(trials, key=lambda first: self.timing.us(trials[first], 0.0))

    def _promising(self, order: list[Values], trials: Mapping[Values, Chosen], here: Place) -> list[Values]:
        """The best ones with what comes then as it is."""
        most = min(self.ceiling, HOPELESS * here.us)
        times: dict[Values, float] = {}
        for first in order:
            ranked = sorted(times.values())
            times[first] = self.timing.us(trials[first], min(most, ranked[WIDTH - 1] if len(ranked) >= WIDTH else most))
        return sorted((first for first in times if times[first] < most), key=lambda first: times[first])[:WIDTH]

    @cached_property
    def least_us(self) -> float:
        """What all choices take at least."""
        loops = dict[str, list[ComputeChoice]]()
        for slot, options in self.slots.items():
            every = (one for option in options for one in (option, *self.last.get((slot, option), ())))
            if found := [one for one in every if isinstance(one, ComputeChoice)]:
                loops[slot[1]] = found
        return least_of_any_us(self.timing.structure, loops)

    @cached_property
    def likely_us(self) -> float:
        """What the likely choices take at least; what all do, where these do not go together, which says nothing of others."""
        us = self.timing.us(self.likely(), 0.0)
        return us if math.isfinite(us) else self.least_us

    def likely(self) -> dict[Slot, Option]:
        """Of each decision the option that takes least at least, of each kind by itself, and of these with all other decisions;
        whether or not they go together."""
        found = {slot: options[0] for slot, options in self._by_kind.items()}
        for slot in reversed(found):
            trials = [{**found, slot: option} for option in (*self._by_kind[slot], *self._in_many(slot))]
            found = min(trials, key=lambda trial: self.timing.us(trial, 0.0))
        return found

    @cached_property
    def _by_kind(self) -> dict[Slot, list[Option]]:
        """Of each decision the option of each kind that takes least at least."""
        structure = self.timing.structure
        return {
            slot: [min(group, key=lambda one: alone_us(structure, slot[1], one)) for group in options.by_kind.values()]
            for slot, options in self.slots.items()
        }

    def _in_many(self, slot: Slot) -> list[Option]:
        """Of an exchange, by the same movers in as many chunks as there may be: in one it takes least by itself, in many it hides
        behind tiles."""
        if slot[0] == COMPUTE:
            return []
        return [self.slots[slot].by_first[values(option, When.FIRST)][-1] for option in self._by_kind[slot]]

    def _likely_start(self, limit: float) -> Place | None:
        """The likely options, of the kinds that are the fastest with them, decision by decision."""
        found = self.likely()
        best = self.timing.us(found, limit)
        for slot in reversed(found):
            for option in self._by_kind[slot]:
                trial = {**found, slot: option}
                us = self.timing.us(trial, min(limit, best))
                found, best = (trial, us) if us < best else (found, best)
        return Place(found, best) if best < math.inf else None

    def first_legal(self, limit: float = math.inf) -> tuple[Place | None, str]:
        """A start, or None and why there is none: the likely options if they go together, else the first ones that do: change
        what one loop reads together, then one slot at a time, then pairs of slots, from the first of each. What takes `limit` or
        more is no start."""
        start = {slot: options[0] for slot, options in self.slots.items()}
        likely = self._likely_start(limit)
        if likely is not None:
            us = self.timing.us(start, likely.us)
            likely = Place(start, us) if us < likely.us else likely
            if likely.us < limit:
                return likely, ""
        others = self._together(start) if likely is not None else chain(self._together(start), self._near(start))
        for trial in others:
            us = self.timing.us(trial, limit)
            if us < limit:
                return Place(trial, us), ""
        return None, self.timing.why_not(start) or f"no start below {limit:.1f} us"

    def _together(self, start: dict[Slot, Option]) -> Iterator[dict[Slot, Option]]:
        for exchanges, reader in read_together(self.timing.structure):
            yield from by_one_kind(self.slots, start, self.timing, exchanges, reader)

    def _near(self, start: dict[Slot, Option]) -> Iterator[dict[Slot, Option]]:
        yield start
        for slot, options in self.slots.items():
            yield from ({**start, slot: group[0]} for group in options.by_first.values())
        names = list(self.slots)
        for i, first in enumerate(names):
            for second in names[i + 1 :]:
                for a, b in product(_smallest(self.slots[first]), _smallest(self.slots[second])):
                    yield {**start, first: a, second: b}


def descent_of(structure: Structure, pins: Pins, timing: Timing | None = None) -> tuple[Descent | None, str]:
    """The search over a structure, or None and why there is nothing to search."""
    slots, why = legal_alone(structure, slots_of(structure, pins))
    if why:
        return None, why
    groups = {slot: by_last(options) for slot, options in slots.items()}
    last = {(slot, one): tuple(group[1:]) for slot, found in groups.items() for one, group in found.items()}
    plain = {(slot, other): one for (slot, one), group in last.items() for other in group}
    return Descent(
        {slot: Options(found) for slot, found in groups.items()}, last, plain, timing or Timing(structure)
    ), ""


def best_of(search: Descent, known: float = math.inf) -> tuple[Candidate | None, str]:
    """The best choices of a structure, or None with the reason. `known`: the time of other structures, of which this one does not
    have to come near.

    By descent over its decisions, once for each place of each sum, since no change of one decision leads from one place to the
    other where chunks go with it; and once for each kind of mover of an output that peers put together, which also decides
    who has to make the sums."""
    timing = search.timing
    structure = timing.structure
    every = [replace(search, slots=slots) for slots in _starts(search.slots, structure.graph.outputs)]
    reasons = []
    # what is likely to be fast comes first: most of the rest is then passed over
    least = sorted((one.likely_us, at) for at, one in enumerate(every))
    for us, at in least:
        if math.isfinite(known) and us >= WORTH * known:
            reasons.append(f"at least {us:.1f} us")
            break
        some = every[at]
        start, reason = some.first_legal(WORTH * known)
        if start is not None and start.us < WORTH * known:
            # from a start that is beyond it, what comes near may be found behind what does not
            ceiling = FAR * known if start.us < FAR * known else math.inf
            known = min(known, _descend(replace(some, ceiling=ceiling), start, senders(structure), known).us)
        reasons.append(reason)
    exact = [candidate for candidate in timing.candidates() if candidate.exact]
    best = min(exact, key=lambda candidate: candidate.us, default=None)
    return best, "" if best is not None else next((reason for reason in reasons if reason), "")


def _starts(slots: Mapping[Slot, Options], outputs: tuple[str, ...]) -> Iterator[dict[Slot, Options]]:
    """The options with each sum in one place, and one kind of mover for each output."""
    places = []
    for slot, options in slots.items():
        if slot[0] == COMPUTE or slot[1] in outputs:
            where = dict.fromkeys(map(_place, options))
            places += [[(slot, place) for place in where]] if len(where) > 1 else []
    for chosen in product(*places):
        kept = dict(chosen)
        yield {
            slot: Options(o for o in options if _place(o) == kept[slot]) if slot in kept else options
            for slot, options in slots.items()
        }


def _cuts_tail(option: Option) -> TypeGuard[ComputeChoice]:
    return (
        isinstance(option, ComputeChoice) and isinstance(option.loop, TritonLoop) and option.loop.tail is not Tail.WHOLE
    )


def _place(option: Option) -> object:
    return kind_of(option)[:2] if of(option) == COMPUTE else kind_of(option)[0]


def senders(structure: Structure) -> list[tuple[Slot, Slot]]:
    """Relations whose parts tiles make, each with the group of these tiles."""
    return [
        (("exchange", relation.name), ("compute", structure.groups[structure.maker(relation.source)].name))
        for relation in structure.relations
        if relation.kind is Kind.SCATTER and structure.by_tiles(relation.source)
    ]


def _descend(search: Descent, start: Place, pairs: list[tuple[Slot, Slot]], known: float) -> Place:
    """Change one decision after the other to its best option, from the last one to the first: tiles, then movers that suit
    them. Kinds that are good together only are tried at the end. What else hides the best is looked for where it may
    matter (`tilelink.planner.refine`)."""
    order = tuple(search.slots)
    here = search.swept(order[::-1], start, sweeps=1)
    for trial in [one for loops in chains(search.timing.structure) for one in _alike(search, here, loops)]:
        found = search.at(trial, here.us)
        here = found if found.us < here.us else here
    if here.us > NEARER * known:
        return here
    if here.us < start.us:
        here = search.swept(order[::-1], here, _SWEEPS - 1)
    for trial in [trial for pair in pairs for trial in _together(search, here, pair)]:
        found = search.at(trial, here.us)
        if found.us < here.us:
            here = search.swept(order, found)
    return here


def _alike(search: Descent, here: Place, chain: tuple[str, ...]) -> Iterator[dict[Slot, Option]]:
    """Loops of a chain that are all launched in one way: the ways that take least at least."""
    current: dict[Slot, Option] = search.base(here.chosen)
    slots: dict[Slot, Options] = {(COMPUTE, name): search.slots[COMPUTE, name] for name in chain}
    alike = [
        first for first in slots[COMPUTE, chain[0]].by_first if all(first in one.by_first for one in slots.values())
    ]
    trials = [
        current | {slot: nearest(one.by_first[first], current[slot]) for slot, one in slots.items()} for first in alike
    ]
    yield from sorted(trials, key=lambda trial: search.timing.us(trial, 0.0))[:WIDTH]


def _together(search: Descent, here: Place, pair: tuple[Slot, Slot]) -> Iterator[dict[Slot, Option]]:
    """Each kind of the first decision of a pair with each other kind of the second one, with what comes then as it is; of
    each the options that take least at least."""
    first, second = pair
    current, slots = search.base(here.chosen), search.slots
    if first not in slots or second not in slots:
        return
    for some in slots[first].by_kind.values():
        moved = {**current, first: nearest(some, current[first])}
        for group in other_kinds(slots[second], current[second]):
            trials = [{**moved, second: found[0]} for found in Options(group).by_first.values()]
            yield from sorted(trials, key=lambda trial: search.timing.us(trial, 0.0))[:_PAIRED]


def _smallest(options: Options) -> list[Option]:
    """One option for each kind, on which legality mostly depends: that with the smallest tile or chunks."""
    return [list(Options(group).by_first.values())[-1][0] for group in options.by_kind.values()]
