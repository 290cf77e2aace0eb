"""Puts Sync steps where accesses of a program need them, and nowhere else.

    acc -> sums[group]; a = sums[group]          acc -> sums[group]; barrier; a = sums[group]
    wait arrived >= call for x; x by descriptor  wait arrived >= call for x; fence; x by descriptor
    out by descriptor; notify                    out by descriptor; flush; notify

`order.missing` says what a Sync is needed for. A Sync is offered in front of every step, at the end of every phase, and a
fence behind every wait; those without which nothing is missing are taken away again, inner ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lowering.steps.errors import LastNotAtEnd, OverlappingMove
from lowering.steps.order import Path, disjoint, missing
from tilelink.schedule.printing import region_text
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Who
from tilelink.schedule.steps import For, If, Move, Order, Step, Sync, Wait
from tilelink.schedule.walk import read, steps_in, with_roles, written


@dataclass(frozen=True, slots=True)
class Site:
    """In front of the step or phase at `path`, or behind the last one. `behind_wait`: a wait stands in front of it."""

    path: Path
    order: Order
    behind_wait: bool


def synchronised(schedule: Schedule, tokens: frozenset[str] = frozenset()) -> Schedule:
    """`schedule` with a Sync wherever a program on SMs needs one. `tokens`: signals whose waits return what loads take. Raises
    LastNotAtEnd and OverlappingMove."""
    return with_roles(schedule, lambda launch, role: role if role.by_host else ordered(schedule, launch, role, tokens))


def ordered(schedule: Schedule, launch: Launch, role: Role, tokens: frozenset[str] = frozenset()) -> Role:
    """`role` of `launch` with the Sync steps that it needs."""
    _check(role)
    if not missing(schedule, launch, role, tokens):
        return role
    sites = sorted(_sites(role), key=_importance)
    return inserted(
        role, _needed(sites, sites, lambda some: not missing(schedule, launch, inserted(role, some), tokens))
    )


def _needed(kept: list[Site], some: list[Site], enough: Callable[[list[Site]], bool]) -> list[Site]:
    """`kept` without those of `some` that are needless, from the first to the last. What is enough is so with more sites, so
    that neighbours which are needless together are so one after the other."""
    gone = set(map(id, some))
    without = [one for one in kept if id(one) not in gone]
    if enough(without):
        return without
    if len(some) == 1:
        return kept
    half = len(some) // 2
    return _needed(_needed(kept, some[:half], enough), some[half:], enough)


def inserted(role: Role, sites: list[Site]) -> Role:
    """`role` with a Sync at each of the sites: flush before barrier before fence. In front of a phase, each program does it."""
    at: dict[Path, list[Order]] = {}
    for site in sites:
        at.setdefault(site.path, []).append(site.order)
    phases: list[Phase] = []
    for number, phase in enumerate((*role.phases, None)):
        syncs = tuple(_syncs(at, (number,)))
        phases += [Phase(1, syncs, every=True, title="before the program that ends last")] if syncs else []
        phases += [replace(phase, body=_inserted(phase.body, (number,), at))] if phase else []
    return replace(role, phases=tuple(phases))


def _inserted(body: tuple[Step, ...], path: Path, at: dict[Path, list[Order]]) -> tuple[Step, ...]:
    out: list[Step] = []
    for number, step in enumerate(body):
        out += _syncs(at, (*path, number))
        match step:
            case For():
                step = replace(step, body=_inserted(step.body, (*path, number), at))
            case If():
                others = _inserted(step.others, (*path, number, 1), at)
                step = replace(step, body=_inserted(step.body, (*path, number, 0), at), others=others)
        out.append(step)
    return (*out, *_syncs(at, (*path, len(body))))


def _syncs(at: dict[Path, list[Order]], path: Path) -> list[Step]:
    orders = at.get(path, [])
    return [Sync(order) for order in (Order.FLUSH, Order.BARRIER, Order.FENCE) if order in orders]


def _sites(role: Role) -> Iterator[Site]:
    """Places where a Sync could help, whatever it is needed for."""
    steps = [step for phase in role.phases for step in steps_in(phase.body)]
    regions = [region for step in steps for region in (*read(step), *written(step))]
    described = any(region.access.whole for region in regions)
    orders = (Order.FLUSH, Order.BARRIER, Order.FENCE) if described else (Order.BARRIER,)
    places: list[tuple[Path, bool]] = []
    for number, phase in enumerate(role.phases):
        places += (
            [((number,), False)] if phase.who is not Who.LAST or role.phases[number - 1].who is not Who.LAST else []
        )
        places += _places(phase.body, (number,))
    if role.phases and role.phases[-1].who is not Who.LAST:
        places.append(((len(role.phases),), False))
    for path, behind_wait in places:
        for order in orders:
            yield Site(path, order, behind_wait)


def _places(body: tuple[Step, ...], path: Path) -> Iterator[tuple[Path, bool]]:
    for number, step in enumerate((*body, None)):
        yield (*path, number), number > 0 and isinstance(body[number - 1], Wait)
        match step:
            case For():
                yield from _places(step.body, (*path, number))
            case If():
                yield from _places(step.body, (*path, number, 0))
                yield from _places(step.others, (*path, number, 1))


def _importance(site: Site) -> tuple[bool, int, Path]:
    """Those that should rather go come first: fences away from waits, what stands in inner loops, what stands early."""
    return site.order is Order.FENCE and site.behind_wait, -len(site.path), site.path


def _check(role: Role) -> None:
    """Raises LastNotAtEnd and OverlappingMove: no Sync helps there."""
    last = [phase.who is Who.LAST for phase in role.phases]
    if sorted(last) != last:
        raise LastNotAtEnd(role=role.name, who=Who.LAST.value)
    for phase in role.phases:
        for step in steps_in(phase.body):
            if isinstance(step, Move):
                _check_move(role, step)


def _check_move(role: Role, step: Move) -> None:
    for source in step.source:
        for target in step.target:
            same_place = source == replace(target, at=source.at)  # of this rank it is copied onto itself
            if source.buffer == target.buffer and not same_place and not disjoint(source, target):
                raise OverlappingMove(role=role.name, source=region_text(source), target=region_text(target))
