"""Mutators of steps: what a tile waits for, stores, notifies and computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Place,
    Step,
    Store,
    SumParts,
    SumWords,
    UserBody,
    Wait,
)
from tilelink.ir.word import Protocol
from tilelink.mutation.sites import Edits, Operator, Site, sites, variants

_BODIES: tuple[type[MatmulBody | UserBody | SumParts | SumWords | Load | Apply], ...] = (
    MatmulBody,
    UserBody,
    SumParts,
    SumWords,
    Load,
    Apply,
)
_WAITS: tuple[type[Wait | AwaitPlaces], ...] = (Wait, AwaitPlaces)


def drop_wait(schedule: Schedule) -> Edits:
    for kind in _WAITS:
        for site in sites(schedule, kind):
            yield site.label, site.drop()


def duplicate_wait(schedule: Schedule) -> Edits:
    for kind in _WAITS:
        for site in sites(schedule, kind):
            if isinstance(site.path[-1], int):
                yield site.label, site.put_all(site.node, site.node)


def delay_wait(schedule: Schedule) -> Edits:
    """A wait behind the step that it stands before."""
    for kind in _WAITS:
        for site in sites(schedule, kind):
            if site.follower is not None:
                yield site.label, site.swap_with_next()


def wait_for_another_signal(schedule: Schedule) -> Edits:
    names = [signal.name for signal in schedule.signals]
    for kind in _WAITS:
        yield from variants(schedule, kind, lambda site: (replace(site.node, signal=name) for name in names))


def wait_of_another_exchange(schedule: Schedule) -> Edits:
    names = [exchange.name for exchange in schedule.exchanges]
    return variants(schedule, Wait, lambda site: (replace(site.node, exchange=name) for name in names))


def wait_along_another_slot_axis(schedule: Schedule) -> Edits:
    return variants(schedule, Wait, lambda site: (replace(site.node, slot=axis) for axis in _axes(site)))


def wait_along_other_rows(schedule: Schedule) -> Edits:
    return variants(schedule, Wait, lambda site: (replace(site.node, rows=axis) for axis in ("", *_axes(site))))


def wait_for_every_part_or_one(schedule: Schedule) -> Edits:
    return variants(schedule, Wait, lambda site: [replace(site.node, every=not site.node.every)])


def wait_target(schedule: Schedule) -> Edits:
    """One arrival more or less; a count awaited as an epoch and the other way round."""

    def change(site: Site[Wait]) -> Iterator[Wait]:
        target = site.node.target
        for other in (target - 1, target + 1, 0):
            if other >= 0:
                yield replace(site.node, target=other)

    return variants(schedule, Wait, change)


def wait_fence(schedule: Schedule) -> Edits:
    return variants(schedule, Wait, lambda site: [replace(site.node, fence=not site.node.fence)])


def wait_for_the_own_part(schedule: Schedule) -> Edits:
    """As for those of peers, or not where programs of this launch make it."""
    return variants(schedule, Wait, lambda site: [replace(site.node, own=not site.node.own)])


def drop_notify(schedule: Schedule) -> Edits:
    for site in sites(schedule, Notify):
        yield site.label, site.drop()


def duplicate_notify(schedule: Schedule) -> Edits:
    for site in sites(schedule, Notify):
        yield site.label, site.put_all(site.node, site.node)


def early_notify(schedule: Schedule) -> Edits:
    """A notify before the step that it stands behind: normally before the store that it publishes."""
    for step in (Wait, MatmulBody, UserBody, SumParts, SumWords, Load, Apply, Store, Notify, IfOwn):
        for site in sites(schedule, step):
            if isinstance(site.follower, Notify):
                yield f"{site.label} <-> Notify {site.follower.count}", site.swap_with_next()


def notify_another_count(schedule: Schedule) -> Edits:
    names = [signal.name for signal in schedule.signals]
    return variants(schedule, Notify, lambda site: (replace(site.node, count=name) for name in names))


def notify_of_another_exchange(schedule: Schedule) -> Edits:
    names = [exchange.name for exchange in schedule.exchanges]
    return variants(schedule, Notify, lambda site: (replace(site.node, exchange=name) for name in names))


def notify_along_another_slot_axis(schedule: Schedule) -> Edits:
    return variants(schedule, Notify, lambda site: (replace(site.node, slot=axis) for axis in ("", *_axes(site))))


def notify_along_other_rows(schedule: Schedule) -> Edits:
    return variants(schedule, Notify, lambda site: (replace(site.node, rows=axis) for axis in _axes(site)))


def notify_then_another_signal(schedule: Schedule) -> Edits:
    names = ["", *(signal.name for signal in schedule.signals)]
    return variants(schedule, Notify, lambda site: (replace(site.node, then=name) for name in names))


def notify_place(schedule: Schedule) -> Edits:
    return variants(schedule, Notify, lambda site: (replace(site.node, place=place) for place in Place))


def drop_store(schedule: Schedule) -> Edits:
    for site in sites(schedule, Store):
        yield site.label, site.drop()


def duplicate_store(schedule: Schedule) -> Edits:
    for site in sites(schedule, Store):
        yield site.label, site.put_all(site.node, site.node)


def store_place(schedule: Schedule) -> Edits:
    return variants(schedule, Store, lambda site: (replace(site.node, place=place) for place in Place))


def store_another_value(schedule: Schedule) -> Edits:
    """The value of another step of the role."""

    def change(site: Site[Store]) -> Iterator[Store]:
        if site.role is not None:
            for name in _results(site.role.body):
                yield replace(site.node, value=name)

    return variants(schedule, Store, change)


def drop_step(schedule: Schedule) -> Edits:
    """A step that computes a value."""
    for kind in _BODIES:
        for site in sites(schedule, kind):
            yield site.label, site.drop()


def duplicate_step(schedule: Schedule) -> Edits:
    for kind in _BODIES:
        for site in sites(schedule, kind):
            yield site.label, site.put_all(site.node, site.node)


def swap_steps(schedule: Schedule) -> Edits:
    """Two neighbours, neither of them a wait before nor a notify behind."""
    for kind in (*_BODIES, Store, Notify, IfOwn):
        for site in sites(schedule, kind):
            if site.follower is not None and not isinstance(site.follower, Notify):
                yield f"{site.label} <-> {type(site.follower).__name__}", site.swap_with_next()


def swap_own_and_others(schedule: Schedule) -> Edits:
    for site in sites(schedule, IfOwn):
        yield site.label, site.put(replace(site.node, own=site.node.others, others=site.node.own))


def always_or_never_own(schedule: Schedule) -> Edits:
    """One branch for all tiles, or for none."""
    for site in sites(schedule, IfOwn):
        yield f"{site.label}: own always", site.put_all(*site.node.own)
        yield f"{site.label}: own never", site.put_all(*site.node.others)
        yield f"{site.label}: own only", site.put(replace(site.node, others=()))
        yield f"{site.label}: others only", site.put(replace(site.node, own=()))


def own_axis(schedule: Schedule) -> Edits:
    return variants(schedule, IfOwn, lambda site: (replace(site.node, axis=axis) for axis in _axes(site)))


def sum_onto_nothing_or_own(schedule: Schedule) -> Edits:
    """The own summand twice, or not at all."""

    def change(site: Site[SumParts]) -> Iterator[SumParts]:
        yield replace(site.node, onto="")
        for name in _results(site.role.body if site.role else ()):
            if name != site.node.result:
                yield replace(site.node, onto=name)

    return variants(schedule, SumParts, change)


def words_of_another_value_or_share(schedule: Schedule) -> Edits:
    """Words of another value of the role, to every rank instead of one, by another axis, or of another protocol."""

    def change(site: Site[SumWords]) -> Iterator[SumWords]:
        for name in _results(site.role.body if site.role else ()):
            yield replace(site.node, value=name)
        for cut in ("", *_axes(site)):
            yield replace(site.node, cut=cut)
        yield replace(site.node, index=site.node.index[::-1])
        for protocol in set(Protocol) - {site.node.protocol}:
            yield replace(site.node, protocol=protocol)
        yield replace(site.node, shots=3 - site.node.shots)

    return variants(schedule, SumWords, change)


def store_of_another_share(schedule: Schedule) -> Edits:
    """All of a tile where the buffer has a share of it, or a share of what it has all of."""

    def change(site: Site[Store]) -> Iterator[Store]:
        for cut in ("", *site.node.operand.index):
            yield replace(site.node, operand=replace(site.node.operand, cut=cut))
        for shares in (1, schedule.num_ranks, 2 * schedule.num_ranks):
            if site.node.operand.cut:
                yield replace(site.node, operand=replace(site.node.operand, own_slots=shares))

    return variants(schedule, Store, change)


def another_function(schedule: Schedule) -> Edits:
    """One of as many operands. A copy stays one."""

    def change(site: Site[Apply]) -> Iterator[Apply]:
        if (function := FUNCTIONS.get(site.node.function)) is not None:
            alike = [name for name, other in FUNCTIONS.items() if other.num_operands == function.num_operands]
            yield replace(site.node, function=alike[alike.index(site.node.function) - 1])

    return variants(schedule, Apply, change)


def another_constant(schedule: Schedule) -> Edits:
    """Another number, or the number on the other side."""

    def change(site: Site[Apply]) -> Iterator[Apply]:
        left, right = site.node.left, site.node.right
        if (left, right) != (None, None):
            yield replace(site.node, left=right, right=left)
            yield replace(site.node, left=left and 2 * left, right=right and 2 * right)

    return variants(schedule, Apply, change)


def matmul_over_another_axis(schedule: Schedule) -> Edits:
    return variants(schedule, MatmulBody, lambda site: (replace(site.node, axis=axis) for axis in _axes(site)))


def _axes(site: Site[Wait] | Site[Notify] | Site[IfOwn] | Site[MatmulBody] | Site[SumWords]) -> tuple[str, ...]:
    return tuple(axis.name for axis in site.role.axes) if site.role else ()


def _results(steps: tuple[Step, ...]) -> Iterator[str]:
    for step in steps:
        match step:
            case MatmulBody(result=result) | UserBody(result=result) | SumParts(result=result):
                yield result
            case Load(result=result) | Apply(result=result) | SumWords(result=result):
                yield result
            case IfOwn(own=own, others=others):
                yield from _results((*own, *others))
            case Wait() | Store() | Notify():
                pass


OPERATORS: tuple[Operator, ...] = (
    drop_wait,
    duplicate_wait,
    delay_wait,
    wait_for_another_signal,
    wait_of_another_exchange,
    wait_along_another_slot_axis,
    wait_along_other_rows,
    wait_for_every_part_or_one,
    wait_target,
    wait_fence,
    wait_for_the_own_part,
    drop_notify,
    duplicate_notify,
    early_notify,
    notify_another_count,
    notify_of_another_exchange,
    notify_along_another_slot_axis,
    notify_along_other_rows,
    notify_then_another_signal,
    notify_place,
    drop_store,
    duplicate_store,
    store_place,
    store_another_value,
    drop_step,
    duplicate_step,
    swap_steps,
    swap_own_and_others,
    always_or_never_own,
    own_axis,
    sum_onto_nothing_or_own,
    words_of_another_value_or_share,
    store_of_another_share,
    another_function,
    another_constant,
    matmul_over_another_axis,
)
