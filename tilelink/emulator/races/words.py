"""What synchronises through words of memory: releases, acquires and how far each of them reaches.

A word holds, by rank and scope of who released, what was released through it and not ended since. An atomic that reads
and writes continues the release sequence: who acquires then has synchronised with everyone who released before. A write
that does not read (a stream write, a copy into the word) ends it and starts one of its own; plain stores only end it.

Scopes also tell to whom an access is indivisible: two are that to each other if each is made by a task that the other's scope
includes. Otherwise an addition may be lost. Sources: PTX ISA 8.7, memory consistency model, morally strong operations and
the axiom of atomicity; the LLVM AMDGPU memory model has the same rule. A copy engine belongs to the GPU of its stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelink.emulator.events import Scope
from tilelink.emulator.races.clocks import NOTHING, Clock, join

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilelink.emulator.events import TaskId

_SCOPES = (Scope.CTA, Scope.GPU, Scope.SYSTEM)  # each includes what those before it do

Releases = dict[tuple[int, Scope], Clock]


def width(scope: Scope) -> int:
    """0 for the narrowest; a look-up by identity, since an Enum is slow to hash."""
    return _SCOPES.index(scope)


def includes(scope: Scope, task: TaskId, other: TaskId) -> bool:
    """Whether an access of `scope` by `task` is indivisible to what `other` does."""
    if scope is Scope.SYSTEM or task is other:
        return True
    return scope is Scope.GPU and task.rank == other.rank


def narrower(one: Scope, other: Scope) -> Scope:
    """The scope in which two accesses of these scopes can synchronise."""
    return one if width(one) < width(other) else other


def reaching(words: Iterable[Releases], rank: int, scope: Scope) -> tuple[Clock, Clock]:
    """What an acquire by `rank` joins: released by its own rank, and by other ranks.

    CTA scope reaches no other program, GPU scope none of another rank.
    """
    near = far = NOTHING
    if scope is Scope.CTA:
        return near, far
    for word in words:
        for (releasing, released), clock in word.items():
            if releasing == rank:
                near = join(near, clock)
            elif scope is released is Scope.SYSTEM:
                far = join(far, clock)
    return near, far


def release(word: Releases, rank: int, scope: Scope, clock: Clock) -> None:
    """Continue the release sequence of `word`. CTA scope reaches no other program."""
    if scope is not Scope.CTA:
        word[rank, scope] = join(word.get((rank, scope), NOTHING), clock)
