"""Bugs that are planted into the steps of a schedule."""

from __future__ import annotations

from collections.abc import Callable

from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.verify import verify
from tilelink.schedule.instance import instantiated
from tilelink.schedule.steps import Step
from tilelink.schedule.walk import mapped, with_bodies

Change = Callable[[Step], tuple[Step, ...]]


def refuted(schedule: Planned, change: Change) -> bool:
    """Whether the proof refutes the schedule with changed steps. At least one has to change."""
    steps = instantiated(elaborated(schedule))
    found = with_bodies(steps, lambda body: mapped(body, change))
    assert found != steps, "nothing has changed"
    return not verify(schedule, found).proved
