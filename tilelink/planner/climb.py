"""The best structure of a spec: climb from neighbour to neighbour, then look at the best ones again."""

from __future__ import annotations

import math

from tilelink.planner.choices import Pins
from tilelink.planner.fallback import Log
from tilelink.planner.moves import kind_of
from tilelink.planner.refine import refined
from tilelink.planner.search import Descent, Place, best_of, descent_of
from tilelink.planner.structure import Structure
from tilelink.planner.timing import Candidate, Timing

MARGIN = 0.02  # of the time of library calls alone, what overlapping has to gain
_FEW_STRUCTURES = 8
# of a piece, so many kinds of choices; those that take at most so many times the best are swept once more
_KINDS, _WORTH_A_SWEEP = 6, 1.15
# structures whose best schedule takes at most so many times the best, and how many of them
_NEAR, _LOOKED_AT_AGAIN = 1.1, 3


class Climb:
    """The search over structures; what was timed of each. `plain`: others, which may be what the best is compared with.
    Of a `piece` kinds are wanted, too, that are slower by themselves."""

    def __init__(
        self, every: list[Structure], plain: list[Structure], pins: Pins, log: Log | None, *, piece: bool = False
    ) -> None:
        self.every, self.count = [*every, *plain], len(every)
        self.pins, self.log, self.piece = pins, log, piece
        self.timings: dict[int, Timing] = {}
        self.descents: dict[int, tuple[Descent | None, str]] = {}
        self.found: dict[int, tuple[Candidate | None, str]] = {}

    def candidates(self) -> list[Candidate]:
        """All legal ones that were looked at."""
        return [candidate for timing in self.timings.values() for candidate in timing.candidates()]

    def best(self) -> tuple[Candidate | None, str]:
        """The best choices, or None and why there are none."""
        best = self._climbed()
        if best is None:
            reasons = (why for _, why in self.found.values() if why)
            return None, next(reasons, "no way to carry out its collectives is legal")
        return self._never_slower(self._look_again(best)), ""

    def _of(self, index: int) -> Candidate | None:
        """The best of a structure."""
        if index not in self.found:
            search, why = self._descent(index)
            best, known = None, self._known()
            if search is not None and not self.piece and search.least_us >= known:
                why = f"at least {search.least_us:.1f} us"
            elif search is not None:
                best, why = best_of(search, known)
            self.found[index] = best, why
            if self.log is not None:
                self.log(f"{_structure_text(self.every[index])}: {f'{best.us:.1f} us' if best else why}")
        return self.found[index][0]

    def _descent(self, index: int) -> tuple[Descent | None, str]:
        """The search over a structure, or why there is none."""
        if index not in self.descents:
            timing = self.timings[index] = Timing(self.every[index])
            self.descents[index] = descent_of(self.every[index], self.pins, timing)
        return self.descents[index]

    def _likely(self, index: int) -> float:
        """What the likely choices of a structure take at least: those that are fast come first, and bound the others."""
        search, _ = self._descent(index)
        return search.likely_us if search is not None else math.inf

    def front(self) -> list[Candidate]:
        """After `best`: the best choices of each set of kinds of movers, the fastest first; those that come near the best one
        are swept once more, with the same kinds."""
        found: dict[object, Candidate] = {}
        for candidate in sorted((one for one in self.candidates() if one.exact), key=lambda one: one.us):
            found.setdefault(_kinds(candidate), candidate)
        kept = list(found.values())[:_KINDS]
        return sorted(
            (self._swept(one) if one.us <= _WORTH_A_SWEEP * kept[0].us else one for one in kept), key=lambda one: one.us
        )

    def _swept(self, start: Candidate) -> Candidate:
        search = self._searched(next(i for i, timing in self.timings.items() if timing.structure is start.structure))
        for slot, now in search.base(start.options).items():
            search = search.only(slot, search.slots[slot].by_kind[kind_of(now)])
        found = search.swept(tuple(search.slots), Place(start.options, start.us))
        return Candidate(found.us, True, start.structure, found.chosen)

    def _searched(self, index: int) -> Descent:
        search, _ = self._descent(index)
        assert search is not None, "some of its choices are legal"
        return search

    def _known(self) -> float:
        """The best time of all structures so far."""
        return min((best.us for best, _ in self.found.values() if best is not None), default=math.inf)

    def _time(self, index: int) -> float:
        best = self._of(index)
        return best.us if best is not None else math.inf

    def _climbed(self) -> Candidate | None:
        """The best over structures: all of a few; of many, climb from the first and from the last (all by library).

        Structures that differ in one collective or one library matmul are neighbours; costs of operations that are far apart
        in a spec add up, so that single changes find what matters.
        """
        every = self.every[: self.count]
        few = sorted(range(len(every)), key=self._likely) if len(every) <= _FEW_STRUCTURES else (0, len(every) - 1)
        for here in few:
            while len(every) > _FEW_STRUCTURES:
                near = [i for i, other in enumerate(every) if _distance(every[here], other) == 1]
                near.sort(key=self._likely)
                best = min(near, key=lambda index: (self._time(index), index), default=here)
                if self._time(best) >= self._time(here):
                    break
                here = best
            self._of(here)
        legal = sorted(index for index, (best, _) in self.found.items() if best is not None)
        return self._of(min(legal, key=self._time)) if legal else None

    def _look_again(self, best: Candidate) -> Candidate:
        """The best choices after another look at the structures whose best ones come near them."""
        near = [index for index in self.found if self._time(index) <= _NEAR * best.us]
        for index in sorted(near, key=self._time)[:_LOOKED_AT_AGAIN]:
            start = self._of(index)
            assert start is not None, "its time is finite"
            found = refined(start, self._searched(index))
            if found.us < best.us:
                best = Candidate(found.us, True, self.every[index], found.chosen)
                if self.log is not None:
                    self.log(f"{_structure_text(self.every[index])}: {found.us:.1f} us at another look")
        return best

    def _never_slower(self, best: Candidate) -> Candidate:
        """All collectives and matmuls by the library, unless `best` is faster by more than the model can be wrong."""
        plain = self.by_library()
        return plain if plain is not None and best.us > plain.us * (1 - MARGIN) else best

    def by_library(self) -> Candidate | None:
        """The best of all collectives and matmuls by the library."""
        for index, structure in enumerate(self.every):
            if structure.all_by_library:
                search, _ = self._descent(index)
                return best_of(search)[0] if search is not None else None
        return None


def _kinds(candidate: Candidate) -> object:
    """Kinds of movers, on which it depends how calls end and how transfers share links, and of loops, which suit them."""
    return tuple(map(kind_of, candidate.options.values()))


def _distance(a: Structure, b: Structure) -> int:
    """In how many collectives and library matmuls two structures differ, and in how many loops of those that both have."""
    loops = dict(b.loops)
    differ = sum(loops.get(name, shared) != shared for name, shared in a.loops)
    return sum(x != y for x, y in zip(a.collectives, b.collectives, strict=True)) + len(a.library ^ b.library) + differ


def _structure_text(structure: Structure) -> str:
    parts = [f"{name} {how}" for name, how in structure.collectives]
    parts += [f"{name} by library" for name in sorted(structure.library)]
    parts += [f"{name} in a shared loop" for name, shared in structure.loops if shared]
    return ", ".join(parts) or "no collective"
