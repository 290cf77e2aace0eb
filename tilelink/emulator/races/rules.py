"""Which rules of the memory model a detector applies; one lifted at a time, they tell why a race exists."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of the memory model. A race that disappears with one of them lifted is due to that rule."""

    cta_barriers: bool = True  # False: the threads of a program are one thread
    async_completion: bool = True  # False: a descriptor store is visible to its program at once
    proxy_fences: bool = True  # False: descriptor accesses see what pointer accesses of their program would see
    semantics: bool = True  # False: atomics, volatile loads and scalar accesses all acquire and release
    plain_signals: bool = True  # without semantics; False: but scalar accesses that are none of a signal do not
    scopes: bool = True  # False: every scope is the system
