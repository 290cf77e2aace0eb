"""Words as they lie in memory: counted anew in every call, where that can be, so that who waits compares with a number.

    wait done[0] >= (call - 1) * 3        wait done[0] >= 3, which begins as 3; the end of a call takes 3 off
    notify copied[0] = call               notify copied[0] = 1; the end of a call sets it to 0
    wait copied[0] >= call                wait copied[0] >= 1

A stream waits for a number without a kernel, also when a graph replays the call. Words that peers set stay as they are: a rank
does not know when it may set them back.

A word that grows by `b` in each call is awaited at `a + b * call` only. Less would not have arrived, and more would have
arrived too early: the proof of the schedule refuses both. So what a call adds is `b`, and taking it off at the end of the call,
when nobody waits any more, changes no comparison. Words of the own rank have got all of it by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tilelink.schedule.index import Number, names_in, rank
from tilelink.schedule.index import call as CALL
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Move, Notify, Step, Wait
from tilelink.schedule.walk import all_steps, mapped, notifies, with_bodies


@dataclass(frozen=True, slots=True)
class Anew:
    """How the words of a signal begin, and how the end of a call makes them ready for the next one: it takes `per_call` off, or,
    where only the own rank raises them, sets them to 0."""

    first: int
    per_call: int
    own: bool


def relative(schedule: Schedule) -> tuple[Schedule, dict[str, Anew]]:
    """`schedule` with numbers in the place of multiples of the call, and which signals are counted anew."""
    steps = tuple(all_steps(schedule))
    waits = [step for step in steps if isinstance(step, Wait)]
    raised = [one for step in steps for one in notifies(step)]
    found: dict[str, Anew] = {}
    for signal in schedule.signals:
        mine = [one for one in raised if one.signal == signal.name]
        anew = _anew([one.until for one in waits if one.signal == signal.name], mine)
        if anew is not None:
            found[signal.name] = anew

    def step_of(step: Step) -> tuple[Step, ...]:
        if isinstance(step, Wait) and step.signal in found:
            return (replace(step, until=_in_call(step.until, found[step.signal])),)
        if isinstance(step, Notify):
            return (_raised(step, found),)
        if isinstance(step, Move) and step.notify is not None:
            return (replace(step, notify=_raised(step.notify, found)),)
        return (step,)

    return with_bodies(schedule, lambda body: mapped(body, step_of)), found


def _raised(step: Notify, found: dict[str, Anew]) -> Notify:
    return replace(step, to=1) if step.to is not None and step.signal in found else step


def _in_call(until: Number, anew: Anew) -> Number:
    """What is waited for in every call: `until` of the first one, and what the word begins with."""
    parts = affine(until)
    assert parts is not None
    return parts[0] + parts[1] + anew.first


def _anew(awaited: list[Number], raised: list[Notify]) -> Anew | None:
    """None for words that cannot be counted anew."""
    own = all(one.at == rank for one in raised)
    if raised and all(one.to == CALL for one in raised):
        return Anew(0, 0, True) if own and all(one == CALL for one in awaited) else None
    parts = [affine(until) for until in awaited]
    if not parts or any(one.to is not None for one in raised):
        return None
    known = [one for one in parts if one is not None and one[1] != 0]
    if len(known) < len(parts):
        return None
    if own:  # words may differ in what a call adds
        same = all(base == 0 for base, _ in known)
        return Anew(0, 0, True) if same else None
    numbers = [(base, each) for base, each in known if isinstance(base, int) and isinstance(each, int)]
    if len(numbers) < len(known) or len({each for _, each in numbers}) > 1:
        return None
    per_call = numbers[0][1]
    least = min(base + each for base, each in numbers)
    return Anew(0 if least > 0 else -least + per_call, per_call, False)


def affine(index: Number) -> tuple[Number, Number] | None:
    """(a, b) where `index` is `a + b * call`, and neither depends on the call; None where it is not."""
    if isinstance(index, int) or "call" not in names_in(index):
        return index, 0
    if index == CALL:
        return 0, 1
    if index.op not in ("+", "-", "*"):
        return None
    left, right = (affine(one) for one in index.args)
    if left is None or right is None:
        return None
    match index.op:
        case "+":
            return left[0] + right[0], left[1] + right[1]
        case "-":
            return left[0] - right[0], left[1] - right[1]
    if left[1] != 0 and right[1] != 0:
        return None
    return (left[0] * right[0], left[1] * right[0] + left[0] * right[1])


def counted_off(found: Mapping[str, Anew]) -> Iterable[tuple[str, int]]:
    """Signals of which the end of a call takes something off, and how much."""
    return ((name, one.per_call) for name, one in found.items() if not one.own)
