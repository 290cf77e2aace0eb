"""Going through a schedule: its phases, its steps, and the regions and indices in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilelink.schedule.index import Index, Number
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Launch, Phase, Role, Schedule
from tilelink.schedule.steps import Call, Compute, For, If, Load, Move, Notify, Step, Store, Wait


def phases(schedule: Schedule) -> Iterator[tuple[Launch, Role, Phase]]:
    for launch in schedule.launches:
        for role in launch.roles:
            for phase in role.phases:
                yield launch, role, phase


def all_steps(schedule: Schedule) -> Iterator[Step]:
    """Every step, those inside of loops and branches too, as they are written."""
    for _, _, phase in phases(schedule):
        yield from steps_in(phase.body)


def multicasts(schedule: Schedule) -> bool:
    """Whether it stores at all ranks at once."""
    return any(isinstance(step, For) and step.multicast for step in all_steps(schedule))


def steps_in(body: tuple[Step, ...]) -> Iterator[Step]:
    for step in body:
        yield step
        for inner in bodies(step):
            yield from steps_in(inner)


def bodies(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The bodies of a loop or a branch."""
    match step:
        case For():
            return (step.body,)
        case If():
            return (step.body, step.others)
    return ()


def mapped(body: tuple[Step, ...], change: Callable[[Step], tuple[Step, ...]]) -> tuple[Step, ...]:
    """`body` with every step replaced by what `change` gives for it; inner bodies first."""
    out: list[Step] = []
    for step in body:
        match step:
            case For():
                step = replace(step, body=mapped(step.body, change))
            case If():
                step = replace(step, body=mapped(step.body, change), others=mapped(step.others, change))
        out += change(step)
    return tuple(out)


def with_roles(schedule: Schedule, change: Callable[[Launch, Role], Role]) -> Schedule:
    """`schedule` with every role replaced."""

    def changed(launch: Launch) -> Launch:
        return replace(launch, roles=tuple(change(launch, role) for role in launch.roles))

    return replace(schedule, launches=tuple(map(changed, schedule.launches)))


def with_phases(schedule: Schedule, change: Callable[[Role, Phase], Phase]) -> Schedule:
    """`schedule` with every phase replaced."""

    def changed(_: Launch, role: Role) -> Role:
        return replace(role, phases=tuple(change(role, phase) for phase in role.phases))

    return with_roles(schedule, changed)


def with_bodies(schedule: Schedule, change: Callable[[tuple[Step, ...]], tuple[Step, ...]]) -> Schedule:
    """`schedule` with the body of every phase replaced."""
    return with_phases(schedule, lambda _, phase: replace(phase, body=change(phase.body)))


def read(step: Step) -> tuple[Region, ...]:
    match step:
        case Load():
            return (step.region,)
        case Move():
            return step.source
        case Call():
            return step.operands
    return ()


def written(step: Step) -> tuple[Region, ...]:
    match step:
        case Store():
            return (step.region,)
        case Move():
            return step.target
        case Call():
            return step.results
    return ()


def notifies(step: Step) -> tuple[Notify, ...]:
    match step:
        case Notify():
            return (step,)
        case Move(notify=Notify() as notify):
            return (notify,)
    return ()


def indices(step: Step) -> tuple[Number, ...]:
    """Indices that stand in the step itself, not in its bodies."""
    found: list[Number] = []
    for region in (*read(step), *written(step)):
        found += [*region.start, *region.extent, region.at]
    for notify in notifies(step):
        found += [*notify.index, notify.at, notify.last_of, *(() if notify.to is None else (notify.to,))]
    match step:
        case Load():
            found += step.origin
        case Store():
            found.append(step.skip)
        case Call():
            found += step.numbers
        case Compute():
            found += [one for one in step.operands if isinstance(one, Index)]
        case Wait():
            found += [*step.index, step.until]
        case For():
            found += [step.count, *(index for _, index in step.let)]
        case If():
            found += [step.left, step.right]
    return tuple(found)


def synchronises(body: tuple[Step, ...], by_data: frozenset[str] = frozenset()) -> bool:
    """Whether a step waits or raises, or accesses one of the buffers `by_data`, whose data say that they have arrived."""
    for step in steps_in(body):
        if isinstance(step, Wait) or notifies(step):
            return True
        if any(region.buffer in by_data for region in (*read(step), *written(step))):
            return True
    return False
