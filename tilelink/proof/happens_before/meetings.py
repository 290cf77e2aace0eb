"""Sends and receives of a library, as words: two ranks come to each call, and neither leaves before the other one has come.

A rank that comes to a call raises a word at the rank to which it sends, and one at the rank from which it receives. It waits for
the word of its sender, and so knows what that one did before: its data come behind that. For its receiver it waits as well, since
a library may wait, but learns nothing: small messages leave before they are received.

The k-th message of a rank to another one is the k-th that this one receives from it, on each communicator. Words are those of
positions, so that ranks which send and receive at different positions wait for ever here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.proof.happens_before.refuted import Refuted, Wrong
from tilelink.proof.happens_before.rows import Block, Come
from tilelink.schedule.index import Index, call, rank
from tilelink.schedule.memory import Signal
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Phase, Role, Schedule, Who
from tilelink.schedule.steps import SEND_RECEIVE, Call, Step, Wait
from tilelink.schedule.walk import steps_in

_TILE = Index("tile")


def meets(step: Step) -> bool:
    return isinstance(step, Call) and step.function == SEND_RECEIVE


def with_meetings(schedule: Schedule) -> Schedule:
    """`schedule` with words for its sends and receives. It has numbers for its dims. Raises Refuted where they stand in loops, or
    more than one of them in a position, or several programs share the positions."""
    words, launches = list[Signal](), []
    for number, launch in enumerate(schedule.launches):
        roles = []
        for role in launch.roles:
            phases = []
            for at, phase in enumerate(role.phases):
                if any(meets(step) for step in steps_in(phase.body)):
                    name = f"{role.name}_{number}_{at}"
                    phase = _met(role, phase, name)
                    words += (Signal(f"{name}_{what}", (schedule.num_ranks, phase.count)) for what in _WORDS)
                phases.append(phase)
            roles.append(replace(role, phases=tuple(phases)))
        launches.append(replace(launch, roles=tuple(roles)))
    if not words:
        return schedule
    return replace(schedule, launches=tuple(launches), signals=(*schedule.signals, *words))


_WORDS = ("sends", "receives")


def _met(role: Role, phase: Phase, name: str) -> Phase:
    once = sum(map(meets, steps_in(phase.body))) == 1 and any(map(meets, phase.body))
    if not once or phase.first != 0 or phase.every or phase.who is not Who.EACH or role.programs != 1:
        raise Refuted(
            Wrong.MALFORMED, detail=f"{role.name} sends and receives: once in each position from 0 on, by one program"
        )
    if not isinstance(phase.count, int):
        raise Refuted(Wrong.MALFORMED, detail=f"nothing says how often {role.name} sends and receives")
    body = tuple(one for step in phase.body for one in (_words_of(step, name) if meets(step) else (step,)))
    return replace(phase, body=body)


def _words_of(step: Step, name: str) -> Iterator[Step]:
    assert isinstance(step, Call), "it meets"
    if len(step.numbers) != 2 or len(step.operands) != 1 or len(step.results) != 1:
        raise Refuted(
            Wrong.MALFORMED, detail=f"{in_a_line(step)}: one region goes to a rank, and one comes from a rank"
        )
    (to, source), (sends, receives) = step.numbers, (f"{name}_{what}" for what in _WORDS)
    yield Come(sends, (rank, _TILE), to, call)
    yield Come(receives, (rank, _TILE), source, call)
    yield Block(receives, (to, _TILE), call)
    yield Wait(sends, (source, _TILE), call)
    yield step
