"""Loops over ranks of which one vector operation does all rounds."""

from __future__ import annotations

from dataclasses import dataclass

from lowering.steps.order import terms_of
from tilelink.schedule.index import Index, Number, names_in, rank, replaced
from tilelink.schedule.steps import For, Wait


@dataclass(frozen=True, slots=True)
class OfRanks:
    """A wait for word `index` of each rank, which stands at dimension `dim`: of all ranks, or of all peers."""

    wait: Wait
    dim: int
    peers: bool


def waits_of_ranks(step: For, ranks: int) -> OfRanks | None:
    """The only step of a loop, where it waits for a word of each rank or peer; None for any other loop.

    for step < 3: segment = (rank + 1 + step) % 4: wait arrived[segment, chunk] >= call
    """
    if len(step.body) != 1 or not isinstance(step.body[0], Wait):
        return None
    let: dict[str, Number] = {}
    for name, index in step.let:
        let[name] = replaced(index, let)
    wait = step.body[0]
    places = tuple(replaced(index, let) for index in wait.index)
    bound = {step.variable, *let}
    moving = [dim for dim, index in enumerate(places) if step.variable in names_in(index)]
    if len(moving) != 1 or names_in(wait.until) & bound:
        return None
    first = first_of_ranks(places[moving[0]], step.variable, ranks)
    if first is None or step.count not in (ranks, ranks - 1) or (step.count == ranks - 1 and first % ranks != 1):
        return None
    return OfRanks(Wait(wait.signal, places, wait.until, wait.covers), moving[0], step.count == ranks - 1)


def first_of_ranks(index: Number, variable: str, ranks: int) -> int | None:
    """`first`, if `index` is `(rank + first + variable) % ranks`; else None."""
    if not isinstance(index, Index) or index.op != "%" or index.args[1] != ranks:
        return None
    terms = terms_of(index.args[0])
    first = terms.pop(1, 0)
    return first if terms == {rank: 1, Index(variable): 1} else None
