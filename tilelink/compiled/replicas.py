"""Do several warps hold one packet? Each of them would run the PTX that stores it, at a time of its own.

Triton stores an element once where its layout gives it to several threads, but knows nothing of what PTX of ours does. Lanes of
one warp that hold the same packet store it by one instruction, which is one store.

A packet that says the number of the call may be sent twice: nobody empties it, and its place has the same until the next call but
one. What is loaded may be held by several warps if it is not emptied there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.layouts import OPERAND, Assembly, assembly_in, bases, numbers
from tilelink.compiled.lines import PIECE

_DEFINED = re.compile(r"^\s*(?P<name>%[\w$.-]+) = (?P<op>[\w.]+) (?P<rest>.*)$", re.MULTILINE)
_SAME = ("ttg.convert_layout", "tt.splat", "tt.broadcast", "tt.expand_dims")
Defined = dict[str, list[re.Match[str]]]  # by name, in the order of the text
_PACKET = ".relaxed.sys"  # of accesses of packets, which are no plain ones


def replicated(ttgir: str) -> Iterator[Assembly]:
    """Each access of packets in `ttgir` that more than one warp makes. Raises CannotFollow for an unknown layout."""
    every = [one for one in assembly_in(ttgir) if _PACKET in one.text]
    stored = {one.operands[0] for one in every if _stores(one)}
    defined: Defined = {}
    for found in _DEFINED.finditer(ttgir):
        defined.setdefault(found["name"], []).append(found)
    for one in every:
        words, *values = one.operands
        if PIECE in one.text:  # lines number the call
            continue
        if _is_numbered(values[0], one.at, defined) if _stores(one) else words not in stored:
            continue
        if _is_replicated(one.layout, one.shape):
            yield one


def _stores(one: Assembly) -> bool:
    return "st" + _PACKET in one.text


def _is_numbered(value: str, used: int, defined: Defined) -> bool:
    """Whether packets, `used` at that place of the text, are data with a number above them: `number << 32 | data`."""
    found = _origin(value, used, defined)
    if found is None or found["op"] != "arith.ori":
        return False
    sides = (_origin(one, found.start(), defined) for one in OPERAND.findall(found["rest"].partition(" : ")[0]))
    return any(side is not None and side["op"] == "arith.shli" for side in sides)


def _origin(value: str, used: int, defined: Defined) -> re.Match[str] | None:
    """What makes a value, wherever its elements lie. Regions that have ended leave their names to others."""
    found = _last(value, used, defined)
    while found is not None and found["op"] in _SAME:
        found = _last(OPERAND.findall(found["rest"])[0], found.start(), defined)
    return found


def _last(value: str, used: int, defined: Defined) -> re.Match[str] | None:
    return next((one for one in reversed(defined.get(value, ())) if one.start() < used), None)


def _is_replicated(layout: str, shape: tuple[int, ...]) -> bool:
    if layout.startswith("#ttg.blocked"):
        named = (numbers(layout, name) for name in ("sizePerThread", "threadsPerWarp", "warpsPerCTA"))
        return any(
            warps > 1 and per * lanes * warps > size for per, lanes, warps, size in zip(*named, shape, strict=True)
        )
    if layout.startswith("#ttg.linear"):
        return any(not any(base) for base in bases(layout, "warp"))
    if layout.startswith("#ttg.nvidia_mma"):
        along = zip(numbers(layout, "warpsPerCTA"), numbers(layout, "instrShape"), shape, strict=False)
        return any(warps > 1 and warps * size > extent for warps, size, extent in along)
    raise CannotFollow(what="a layout", text=layout)
