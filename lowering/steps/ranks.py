"""Loops over ranks of which one vector operation does all rounds.

    for step < 3: segment = (rank + 1 + step) % 4: wait arrived[segment, c] >= call      one atomic for all words, again and again
    for step < 4: peer = (rank + step) % 4: last of 8: notify ready[rank]@peer = call    one count, one release for all ranks
    for step < 4: peer = ...: (store a -> places[rank]@peer; notify told[rank]@peer)     all stores, then the same
    for step < 4: peer = ...: store a -> b[rows[m + lane] - peer * 8 : +n]@peer          one store: of each row to its rank

Separate releases would wait for each other. Notifies come later than the loop has them, which holds up nobody: no wait is behind
them in the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, Number, less, names_in, rank, replaced, terms_of
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import For, If, Notify, Step, Store, Wait
from tilelink.schedule.walk import all_steps, notifies, synchronises


@dataclass(frozen=True, slots=True)
class Waits:
    """A wait for word `index` of each rank, which stands at dimension `dim`: of all ranks, or of all peers."""

    wait: Wait
    dim: int
    peers: bool


@dataclass(frozen=True, slots=True)
class Notifies:
    """A notify at all ranks, or at all peers, behind what the loop does `before`."""

    before: For | None
    notify: Notify
    peers: bool


def waits_of_ranks(step: For, ranks: int) -> Waits | None:
    """The only step of a loop, where it waits for a word of each rank or peer; None for any other loop."""
    let, bound = resolved(step), _bound(step)
    wait, but_own = _only_wait(step.body, let)
    if wait is None:
        return None
    places = tuple(replaced(index, let) for index in wait.index)
    moving = [dim for dim, index in enumerate(places) if step.variable in names_in(index)]
    if len(moving) != 1 or names_in(wait.until) & bound:
        return None
    peers = _peers(step, places[moving[0]], ranks)
    if but_own is not None:  # goes through all ranks, and leaves out the own one
        peers = True if peers is False and but_own == places[moving[0]] else None
    return None if peers is None else Waits(replace(wait, index=places), moving[0], peers)


def _only_wait(body: tuple[Step, ...], let: dict[str, Number]) -> tuple[Wait | None, Number | None]:
    """The wait that a body is, and which rank has none where that is the own one."""
    match body:
        case (Wait() as wait,):
            return wait, None
        case (If(left, right, (), (Wait() as wait,)),) if right == rank:
            return wait, replaced(left, let)
    return None, None


def notifies_of_ranks(step: For, schedule: Schedule) -> Notifies | None:
    """The last step of a loop, where it raises the same word of each rank or peer; None for any other loop.

    Who comes last of some comes last for all ranks, where they raise that word in such loops only.
    """
    before, last = step.body[:-1], step.body[-1] if step.body else None
    if not isinstance(last, Notify) or synchronises(before):
        return None
    peers = _peers(step, replaced(last.at, resolved(step)), schedule.num_ranks)
    one = replace(last, at=rank)
    used = frozenset[str]().union(*map(names_in, (*last.index, last.last_of, last.to or 0)))
    if peers is None or used & _bound(step) or (last.last_of != 1 and not _only_so(last.signal, schedule)):
        return None
    return Notifies(replace(step, body=before) if before else None, one, peers)


def store_at_ranks_of_rows(step: For, schedule: Schedule) -> Store | None:
    """The only step of a loop through all ranks, where it stores at each those rows that lie in its buffer: the same store, with
    rows as they are counted through all ranks. None for any other loop."""
    match step.body:
        case (Store(region=Region(start=(first, *others), extent=extent, at=at) as region) as store,):
            (row, before), buffer = less(first), region.buffer
            bound, rows = _bound(step), schedule.shapes[buffer][0]
            plain = all(
                one.places is None and one.protocol is Protocol.SIMPLE for one in schedule.buffers if one.name == buffer
            )
            moves = any(names_in(index) & bound for index in (row, *others, *extent))
            if plain and not moves and before == at * rows and through_all(step, at, schedule.num_ranks):
                return replace(store, region=replace(region, start=(row, *others)))
    return None


def _only_so(signal: str, schedule: Schedule) -> bool:
    """Whether all who raise a word of `signal` do it at all ranks, and count to the same number."""
    raised = [one for step in all_steps(schedule) for one in notifies(step) if one.signal == signal]
    loops = [
        step
        for step in all_steps(schedule)
        if isinstance(step, For) and step.body and isinstance(step.body[-1], Notify)
    ]
    whole = [step for step in loops if step.count == schedule.num_ranks and step.body[-1] in raised]
    at_all = [step for step in whole if _peers(step, _at(step), schedule.num_ranks) is not None]
    return len(at_all) == len(raised) and len({one.last_of for one in raised}) == 1


def _at(step: For) -> Number:
    last = step.body[-1]
    assert isinstance(last, Notify)
    return replaced(last.at, resolved(step))


def resolved(step: For) -> dict[str, Number]:
    """What the names of a loop stand for, in its variable and names around it."""
    let: dict[str, Number] = {}
    for name, index in step.let:
        let[name] = replaced(index, let)
    return let


def _bound(step: For) -> set[str]:
    return {step.variable, *(name for name, _ in step.let)}


def through_all(step: For, index: Number, ranks: int) -> bool:
    """Whether `index` is every rank once in the rounds of a loop."""
    return _peers(step, replaced(index, resolved(step)), ranks) is False


def _peers(step: For, index: Number, ranks: int) -> bool | None:
    """Whether `index` goes through all peers, or all ranks; None if it is something else."""
    first = first_of_ranks(index, step.variable, ranks)
    if first is None or step.count not in (ranks, ranks - 1):
        return None
    if step.count == ranks:
        return False
    return True if first % ranks == 1 else None


def first_of_ranks(index: Number, variable: str, ranks: int) -> int | None:
    """`first`, if `index` is `(rank + first + variable) % ranks`; else None."""
    if not isinstance(index, Index) or index.op != "%" or index.args[1] != ranks:
        return None
    terms = terms_of(index.args[0])
    first = terms.pop(1, 0)
    return first if terms == {rank: 1, Index(variable): 1} else None
