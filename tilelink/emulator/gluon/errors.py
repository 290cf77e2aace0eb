"""What emulated Gluon refuses: one class each, the facts in the message and in `facts`."""

from __future__ import annotations

from tilelink.emulator.errors import EmulationError, Unsupported


class NotInGluon(Unsupported):
    """Facts: `name`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: {name} is a part of Gluon that is not emulated.\n"
        "Legal: shared memory, barriers, loads and stores through descriptors, warpgroup_mma and warp_specialize, as emitted "
        "files use them."
    )


class UnfencedSource(EmulationError):
    """Facts: `rank`, `task`, `place`, `behind`."""

    template = (
        "{task} on rank {rank} at {place}: a store from shared memory, which goes through the asynchronous proxy, may find there "
        "what was there before: what the warps have stored there is behind {behind}.\n"
        "Legal: fence_async_shared() by the warps that have stored, and a barrier of theirs, before the store begins."
    )


class SharedOverwritten(EmulationError):
    """Facts: `rank`, `task`, `place`, `reader`."""

    template = (
        "{task} on rank {rank} at {place} writes to shared memory that may still be read by {reader}.\n"
        "Legal: tma.store_wait or warpgroup_mma_wait before, then a barrier of the warps, or an arrival at a barrier for which "
        "who writes waits."
    )


class IllegalBarrier(EmulationError):
    """Facts: `at`, `reason`, `rank`, `task`, `place`."""

    template = (
        "{task} on rank {rank} at {place}: barrier {at}: {reason}.\n"
        "Legal: mbarrier.init and fence_async_shared() before the groups of warps begin, and in each phase as many "
        "arrivals as it was given."
    )
