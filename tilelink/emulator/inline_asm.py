"""The inline assembly of device helpers, statement by statement: it orders memory, or moves words of 64 bits whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum


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
_TABLE: tuple[tuple[str, Effect, str], ...] = (
    (r"fence(\.\w+)+", Effect.FENCE, "fence.*"),
    (r"membar\.\w+", Effect.FENCE, "membar.*"),
    (r"cp\.async\.bulk\.wait_group(\.read)? \d+", Effect.FENCE, "cp.async.bulk.wait_group[.read] n"),
    (r"cp\.async\.bulk\.commit_group", Effect.FENCE, "cp.async.bulk.commit_group"),
    (r"s_waitcnt .*", Effect.FENCE, "s_waitcnt"),
    (r"buffer_(wbl2|inv)( sc[01])*", Effect.FENCE, "buffer_wbl2"),
    (
        r"st\.relaxed\.sys\.global\.b64 \[\$(?P<address>\d+)\], \$(?P<value>\d+)",
        Effect.STORE,
        "st.relaxed.sys.global.b64 [$1], $2",
    ),
    (
        r"ld\.relaxed\.sys\.global\.b64 \$(?P<output>\d+), \[\$(?P<address>\d+)\]",
        Effect.LOAD,
        "ld.relaxed.sys.global.b64 $0, [$1]",
    ),
    (r"bar\.sync \d+", Effect.BARRIER, "bar.sync n"),
    (r"barrier\.sync(\.aligned)? \d+", Effect.BARRIER, "barrier.sync n"),
    (r"s_barrier", Effect.BARRIER, "s_barrier"),
    (r"nanosleep\.u32 \d+", Effect.NAP, "nanosleep.u32 n"),
    (r"s_(sleep|nop) \d+", Effect.NOTHING, "s_sleep n"),
    (r"mov\.[usb](32|64) \$(?P<output>\d+), (?P<value>-?\d+)", Effect.CONSTANT, "mov.u32 $0, n"),
    (r"mov\.u64 \$(?P<output>\d+), %(globaltimer|clock64)", Effect.CLOCK, "mov.u64 $0, %globaltimer"),
    (r"mov\.u32 \$(?P<output>\d+), %clock", Effect.CLOCK, "mov.u32 $0, %clock"),
    (r"v_mov_b32 \$(?P<output>\d+), (?P<value>-?\d+)", Effect.CONSTANT, "v_mov_b32 $0, n"),
)

KNOWN = ", ".join(name for _, _, name in _TABLE)


class UnknownStatement(ValueError):
    """A statement that is not in the table; the builder adds where it stands: `UnknownInlineAsm`."""

    def __init__(self, statement: str) -> None:
        self.statement = statement
        super().__init__(statement)


def parse(assembly: str) -> tuple[Statement, ...]:
    """The statements of a snippet. Raises `UnknownStatement`."""
    without_comments = re.sub(r"//[^\n]*", "", assembly)
    texts = (re.sub(r"\s+", " ", text).strip() for text in re.split(r"[;\n{}]", without_comments))
    return tuple(_statement(text) for text in texts if text)


def _statement(text: str) -> Statement:
    for pattern, effect, _ in _TABLE:
        match = re.fullmatch(pattern, text)
        if match is None:
            continue
        return Statement(text, effect, **{name: int(number) for name, number in match.groupdict().items() if number})
    raise UnknownStatement(text)
