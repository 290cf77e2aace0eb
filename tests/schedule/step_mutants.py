"""Mutants of schedules in which a pass has put its steps: the mutation of the product changes what comes before that pass."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Step, Sync
from tilelink.schedule.walk import all_steps, mapped, with_bodies

Body = tuple[Step, ...]


def without_a_sync(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """(which, `schedule` less one Sync), for each of those that a pass has put in."""
    syncs = [step for step in all_steps(schedule) if isinstance(step, Sync)]
    for number, sync in enumerate(syncs):
        seen = iter(range(len(syncs)))

        def change(step: Step, number: int = number, seen: Iterator[int] = seen) -> Body:
            return () if isinstance(step, Sync) and next(seen) == number else (step,)

        yield f"{number}: {sync.order.value}", with_bodies(schedule, lambda body, change=change: mapped(body, change))  # type: ignore[misc]
