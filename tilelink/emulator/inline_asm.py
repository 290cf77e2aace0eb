"""The inline assembly of device helpers, statement by statement: it orders memory, or moves words of 64 bits whole.

What threads do for themselves, with registers and branches, is read by `assembly/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class Effect(Enum):
    FENCE = "fence"  # orders memory, or waits for asynchronous work
    BARRIER = "barrier"  # all threads of the program meet
    NAP = "nap"  # time passes, in which others run
    NOTHING = "nothing"  # time only
    CONSTANT = "constant"  # sets an output register
    STORE = "store"  # of words, each whole, without an order
    LOAD = "load"  # of such words into an output register
    CLOCK = "clock"  # sets an output register to the time of the emulation


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    effect: Effect
    output: int = 0  # of CONSTANT, CLOCK and LOAD: which register
    value: int = 0  # of CONSTANT; of STORE: which register holds the words
    address: int = 0  # of STORE and LOAD: which register holds where they are


# What each pattern matches is a whole statement, without its semicolon.
_TABLE: tuple[tuple[str, Effect], ...] = (
    (r"fence(\.\w+)+", Effect.FENCE),
    (r"membar\.\w+", Effect.FENCE),
    (r"cp\.async\.bulk\.wait_group(\.read)? \d+", Effect.FENCE),
    (r"cp\.async\.bulk\.commit_group", Effect.FENCE),
    (r"s_waitcnt .*", Effect.FENCE),
    (r"buffer_(wbl2|inv)( sc[01])*", Effect.FENCE),
    (r"st\.relaxed\.sys\.global\.b64 \[\$(?P<address>\d+)\], \$(?P<value>\d+)", Effect.STORE),
    (r"ld\.relaxed\.sys\.global\.b64 \$(?P<output>\d+), \[\$(?P<address>\d+)\]", Effect.LOAD),
    (r"bar\.sync \d+", Effect.BARRIER),
    (r"barrier\.sync(\.aligned)? \d+", Effect.BARRIER),
    (r"s_barrier", Effect.BARRIER),
    (r"nanosleep\.u32 \d+", Effect.NAP),
    (r"s_(sleep|nop) \d+", Effect.NOTHING),
    (r"mov\.[usb](32|64) \$(?P<output>\d+), (?P<value>-?\d+)", Effect.CONSTANT),
    (r"mov\.u64 \$(?P<output>\d+), %(globaltimer|clock64)", Effect.CLOCK),
    (r"mov\.u32 \$(?P<output>\d+), %clock", Effect.CLOCK),
    (r"v_mov_b32 \$(?P<output>\d+), (?P<value>-?\d+)", Effect.CONSTANT),
)


class UnknownStatement(ValueError):
    """A statement that is not in the table."""

    def __init__(self, statement: str) -> None:
        self.statement = statement
        super().__init__(statement)


@lru_cache(maxsize=256)
def parse(assembly: str) -> tuple[Statement, ...]:
    """The statements of a snippet. Raises `UnknownStatement`."""
    without_comments = re.sub(r"//[^\n]*", "", assembly)
    texts = (re.sub(r"\s+", " ", text).strip() for text in re.split(r"[;\n{}]", without_comments))
    return tuple(_statement(text) for text in texts if text)


def _statement(text: str) -> Statement:
    for pattern, effect in _TABLE:
        match = re.fullmatch(pattern, text)
        if match is None:
            continue
        return Statement(text, effect, **{name: int(number) for name, number in match.groupdict().items() if number})
    raise UnknownStatement(text)
