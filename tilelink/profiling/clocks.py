"""How far the clocks of ranks are apart: rank 0 asks each other one for its time, and both write down theirs.

Of a question and its answer rank 0 knows when it asked (a) and when the answer came (b), and the other rank when it answered (t).
Its clock is ahead by t - (a + b) / 2, and by no more than (b - a) / 2 more or less: neither way takes no time (as in the Network
Time Protocol, RFC 5905). The shortest of many rounds says most.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl


class Offset(NamedTuple):
    """So many ns is the clock of a rank ahead of that of rank 0, within `within` ns."""

    ahead: float
    within: float


@triton.jit
def clock():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit(do_not_specialize=["first", "rounds", "polls"])
def ask(own, pointers, peer, first, rounds, times, polls, ASKS: tl.constexpr):
    """`rounds` questions of one rank to `peer`, whose word is `pointers[peer]`; one program on both. `own` is the word that the
    peer raises, from `first` on. `times` [rounds, 2]: when it asked and was answered; or when it answered. A program that waits
    longer than `polls` polls leaves 0."""
    far = tl.load(pointers + peer).to(tl.pointer_type(tl.int32))
    lost = tl.full((), 0, tl.int32)
    for number in range(rounds):
        if ASKS:
            asked = clock()
            tl.atomic_xchg(far, first + number + 1, sem="release", scope="sys")
        missing, left = tl.full((), 1, tl.int32), polls + 0
        while (missing > 0) & (left > 0) & (lost == 0):
            missing = first + number + 1 - tl.atomic_add(own, 0, sem="acquire", scope="sys")
            left -= 1
        lost = tl.maximum(lost, (missing > 0).to(tl.int32))
        now = clock() * (1 - lost)
        if ASKS:
            tl.store(times + 2 * number, asked)
            tl.store(times + 2 * number + 1, now)
        else:
            tl.store(times + 2 * number, now)
            tl.atomic_xchg(far, first + number + 1, sem="release", scope="sys")


def offset_of(asked: Sequence[tuple[int, int]], answered: Sequence[int]) -> Offset | None:
    """From (asked, answer came) of rank 0 and the times of answers, in ns; None if no round was complete."""
    rounds = [(a, b, t) for (a, b), t in zip(asked, answered, strict=True) if a and b and t]
    if not rounds:
        return None
    a, b, t = min(rounds, key=lambda one: one[1] - one[0])
    return Offset(t - (a + b) / 2, (b - a) / 2)


def drifted(before: Offset, behind: Offset) -> Offset:
    """Of what was asked before a call and behind it: both hold for the call, as far as clocks run evenly."""
    low, high = (min(before.ahead, behind.ahead), max(before.ahead, behind.ahead))
    return Offset((low + high) / 2, max(before.within, behind.within) + (high - low) / 2)
