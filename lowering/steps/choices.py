"""A load from one of two regions, the same one in all rounds of a loop: where it loads from is chosen in front of the loop.

    for k: (if segment == rank: a = x[m, k] else: a = x_full[segment, m, k])
    a_from = x_full + segment * step; if segment == rank: a_from = x; for k: a = a_from[m, k]

A load inside of a branch is not one that the compiler lets run ahead, and a loop for each branch takes shared memory twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from tilelink.schedule.index import Number, names_in, terms_of
from tilelink.schedule.steps import For, If, Load, Step, Wait
from tilelink.schedule.walk import steps_in


@dataclass(frozen=True, slots=True)
class Choice:
    """`branch` is a load of one of two: `first` where its condition holds, else `second`. `bound`: names of the loop."""

    branch: If
    first: Load
    second: Load
    bound: frozenset[str]

    def apart(self, first: Number, second: Number) -> Number | None:
        """`second - first`, if it is the same in all rounds."""
        terms = terms_of(second - first)
        if any(names_in(term) & self.bound for term in terms):
            return None
        return reduce(lambda total, one: total + one[0] * one[1], terms.items(), _ZERO)


_ZERO: Number = 0


def choices(loop: For) -> list[Choice]:
    """The choices in the body of `loop`, which does not wait."""
    if any(isinstance(step, Wait) for step in steps_in(loop.body)):
        return []
    bound = frozenset({loop.variable, *(name for name, _ in loop.let)})
    return [found for step in loop.body if (found := choice_of(step, bound)) is not None]


def choice_of(step: Step, bound: frozenset[str]) -> Choice | None:
    """A branch that does nothing but load one of two; None for any other step."""
    if not isinstance(step, If) or (names_in(step.left) | names_in(step.right)) & bound:
        return None
    match step.body, step.others:
        case (Load() as first,), (Load() as second,):
            alike = (first.result, first.fill) == (second.result, second.fill)
            one, other = first.region, second.region
            addresses = first.origin or second.origin
            if alike and not addresses and one.extent[-2:] == other.extent[-2:] and one.access is other.access:
                return Choice(step, first, second, bound)
    return None
