"""Mutators of bounded exchanges: what producers and consumers wait for and raise, how many slots there are, and who gets
the items."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import SlotNotify, SlotWait
from tilelink.mutation.sites import Edits, Operator, sites, variants


def drop_slot_wait(schedule: Schedule) -> Edits:
    for site in sites(schedule, SlotWait):
        yield site.label, site.drop()


def drop_slot_notify(schedule: Schedule) -> Edits:
    for site in sites(schedule, SlotNotify):
        yield site.label, site.drop()


def duplicate_slot_notify(schedule: Schedule) -> Edits:
    for site in sites(schedule, SlotNotify):
        yield site.label, site.put_all(site.node, site.node)


def delay_slot_wait(schedule: Schedule) -> Edits:
    """A wait for a slot behind the load that it stands before."""
    for site in sites(schedule, SlotWait):
        if site.follower is not None:
            yield site.label, site.swap_with_next()


def awaited_use(schedule: Schedule) -> Edits:
    return variants(schedule, SlotWait, lambda site: (replace(site.node, plus=site.node.plus + n) for n in (-1, 1)))


def raised_use(schedule: Schedule) -> Edits:
    return variants(schedule, SlotNotify, lambda site: (replace(site.node, plus=site.node.plus + n) for n in (-1, 1)))


def slot_wait_for_another_signal(schedule: Schedule) -> Edits:
    names = [signal.name for signal in schedule.signals]
    return variants(schedule, SlotWait, lambda site: (replace(site.node, signal=name) for name in names))


def slot_notify_of_another_signal(schedule: Schedule) -> Edits:
    names = [signal.name for signal in schedule.signals]
    return variants(schedule, SlotNotify, lambda site: (replace(site.node, signal=name) for name in names))


def number_of_slots(schedule: Schedule) -> Edits:
    """Slots without the words and the room for them."""

    def change(exchange: Exchange) -> list[Exchange]:
        more = [n for n in (0, exchange.slots - 1, exchange.slots + 1) if n >= 0]
        return [replace(exchange, slots=n) for n in more] if exchange.slots else []

    return variants(schedule, Exchange, lambda site: change(site.node))


def another_receiver(schedule: Schedule) -> Edits:
    return variants(
        schedule,
        Exchange,
        lambda site: (replace(site.node, by=site.node.by + n) for n in (-1, 1) if site.node.slots),
    )


OPERATORS: tuple[Operator, ...] = (
    drop_slot_wait,
    drop_slot_notify,
    duplicate_slot_notify,
    delay_slot_wait,
    awaited_use,
    raised_use,
    slot_wait_for_another_signal,
    slot_notify_of_another_signal,
    number_of_slots,
    another_receiver,
)
