"""Who raises a signal and who awaits it, and how often in a call: counted by going through the steps of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilelink.schedule.index import Ints, evaluate
from tilelink.schedule.memory import Signal
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Engine, Launch, Phase, Role, Schedule, Who
from tilelink.schedule.steps import For, If, Let, Move, Notify, Step, Wait
from tilelink.schedule.walk import steps_in

_MOST = 2_000_000  # steps that are gone through

Env = dict[str, "int | Ints"]


@dataclass(frozen=True, slots=True)
class Use:
    """A step that raises or awaits a signal. `count`: how often a rank does that in a call behind the first, over all its
    programs; of the first and the last rank the one that does it more often, as parts may go to later ranks only. None where a
    table of the call decides."""

    signal: str
    raises: bool
    role: str
    stream: str
    engine: Engine
    text: str
    count: int | None


def uses_of(steps: Schedule) -> list[Use]:
    """Of a schedule with numbers for its dims, in the order of its steps."""
    return [use for launch in steps.launches for role in launch.roles for use in _of_role(steps, launch, role)]


def _of_role(steps: Schedule, launch: Launch, role: Role) -> Iterator[Use]:
    for phase in role.phases:
        for step, count in _counted(steps, role, phase):
            match step:
                case Wait(signal):
                    yield Use(signal, False, role.name, launch.stream, role.engine, in_a_line(step), count)
                case Notify(signal):
                    yield Use(signal, True, role.name, launch.stream, role.engine, in_a_line(step), count)


def _counted(steps: Schedule, role: Role, phase: Phase) -> list[tuple[Wait | Notify, int | None]]:
    if not any(isinstance(step, Wait | Notify | Move) for step in steps_in(phase.body)):
        return []
    try:
        walks = [_walked(role, phase, rank) for rank in dict.fromkeys((0, steps.num_ranks - 1))]
    except (LookupError, ZeroDivisionError, AssertionError):
        return [(step, None) for step in _plain(phase.body)]
    most = {key: max(walk.get(key, found)[1] for walk in walks) for one in walks for key, found in one.items()}
    each = {id(step): step for step in _plain(phase.body)}
    return [(step, most[key]) for key, step in each.items() if key in most]


def _walked(role: Role, phase: Phase, rank: int) -> dict[int, tuple[Wait | Notify, int]]:
    walk = _Walk()
    first, count = (evaluate(one, {"rank": rank, "call": 2}) for one in (phase.first, phase.count))
    if not isinstance(first, int) or not isinstance(count, int) or count > _MOST:
        raise LookupError("positions that a table tells")
    tiles, programs = np.arange(first, first + count), role.programs
    env: Env = {"rank": rank, "call": 2, "tile": tiles, "program": tiles % programs}
    times = programs if phase.every and phase.who is Who.EACH else 1
    walk.go(phase.body, _let(phase.let, env), np.ones(count, bool), times)
    return walk.found


def _plain(body: tuple[Step, ...]) -> Iterator[Wait | Notify]:
    for step in steps_in(body):
        if isinstance(step, Wait | Notify):
            yield step
        if isinstance(step, Move) and step.notify is not None:
            yield step.notify


def _let(let: Let, env: Env) -> Env:
    found = dict(env)
    for name, index in let:
        found[name] = evaluate(index, found)
    return found


class _Walk:
    """Counts of steps, by which step of the text it is; `done`: how many steps were gone through."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Wait | Notify, int]] = {}
        self.done = 0

    def go(
        self, body: tuple[Step, ...], env: Env, where: np.ndarray[tuple[int], np.dtype[np.bool_]], times: int
    ) -> None:
        for step in body:
            match step:
                case Wait():
                    awaits = np.broadcast_to(np.asarray(evaluate(step.until, env)) > 0, where.shape)
                    self._count(step, int((where & awaits).sum()) * times)
                case Notify():
                    self._raise(step, env, int(where.sum()) * times)
                case Move(notify=Notify() as notify):
                    self._raise(notify, env, int(where.sum()) * times)
                case If():
                    holds = np.broadcast_to(self._compared(step, env), where.shape)
                    self.go(step.body, env, where & holds, times)
                    self.go(step.others, env, where & ~holds, times)
                case For() if any(isinstance(one, Wait | Notify | Move) for one in steps_in(step.body)):
                    self._loop(step, env, where, times)

    def _loop(self, step: For, env: Env, where: np.ndarray[tuple[int], np.dtype[np.bool_]], times: int) -> None:
        count = np.asarray(evaluate(step.count, env))
        for number in range(int(count.max(initial=0))):
            self.done += where.size
            if self.done > _MOST:
                raise LookupError("too many steps to go through")
            inner = _let(step.let, {**env, step.variable: number})
            self.go(step.body, inner, where & np.broadcast_to(number < count, where.shape), times)

    @staticmethod
    def _compared(step: If, env: Env) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.asarray(evaluate(step.left, env)) == np.asarray(
            evaluate(step.right, env)
        )
        return found

    def _raise(self, step: Notify, env: Env, count: int) -> None:
        of = evaluate(step.last_of, env)
        each = int(np.asarray(of).max(initial=1))
        self._count(step, count // each)

    def _count(self, step: Wait | Notify, count: int) -> None:
        before = self.found[id(step)][1] if id(step) in self.found else 0
        self.found[id(step)] = step, before + count


def words_of(steps: Schedule, signal: Signal) -> int:
    """Of a signal on each rank."""
    count = 1
    for extent in steps.shapes[signal.name]:
        count *= extent
    return count
