"""Takes branches that are the same in every round out of a loop, so that the compiler can load ahead in it.

    for k: (if segment == rank: a = x[k] else: a = x_full[k]); acc = dot(a, b, acc)
    if segment == rank: (for k: a = x[k]; acc = dot(a, b, acc)) else: (for k: a = x_full[k]; acc = dot(a, b, acc))

Only loops with one such branch are written twice, and only if nothing in them waits: those are not pipelined anyway.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.schedule.index import names_in
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import For, If, Load, Step, Sync
from tilelink.schedule.walk import mapped, steps_in, synchronises, with_bodies


def unswitched(schedule: Schedule) -> Schedule:
    return with_bodies(schedule, lambda body: mapped(body, lambda step: (_unswitched(step),)))


def _unswitched(step: Step) -> Step:
    if (
        not isinstance(step, For)
        or synchronises(step.body)
        or any(isinstance(one, Sync) for one in steps_in(step.body))
    ):
        return step
    places = [place for place, one in enumerate(step.body) if isinstance(one, If) and _is_the_same(one, step)]
    if len(places) != 1:
        return step
    (place,) = places
    branch = step.body[place]
    assert isinstance(branch, If)

    def loop(chosen: tuple[Step, ...]) -> For:
        return replace(step, body=(*step.body[:place], *chosen, *step.body[place + 1 :]))

    return If(branch.left, branch.right, (loop(branch.body),), (loop(branch.others),))


def _is_the_same(branch: If, loop: For) -> bool:
    """Whether the condition does not depend on the round, and loads depend on it."""
    bound = {loop.variable, *(name for name, _ in loop.let)}
    loads = any(isinstance(one, Load) for one in (*steps_in(branch.body), *steps_in(branch.others)))
    return loads and not (names_in(branch.left) | names_in(branch.right)) & bound
