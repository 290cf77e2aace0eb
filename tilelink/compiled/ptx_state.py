"""What a thread of a compiled kernel knows: registers, shared memory, the events so far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.events import Descriptor, Event, Kind, Memory
from tilelink.compiled.mlir_state import Limits
from tilelink.compiled.ptx import Instruction, Kernel
from tilelink.compiled.ptx_values import Number

PARAMETERS = 1 << 60  # addresses of parameters begin here, a page each
_SHARED = 1 << 20  # of 32 bits
PAGE = 1 << 12
_SPECIAL = frozenset(("%clock", "%clock64", "%globaltimer", "%smid", "%warpid", "%nsmid", "%gridid"))


@dataclass(slots=True)
class Shared:
    """What threads have stored into shared memory: (barriers passed by then, byte), by address."""

    stored: dict[int, list[tuple[tuple[int, int], Number]]] = field(default_factory=dict)


@dataclass(slots=True)
class ThreadState:
    """Thread `thread` of program `program`: its registers, and its events so far; `arguments` by number of parameter."""

    kernel: Kernel
    memory: Memory
    shared: Shared
    arguments: Sequence[int | Descriptor]
    program: int
    grid: int
    thread: int
    limits: Limits = field(default_factory=lambda: Limits(events=3000, operations=3_000_000))
    trace: list[Event] = field(default_factory=list)
    complete: bool = True
    registers: dict[str, Number] = field(default_factory=dict)
    barriers: Counter[bool] = field(default_factory=Counter)
    own: dict[int, Number] = field(default_factory=dict)
    gave: list[tuple[tuple[int, int], int, set[Number]]] = field(default_factory=list)

    def give(self, time: tuple[int, int], size: int, value: Number) -> None:
        """Into shared memory, for any thread."""
        if not self.gave or self.gave[-1][:2] != (time, size):
            self.gave.append((time, size, set()))
        self.gave[-1][2].add(value)

    def given(self, before: tuple[int, int], size: int) -> Number:
        """What a thread that is not traced has stored behind the barrier before the last one: threads hold the same, as far as
        addresses and conditions go, if this one has stored one value then."""
        for time, bits, values in reversed(self.gave):
            if bits == size and sum(time) == sum(before) - 1:
                return next(iter(values)) if len(values) == 1 else None
        return None

    def value(self, operand: str | tuple[str, ...]) -> Number:
        if isinstance(operand, tuple):
            return None
        if operand.startswith("%"):
            return self._register(operand)
        if re.fullmatch(r"-?\d+", operand):
            return int(operand)
        if operand.startswith(("0x", "-0x")):
            return int(operand, 16)
        if operand.startswith(("0f", "0d")):
            return None
        if "_param_" in operand:
            return PARAMETERS + int(operand.rpartition("_")[2]) * PAGE
        return _SHARED

    def _register(self, name: str) -> Number:
        if name in self.registers:
            return self.registers[name]
        given = {
            "%tid.x": self.thread,
            "%ctaid.x": self.program,
            "%nctaid.x": self.grid,
            "%ntid.x": self.kernel.threads,
            "%laneid": self.thread % 32,
            "%warpid": self.thread // 32,
        }
        if name.startswith(("%tid.", "%ctaid.", "%cluster")):
            return given.get(name, 0)
        return None if name in _SPECIAL else given.get(name)

    def address(self, operand: str | tuple[str, ...]) -> Number:
        """Of `[base+offset]`."""
        assert isinstance(operand, str)
        inside = operand.strip("[] ")
        base, sign, offset = (part.strip() for part in re.match(r"([^\s+-]+)\s*([+-]?)\s*(.*)", inside).groups())  # type: ignore[union-attr]
        start = self.value(base)
        if start is None or not offset:
            return start
        return start + int(offset, 0) * (-1 if sign == "-" else 1)

    def put(self, operand: str | tuple[str, ...], value: Number) -> None:
        if isinstance(operand, tuple):
            for one in operand:
                self.registers[one] = None
        elif "|" in operand:
            first, second = operand.split("|")
            self.registers[first], self.registers[second] = None, value
        else:
            self.registers[operand] = value

    def event(self, kind: Kind, instruction: Instruction, where: Number, *, descriptor: bool = False) -> None:
        if where is None:
            raise CannotFollow(what="an address that depends on data", text=instruction.text)
        touched = np.asarray(where, np.int64)
        if kind is Kind.LOAD and self.memory.is_constant(touched):
            return
        self.trace.append(Event(kind, instruction.text, touched, descriptor))

    def mark(self, kind: Kind, instruction: Instruction) -> None:
        self.trace.append(Event(kind, instruction.text))
