"""Do several warps hold one packet? Each of them would run the PTX that stores it, at a time of its own.

Triton stores an element once where its layout gives it to several threads, but knows nothing of what PTX of ours does. Lanes of
one warp that hold the same packet store it by one instruction, which is one store.

A packet that says the number of the call may be sent twice: nobody empties it, and its place has the same until the next call but
one. What is loaded may be held by several warps if it is not emptied there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tilelink.compiled.errors import CannotFollow

_ALIAS = re.compile(r"^(#\w+) = (#.*)$", re.MULTILINE)
_OPERATION = re.compile(
    r'tt\.elementwise_inline_asm "(?P<text>[^"]*)" \{[^}]*\} (?P<operands>%[^:]*) : '
    r"tensor<(?P<shape>[0-9x]+)x\w+, (?P<layout>#\w+)>"
)
_DEFINED = re.compile(r"^\s*(?P<name>%[\w$.-]+) = (?P<op>[\w.]+) (?P<rest>.*)$", re.MULTILINE)
_OPERAND = re.compile(r"%[\w$.-]+(?:#\d+)?")
_SAME = ("ttg.convert_layout", "tt.splat", "tt.broadcast", "tt.expand_dims")
_LIST = r"{} = \[([^\]]*)\]"
_WARP_BASES = re.compile(r"warp = \[((?:\[[-0-9, ]*\](?:, )?)*)\]")
Defined = dict[str, list[re.Match[str]]]  # by name, in the order of the text
_PACKET = ".relaxed.sys"  # of accesses of packets, which are no plain ones


@dataclass(frozen=True, slots=True)
class Replicated:
    """PTX that several warps run for the same element."""

    text: str
    shape: tuple[int, ...]
    layout: str


def replicated(ttgir: str) -> Iterator[Replicated]:
    """Each access of packets in `ttgir` that more than one warp makes. Raises CannotFollow for an unknown layout."""
    layouts = dict(_ALIAS.findall(ttgir))
    every = [found for found in _OPERATION.finditer(ttgir) if _PACKET in found["text"]]
    stored = {_OPERAND.findall(found["operands"])[0] for found in every if _stores(found)}
    defined: Defined = {}
    for found in _DEFINED.finditer(ttgir):
        defined.setdefault(found["name"], []).append(found)
    for found in every:
        words, *values = _OPERAND.findall(found["operands"])
        if _is_numbered(values[0], found.start(), defined) if _stores(found) else words not in stored:
            continue
        shape, layout = tuple(map(int, found["shape"].split("x"))), layouts[found["layout"]]
        if _is_replicated(layout, shape):
            yield Replicated(found["text"], shape, layout)


def _stores(found: re.Match[str]) -> bool:
    return "st" + _PACKET in found["text"]


def _is_numbered(value: str, used: int, defined: Defined) -> bool:
    """Whether packets, `used` at that place of the text, are data with a number above them: `number << 32 | data`."""
    found = _origin(value, used, defined)
    if found is None or found["op"] != "arith.ori":
        return False
    sides = (_origin(one, found.start(), defined) for one in _OPERAND.findall(found["rest"].partition(" : ")[0]))
    return any(side is not None and side["op"] == "arith.shli" for side in sides)


def _origin(value: str, used: int, defined: Defined) -> re.Match[str] | None:
    """What makes a value, wherever its elements lie. Regions that have ended leave their names to others."""
    found = _last(value, used, defined)
    while found is not None and found["op"] in _SAME:
        found = _last(_OPERAND.findall(found["rest"])[0], found.start(), defined)
    return found


def _last(value: str, used: int, defined: Defined) -> re.Match[str] | None:
    return next((one for one in reversed(defined.get(value, ())) if one.start() < used), None)


def _numbers(layout: str, name: str) -> list[int]:
    found = re.search(_LIST.format(name), layout)
    if found is None:
        raise CannotFollow(what="a layout", text=layout)
    return [int(one) for one in found[1].split(",")]


def _is_replicated(layout: str, shape: tuple[int, ...]) -> bool:
    if layout.startswith("#ttg.blocked"):
        named = (_numbers(layout, name) for name in ("sizePerThread", "threadsPerWarp", "warpsPerCTA"))
        return any(
            warps > 1 and per * lanes * warps > size for per, lanes, warps, size in zip(*named, shape, strict=True)
        )
    if layout.startswith("#ttg.linear"):
        found = _WARP_BASES.search(layout)
        bases = re.findall(r"\[([-0-9, ]*)\]", found[1]) if found else []
        return any(not any(int(number) for number in base.split(",")) for base in bases)
    if layout.startswith("#ttg.nvidia_mma"):
        along = zip(_numbers(layout, "warpsPerCTA"), _numbers(layout, "instrShape"), shape, strict=False)
        return any(warps > 1 and warps * size > extent for warps, size, extent in along)
    raise CannotFollow(what="a layout", text=layout)
