"""The bugs that distributed kernels really ship with: what a proof or a run names when it refutes."""

from __future__ import annotations

from enum import Enum


class BugClass(Enum):
    """One class of bug: its number, in which reports and docs name it, and what went wrong."""

    SCOPE = (1, "signal with gpu scope between GPUs")
    SLOTS = (2, "signal array too small: slots alias or lie outside")
    ORDERING = (3, "missing or relaxed release or acquire around the data")
    CTA_BARRIER = (4, "release by one thread without a CTA barrier after the other threads' stores")
    ASYNC_STORE = (5, "release before an asynchronous store has completed, or a missing proxy fence")
    EQUALITY = (6, "equality wait on a value that can pass")
    PER_RANK_CHOICE = (7, "ranks decide differently and run different protocols")
    STALE_SIGNAL = (8, "stale signal: not reset, or not distinguishable between calls")
    RESIDENCY = (9, "spinning programs hold the SMs that what they wait for needs")
    LATE_SETUP = (10, "allocation, rendezvous or loading of a kernel while peers spin")
    LINK_ATOMICS = (11, "atomic or multicast over a link that does not have it")
    SHARED_SIGNALS = (12, "two streams or two operators share one set of signals")
    CIRCLE = (13, "circular wait")
    REUSE = (14, "a buffer is overwritten while it may still be read")
    WAIT_TOO_LITTLE = (15, "wait covers too little of what is read")
    SIGNAL_TOO_EARLY = (16, "signal raised before all of its data is there")
    WRONG_PLACE = (17, "wrong rank, offset or region")
    BAKED_CONSTANT = (18, "host value baked into a captured call")
    COMPILED_ORDER = (19, "compiled code that loads before its wait, or notifies before its store")

    def __init__(self, number: int, title: str) -> None:
        self.number = number
        self.title = title

    def __str__(self) -> str:
        return f"class {self.number}: {self.title}"
