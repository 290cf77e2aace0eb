"""What inline assembly does to memory, by its text, and what calls of a communication library do, by their names."""

from __future__ import annotations

import re
from typing import NamedTuple

from tilelink.compiled.events import Kind

_RULES: tuple[tuple[str, Kind, bool], ...] = (  # pattern, event, whether the first operand is an address
    (r"\b(bar|barrier)\.(cta\.)?sync|s_barrier", Kind.BARRIER, False),
    (r"fence\.proxy\.async", Kind.FENCE, False),
    (r"cp\.async\.bulk\.wait_group\s+0", Kind.DRAIN, False),
    (r"\b(atom|red)\.[\w.]*acq_rel", Kind.BOTH, True),
    (r"\b(ld|atom)\.[\w.]*acquire", Kind.WAIT, True),
    (r"\b(st|red|atom)\.[\w.]*release", Kind.RAISE, True),
    (r"\b(ld|st|atom|red)\.[\w.]*(relaxed|volatile)", Kind.WORD, True),
)


class Called(NamedTuple):
    """Operands of a call that tells of what comes before it: the address of the word, and that of what is sent, if any is."""

    word: int
    source: int | None = None


CALLED = {
    "nvshmemx_putmem_signal_nbi_block": Called(3, 1),
    "nvshmemx_putmem_nbi_block": Called(0, 1),  # of packets, each of which is its own word
    "nvshmemx_signal_op": Called(0),
}


def assembly_kind(text: str) -> tuple[Kind | None, bool]:
    """(event, whether it touches the address in the first operand) of a piece of assembly; None if it touches no memory."""
    for pattern, kind, touches in _RULES:
        if re.search(pattern, text):
            return kind, touches
    return None, False


def assembly_guard(text: str, results: int = 1) -> int | None:
    """Which operand has to differ from 0 for the access to happen, where the text says so; behind so many results."""
    found = re.search(r"setp\.ne\.s32 (\w+), \$(\d+), 0;.*@\1 (?:multimem\.)?(?:ld|st|atom|red)\.", text)
    return int(found[2]) - results if found else None
