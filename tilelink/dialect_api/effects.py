"""What a call in a kernel does to memory and threads: of this API, and of stock Triton where it matters to the rules."""

from __future__ import annotations

from enum import Enum

from tilelink.dialect_api.functions import CUDA, EXTRA, HIP, LANGUAGE
from tilelink.dialect_api.model import Effect, Function, Reach

TL = "triton.language"
_TL_ATOMICS = tuple(f"{TL}.atomic_{name}" for name in ("add", "cas", "xchg", "and", "or", "xor", "max", "min"))
_SCOPED = tuple(f"{module}.{name}" for module in (EXTRA, CUDA, HIP) for name in ("st", "st_v4_b32", "st_vector"))
_RELEASING = ("release", "acq_rel")
_WHOLE_PROGRAM = (Reach.PROGRAM, Reach.BLOCK, Reach.WORKGROUP, Reach.OPEN)
WAIT = f"{LANGUAGE}.wait"
CONSUME = f"{LANGUAGE}.consume_token"
NOTIFY = f"{LANGUAGE}.notify"
SYMM_AT = f"{LANGUAGE}.symm_at"


class Act(Enum):
    NOTHING = "nothing"
    LOAD = "load"
    STORE = "store"
    RAISE = "raise"
    BARRIER = "barrier"
    WAIT = "wait"
    FENCE = "fence"
    ATOMIC = "atomic"
    PUT = "put"


def act(path: str, function: Function | None, semantic: object) -> Act:
    """What one call does. `path` is `.load` for a method; `semantic` the value of that argument, None if unknown."""
    if path in (f"{TL}.load", ".load", ".gather"):
        return Act.LOAD
    if path in (f"{TL}.store", ".store", ".scatter", ".atomic_add"):
        return Act.STORE
    if path in (f"{TL}.debug_barrier", f"{TL}.thread_barrier") or path.endswith(".__syncthreads"):
        return Act.BARRIER
    if path in _TL_ATOMICS:
        # who leaves the semantic to its default, which is acq_rel, may count something that covers no stores
        return Act.RAISE if semantic in _RELEASING else Act.ATOMIC
    return _of_api(path, function, semantic) if function is not None else Act.NOTHING


def act_of_assembly(text: str) -> Act:
    """Barriers and fences are also written as assembly, where the compiler's own would cost the pipeline."""
    if any(word in text for word in ("bar.sync", "barrier.sync", "s_barrier")):
        return Act.BARRIER
    return Act.FENCE if any(word in text for word in ("fence.", "membar.")) else Act.NOTHING


def _of_api(path: str, function: Function, semantic: object) -> Act:
    match function.effect:
        case Effect.STORE:
            return Act.RAISE if path in _SCOPED and semantic in _RELEASING else Act.STORE
        case Effect.ATOMIC:
            return Act.RAISE if semantic in _RELEASING else Act.ATOMIC
        case Effect.BARRIER:
            return Act.BARRIER if function.reach in _WHOLE_PROGRAM else Act.NOTHING
        case Effect.RAISE:
            return Act.RAISE
        case Effect.LOAD:
            return Act.LOAD
        case Effect.WAIT:
            return Act.WAIT
        case Effect.FENCE:
            return Act.FENCE
        case Effect.PUT | Effect.PUT_RAISE:
            return Act.PUT
        case Effect.NONE | Effect.ALLOCATE:
            return Act.NOTHING
