"""Mutants of steps, one change each: what is dropped, weakened or swapped is synchronisation only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilelink.schedule.index import rank
from tilelink.schedule.roles import Phase, Role, Schedule
from tilelink.schedule.steps import For, If, Move, Notify, Step, Sync, Wait
from tilelink.schedule.walk import all_steps, mapped, with_bodies

Body = tuple[Step, ...]
Change = Callable[[Body], Iterator[tuple[str, Body]]]


def mutants(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """(what was done, the mutant): of every wait and notify, and of every phase that only synchronises."""
    for number, launch in enumerate(schedule.launches):
        for place, role in enumerate(launch.roles):
            for what, changed in _of_role(role):
                roles = (*launch.roles[:place], changed, *launch.roles[place + 1 :])
                launches = list(schedule.launches)
                launches[number] = replace(launch, roles=roles)
                yield f"{role.name}: {what}", replace(schedule, launches=tuple(launches))


def _of_role(role: Role) -> Iterator[tuple[str, Role]]:
    for number, phase in enumerate(role.phases):
        for what, body in _of_body(phase.body):
            phases = (*role.phases[:number], replace(phase, body=body), *role.phases[number + 1 :])
            yield what, replace(role, phases=phases)
        if _synchronises_only(phase):
            yield "drop phase", replace(role, phases=(*role.phases[:number], *role.phases[number + 1 :]))


def _synchronises_only(phase: Phase) -> bool:
    return all(isinstance(step, Wait | Notify | For) for step in phase.body)


def _of_body(body: Body) -> Iterator[tuple[str, Body]]:
    for number, step in enumerate(body):
        before, behind = body[:number], body[number + 1 :]
        for what, steps in _of_step(step):
            yield what, (*before, *steps, *behind)
        if isinstance(step, Wait | Notify) and behind:
            yield f"{_name(step)} later", (*before, behind[0], step, *behind[1:])
        if isinstance(step, Wait | Notify) and before:
            yield f"{_name(step)} earlier", (*before[:-1], step, before[-1], *behind)
        match step:
            case For():
                for what, inner in _of_body(step.body):
                    yield what, (*before, replace(step, body=inner), *behind)
            case If():
                for what, inner in _of_body(step.body):
                    yield what, (*before, replace(step, body=inner), *behind)
                for what, inner in _of_body(step.others):
                    yield what, (*before, replace(step, others=inner), *behind)


def _of_step(step: Step) -> Iterator[tuple[str, Body]]:
    match step:
        case Wait():
            yield f"drop {_name(step)}", ()
            yield f"{_name(step)} for one less", (replace(step, until=step.until - 1),)
            yield f"{_name(step)} for one more", (replace(step, until=step.until + 1),)
        case Notify():
            yield f"drop {_name(step)}", ()
            for what, changed in _of_notify(step):
                yield what, (changed,)
        case Move(notify=Notify() as notify):
            yield f"drop {_name(notify)}", (replace(step, notify=None),)
            for what, changed in _of_notify(notify):
                yield what, (replace(step, notify=changed),)


def _of_notify(step: Notify) -> Iterator[tuple[str, Notify]]:
    if step.at != rank:
        yield f"{_name(step)} here", replace(step, at=rank)
    if step.to is not None:
        yield f"{_name(step)} to one less", replace(step, to=step.to - 1)
    if step.last_of != 1:
        yield f"{_name(step)} by each", replace(step, last_of=1)


def _name(step: Wait | Notify) -> str:
    return f"{type(step).__name__} {step.signal}".lower()


def without_a_sync(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """(which, `schedule` less one Sync), for each of those that a pass has put in."""
    syncs = [step for step in all_steps(schedule) if isinstance(step, Sync)]
    for number, sync in enumerate(syncs):
        seen = iter(range(len(syncs)))

        def change(step: Step, number: int = number, seen: Iterator[int] = seen) -> Body:
            return () if isinstance(step, Sync) and next(seen) == number else (step,)

        yield f"{number}: {sync.order.value}", with_bodies(schedule, lambda body, change=change: mapped(body, change))  # type: ignore[misc]
