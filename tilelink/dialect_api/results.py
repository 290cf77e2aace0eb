"""What a call in a kernel gives back."""

from __future__ import annotations

import ast
from dataclasses import replace

from tilelink.dialect_api.effects import CONSUME, SYMM_AT, TL, WAIT
from tilelink.dialect_api.functions import LANGUAGE, SHMEM
from tilelink.dialect_api.source import SourceFile
from tilelink.dialect_api.state import Event
from tilelink.dialect_api.value import UNKNOWN, Element, Trait, Value, of_traits, spot

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
