"""Notifies that a phase defers: those of a tile come in front of what is stored of the next one.

for tile: y = ...; store y; notify          for tile: y = ...; notify of the tile before; store y
                                            notify of the last tile

The passes that order accesses see the steps of a round where they are printed.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.schedule.index import Number, names_in
from tilelink.schedule.roles import Phase, Prefetch, Role, Schedule
from tilelink.schedule.steps import For, If, Let, Notify, Step, Store, Sync
from tilelink.schedule.walk import indices, notifies, steps_in, with_phases, written

Body = tuple[Step, ...]


def defers(phase: Phase) -> bool:
    return isinstance(phase.pipelining, Prefetch) and phase.pipelining.defer


def deferred(schedule: Schedule) -> Schedule:
    """`schedule`, in which deferred notifies stand where they are carried out, for the tile before."""
    return _moved(schedule, in_front=True)


def undeferred(schedule: Schedule) -> Schedule:
    """`deferred` taken back: each notify is of its own tile, which ends with it."""
    return _moved(schedule, in_front=False)


def _moved(schedule: Schedule, in_front: bool) -> Schedule:
    def moved(_: Role, phase: Phase) -> Phase:
        if not defers(phase):
            return phase
        before, late, behind = split(phase.body)
        body = (*before, *late, *behind) if in_front else (*before, *behind, *late)
        return replace(phase, body=body)

    return with_phases(schedule, moved)


def split(body: Body) -> tuple[Body, Body, Body]:
    """What is done in front of deferred notifies, these, and what stores: from the first store on."""
    late = late_steps(body)
    rest = [step for number, step in enumerate(body) if number not in late]
    first = next((number for number, step in enumerate(rest) if _stores(step)), len(rest))
    return tuple(rest[:first]), tuple(body[number] for number in late), tuple(rest[first:])


def late_steps(body: Body) -> list[int]:
    """Places of the steps that only notify, and of each Sync right in front of one."""
    found = [number for number, step in enumerate(body) if _notifies(step)]
    for number in range(len(body) - 1, -1, -1):
        if isinstance(body[number], Sync) and number + 1 in found:
            found.append(number)
    return sorted(found)


def _notifies(step: Step) -> bool:
    """Whether a step, or every one in its bodies, notifies."""
    leaves = [one for one in steps_in((step,)) if not isinstance(one, For | If)]
    return bool(leaves) and all(isinstance(one, Notify) for one in leaves)


def _stores(step: Step) -> bool:
    return any(isinstance(one, Store) or written(one) for one in steps_in((step,)))


def adds(late: Body) -> bool:
    """Whether all that is late adds to words, so that it may add nothing instead of being left out."""
    raised = [notify for step in steps_in(late) for notify in notifies(step)]
    return all(one.to is None and one.last_of == 1 for one in raised)


def needed(let: Let, late: Body) -> Let:
    """Those of the names that `late` needs."""
    used = frozenset[str]().union(*(names_in(index) for step in steps_in(late) for index in indices(step)))
    kept = list[tuple[str, Number]]()
    for name, index in reversed(let):
        if name in used:
            kept.insert(0, (name, index))
            used |= names_in(index)
    return tuple(kept)
