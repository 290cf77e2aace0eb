"""Elementwise functions: how many operands each takes, how it is written, and in which operands it is linear.

A new function is a line here, its text for torch in `lowering.entry`, its meaning in `tilelink.runtime.meaning`, and, if
its text is a call, a device function in `lowering.device.math`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

_ONE, _BOTH = (True,), (True, True)
_LEFT, _RIGHT = (True, False), (False, True)


@dataclass(frozen=True, slots=True)
class Function:
    """`text` has a place for each operand. `linear` lists which operands may be summands of ranks (Partial) at once: with
    the others fixed the function is linear in those, so that the results are summands again."""

    text: str
    linear: frozenset[tuple[bool, ...]] = frozenset()

    def on(self, *operands: object) -> str:
        """The text of the function of `operands`."""
        return self.text.format(*operands)


FUNCTIONS = {
    "silu": Function("silu({0})"),
    "gelu": Function("gelu({0})"),
    "relu": Function("relu({0})"),
    "neg": Function("-{0}", frozenset({_ONE})),
    "add": Function("{0} + {1}", frozenset({_BOTH})),
    "sub": Function("{0} - {1}", frozenset({_BOTH})),
    "mul": Function("{0} * {1}", frozenset({_LEFT, _RIGHT})),
    "div": Function("{0} / {1}", frozenset({_LEFT})),
}


def in_fp32(number: float) -> float:
    """The number of fp32 nearest to `number`: functions are computed in fp32, with constants of it, as in torch."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def with_constants(values: Iterable[object], left: object, right: object) -> tuple[object, ...]:
    """All operands in order: `values`, and the constants on their left and right where they are given."""
    before = () if left is None else (str(left),)
    behind = () if right is None else (str(right),)
    return (*before, *values, *behind)
