"""Planted mistakes in steps: waits and raises of a word that are for another value, another word, or not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.proved import Proof
from tilelink.proof.verify import verify
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Notify, Step, Wait
from tilelink.schedule.walk import mapped, with_bodies


@dataclass(frozen=True)
class OnSteps:
    """A change of the steps that a planned schedule stands for."""

    change: Callable[[Schedule], Schedule]


Change = Callable[[Planned], Planned] | OnSteps


def proof_of(change: Change, schedule: Planned) -> Proof:
    if isinstance(change, OnSteps):
        return verify(schedule, change.change(instantiated(elaborated(schedule))))
    return verify(change(schedule))


def each_step(change: Callable[[Step], tuple[Step, ...]]) -> OnSteps:
    return OnSteps(lambda schedule: with_bodies(schedule, lambda body: mapped(body, change)))


def waits(signal: str, by: int) -> OnSteps:
    """Waits for the word are for so much more."""
    return each_step(
        lambda step: (
            (replace(step, until=step.until + by),) if isinstance(step, Wait) and step.signal == signal else (step,)
        )
    )


def raises(signal: str, by: int) -> OnSteps:
    """The word is set to so much more."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Notify) and step.signal == signal and step.to is not None:
            return (replace(step, to=step.to + by),)
        return (step,)

    return each_step(change)


def awaits_another(signal: str, other: str) -> OnSteps:
    return each_step(
        lambda step: (replace(step, signal=other),) if isinstance(step, Wait) and step.signal == signal else (step,)
    )


def without(kind: type[Wait] | type[Notify], signal: str) -> OnSteps:
    return each_step(lambda step: () if isinstance(step, kind) and step.signal == signal else (step,))


def words(signal: str, *shape: int) -> OnSteps:
    """The signal has other words."""
    return OnSteps(
        lambda schedule: replace(
            schedule,
            signals=tuple(replace(one, shape=shape) if one.name == signal else one for one in schedule.signals),
        )
    )
