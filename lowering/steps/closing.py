"""The end of a call: what programs do last, and whether they wait for what streams do last."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.schedule.index import Number, evaluate, rank
from tilelink.schedule.roles import Launch, Phase, Role, Who
from tilelink.schedule.steps import For, Notify, Step, Wait

MAIN = "main"
Word = tuple[str, tuple[int, ...]]  # a signal, and the place in it


def last_phases(launch: Launch) -> Iterator[tuple[Role, Phase]]:
    """What the last program of a launch does, when all others have ended."""
    for role in launch.roles:
        for phase in role.phases:
            if phase.who is Who.LAST and not role.by_host:
                yield role, phase


def stream_ends(closing: Launch, launch: Launch) -> bool:
    """Whether the last program of `closing` waits for the last step of every program of `launch`, which host code issues."""
    awaited = {word for _, phase in last_phases(closing) for word in _awaited(phase.body, {})}
    return all(word is not None and word in awaited for role in launch.roles for word in _last_words(role))


def _awaited(body: tuple[Step, ...], names: dict[str, int]) -> Iterator[Word]:
    """The words that are surely waited for."""
    for step in body:
        if isinstance(step, For) and isinstance(step.count, int) and not step.let:
            for number in range(step.count):
                yield from _awaited(step.body, names | {step.variable: number})
        elif isinstance(step, Wait) and (place := _place(step.index, names)) is not None:
            yield step.signal, place


def _last_words(role: Role) -> Iterator[Word | None]:
    """What each program of a role raises behind all else that it does; None if that is something else."""
    phase = role.phases[-1]
    step = phase.body[-1]
    once = phase.every or role.programs == 1
    for program in range(role.programs):
        if not role.by_host or not isinstance(step, Notify) or step.at != rank or not once or phase.count != 1:
            yield None
            continue
        place = _place(step.index, {"program": program})
        yield None if place is None else (step.signal, place)


def _place(index: tuple[Number, ...], names: dict[str, int]) -> tuple[int, ...] | None:
    try:
        return tuple(int(evaluate(one, names)) for one in index)
    except KeyError:
        return None
