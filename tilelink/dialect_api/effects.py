"""What a call in a kernel does and gives back: of this API, and of stock Triton where it matters to the rules."""

from __future__ import annotations

import ast
from dataclasses import replace

from tilelink.dialect_api.source import SourceFile
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import UNKNOWN, Element, Trait, Value, of_traits, spot
from tilelink.stubs.functions import CUDA, EXTRA, HIP, LANGUAGE, SHMEM
from tilelink.stubs.model import Effect, Reach

TL = "triton.language"
WAIT, CONSUME, NOTIFY, SYMM_AT = (f"{LANGUAGE}.{name}" for name in ("wait", "consume_token", "notify", "symm_at"))
_OF_TRITON = {
    **dict.fromkeys((f"{TL}.load", ".load", ".gather"), Effect.LOAD),
    **dict.fromkeys((f"{TL}.store", ".store", ".scatter", ".atomic_add"), Effect.STORE),
    **dict.fromkeys((f"{TL}.debug_barrier", f"{TL}.thread_barrier"), Effect.BARRIER),
    **dict.fromkeys(
        (f"{TL}.atomic_{name}" for name in ("add", "cas", "xchg", "and", "or", "xor", "max", "min")), Effect.ATOMIC
    ),
}
# a releasing one of these is a signal. Who leaves the semantic of an atomic to its default may count something that
# covers no stores
_SCOPED = tuple(f"{module}.{name}" for module in (EXTRA, CUDA, HIP) for name in ("st", "st_v4_b32", "st_vector"))
_NEAR = ("cta", "gpu", "workgroup", "agent")


def act_of(event: Event) -> Effect:
    """What a call does, RAISE for whatever releases, and BARRIER only if the whole program meets."""
    if event.path == f"{TL}.inline_asm_elementwise":
        return _of_assembly(str(pointer(event).constant))
    function, semantic = event.function, semantic_of(event)
    effect = _OF_TRITON.get(event.path, function.effect if function is not None else Effect.NONE)
    if event.path.endswith(".__syncthreads"):
        return Effect.BARRIER
    if semantic in ("release", "acq_rel") and (effect is Effect.ATOMIC or event.path in _SCOPED):
        return Effect.RAISE
    if effect is Effect.BARRIER and function is not None and function.reach in (Reach.THREAD, Reach.WARP, Reach.WAVE):
        return Effect.NONE
    return Effect.PUT if effect is Effect.PUT_RAISE else effect


def _of_assembly(text: str) -> Effect:
    """Barriers and fences are also written as assembly, where the compiler's own would cost the pipeline."""
    if any(word in text for word in ("bar.sync", "barrier.sync", "s_barrier")):
        return Effect.BARRIER
    return Effect.FENCE if any(word in text for word in ("fence.", "membar.")) else Effect.NONE


def semantic_of(event: Event) -> object:
    """The semantic of a call of this API, or of an atomic of stock Triton where it is given; None if it is not known."""
    return (event.given_or_default("semantic") if event.function is not None else event.value("sem")).constant


def scope_of(event: Event) -> object:
    """The scope of a raise or wait, None if it is not known."""
    if event.function is None and event.argument("scope") is None:
        return "gpu"  # an atomic of stock Triton
    return event.given_or_default("comm_scope" if event.path == NOTIFY else "scope").constant


def is_near(event: Event) -> bool:
    """Whether the scope is known to end at this GPU."""
    return scope_of(event) in _NEAR


def pointer(event: Event) -> Value:
    """The address that a load, store or raise works on."""
    if event.path.startswith("."):
        return event.receiver
    return event.arguments[0][2] if event.arguments else UNKNOWN


def word(event: Event) -> Value:
    """The word that a wait polls or a raise writes."""
    names = ("sig_addr", "signal_tensor")
    return next((event.value(name) for name in names if event.argument(name) is not None), pointer(event))


def reaches_peers(event: Event) -> bool:
    """Whether a raise can be one of a peer's words; a count on this GPU publishes nothing to others by itself."""
    return event.path == NOTIFY or event.argument("sig_addr") is not None or pointer(event).has(Trait.PEER)


_RANKS = (f"{LANGUAGE}.rank", f"{SHMEM}.my_pe")
# the parameter whose address is turned into that of a peer
_REMOTE = {SYMM_AT: "ptr", f"{SHMEM}.remote_ptr": "local_ptr", f"{SHMEM}.remote_mc_ptr": "ptr"}


def _of_triton(names: str) -> tuple[str, ...]:
    return tuple(f"{TL}.{name}" for name in names.split())


_MAKES_BLOCKS = _of_triton("arange zeros full zeros_like")
_KEEPS_FIRST = _of_triton("multiple_of max_contiguous make_tensor_descriptor make_block_ptr advance where")
_REDUCES = _of_triton("sum max min reduce argmax argmin xor_sum")
_WIDTHS = {"i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64"}


def result(file: SourceFile, event: Event) -> Value:
    """The value of a call. Of functions that are not known, whether it is a tensor, of a thread, and its tokens."""
    values = [event.receiver, *(value for _, _, value in event.arguments)]
    first = values[1] if event.arguments else UNKNOWN
    path = event.path
    if path == WAIT:
        return replace(of_traits(Trait.TOKEN), tokens=frozenset({spot(event.node)}))
    if path == CONSUME:
        value = event.value("value")
        return replace(value, taken=value.taken | event.value("token").tokens)
    if path in _REMOTE:
        base = event.value(_REMOTE[path])
        return replace(base, traits=(base.traits - {Trait.SUM}) | {Trait.PEER})
    if path in _RANKS:
        return of_traits(Trait.OWN_RANK)
    if event.function is not None and event.function.name in ("tid", "laneid"):
        return of_traits(Trait.THREAD)
    if path in _MAKES_BLOCKS:
        return of_traits(Trait.BLOCK)
    if path in (".to", f"{TL}.cast"):
        dtype = pointed_to(file, event.arguments[-1][1]) if event.arguments else ""
        # a cast to the type of something else: nothing is known of the width
        elements = frozenset({Element(dtype, event.node.lineno)} if dtype else ())
        return replace(event.receiver if path == ".to" else first, elements=elements)
    if path in _KEEPS_FIRST:
        return first
    traits = frozenset[Trait]().union(*(value.traits for value in values)) & {Trait.BLOCK, Trait.THREAD}
    taken = frozenset().union(*(value.taken for value in values))
    return Value(traits=traits - {Trait.BLOCK} if path in _REDUCES else traits, taken=taken)


def pointed_to(file: SourceFile, node: ast.expr | None) -> str:
    """`int32` for `tl.pointer_type(tl.int32)` and for the annotation `"*i32"`, else empty."""
    match node:
        case ast.Call(func=function, args=[dtype, *_]) if file.full_path(function).endswith(".pointer_type"):
            return file.full_path(dtype).rpartition(".")[2]
        case ast.Constant(value=str() as text) if text.startswith("*"):
            return _WIDTHS.get(text[1:], text[1:])
        case _:
            return ""
