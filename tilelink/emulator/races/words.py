"""What synchronises through words of memory: releases, acquires and how far each of them reaches.

A word holds, by rank and scope of who released, what was released through it and not ended since. An atomic that reads
and writes continues the release sequence: who acquires then has synchronised with everyone who released before. A write
that does not read (a stream write, a copy into the word) ends it and starts one of its own; plain stores only end it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelink.emulator.events import Scope
from tilelink.emulator.races.clocks import NOTHING, Clock, join

if TYPE_CHECKING:
    from collections.abc import Iterable

Releases = dict[tuple[int, Scope], Clock]


def narrower(one: Scope, other: Scope) -> Scope:
    """The scope in which two accesses of these scopes can synchronise."""
    for scope in (Scope.CTA, Scope.GPU):
        if scope in (one, other):
            return scope
    return Scope.SYSTEM


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
