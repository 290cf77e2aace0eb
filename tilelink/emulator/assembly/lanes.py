"""Lanes that carry out a snippet together: each has registers and a place of its own, those furthest behind go next.

A branch back is where a lane may wait for another task: a round that changed nothing, and read only what has not changed
since, blocks until it has (`spinning.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilelink.emulator.assembly.memory import Toucher, Who
from tilelink.emulator.assembly.program import Compute, Fence, Jump, Meet, Memory, Nap, Nothing, Steps
from tilelink.emulator.assembly.reader import Address, Immediate, Label, Operand, Register, Special, Vector
from tilelink.emulator.threads import WARP, differ, meet

if TYPE_CHECKING:
    from tilelink.emulator.assembly.program import Action
    from tilelink.emulator.assembly.values import Bits
    from tilelink.emulator.machine import Machine

_LOW = np.uint64(0xFFFF_FFFF)


class Lanes:
    """`operands[i]` holds the bits of `$i` of each lane; `active`: the lanes that take part; `who`: what a lane is."""

    def __init__(
        self, machine: Machine, steps: Steps, operands: list[Bits], active: NDArray[np.bool_], who: Who
    ) -> None:
        self._machine = machine
        self._steps = steps
        self._count = active.size
        self._next = np.where(active, 0, len(steps.actions))
        self._registers = {f"${number}": bits for number, bits in enumerate(operands)}
        self._toucher = Toucher(machine, who)

    def run(self) -> None:
        """Until all lanes are behind the last instruction. Raises what accesses of memory do."""
        spins, end = self._machine.spins, len(self._steps.actions)
        loops = self._steps.program.loops
        spin = spins.enter(("lanes",), False) if loops else None
        while (at := int(self._next.min(initial=end))) < end:
            lanes = self._next == at
            taken = lanes & self._guard(at)
            action = self._steps.actions[at]
            self._next[lanes] = at + 1
            if isinstance(action, Jump):
                self._next[taken] = action.target
                if spin is not None and action.target <= at and taken.any():
                    excused = spins.again(spin, {"lanes": self._state()})
                    self._next[taken] = at + 1 if excused else action.target
            elif taken.any():
                self._carry_out(action, taken)
        if spin is not None:
            spins.leave(spin)

    def operand(self, number: int) -> Bits:
        """The bits of `$number` of each lane."""
        return self._registers[f"${number}"]

    def _guard(self, at: int) -> NDArray[np.bool_]:
        instruction = self._steps.program.instructions[at]
        if not instruction.guard:
            return np.ones(self._count, bool)
        lets: NDArray[np.bool_] = self._value(Register(instruction.guard)) != 0
        return ~lets if instruction.negated else lets

    def _carry_out(self, action: Action, taken: NDArray[np.bool_]) -> None:
        machine = self._machine
        match action:
            case Compute(to, sources, function):
                result = function(*(self._value(source) for source in sources))
                values = result if isinstance(result, tuple) else (result,)
                for register, value in zip(to.parts if isinstance(to, Vector) else (to,), values, strict=True):
                    self._set(register, value, taken)
            case Memory():
                values_ = [self._value(value)[taken] for value in action.values]
                addresses = self._value(action.address.base)[taken] + np.uint64(action.address.offset % 2**64)
                found = self._toucher.touch(action, addresses, values_, taken)
                for register, bits in zip(action.to, found, strict=False):
                    spread = np.zeros(self._count, np.uint64)
                    spread[taken] = bits
                    self._set(register, spread, taken)
            case Fence(text):
                machine.fence(text)
            case Meet():
                if not taken.all():
                    raise differ(machine, "bar.sync", "is reached by some threads only")
                meet(machine, "bar.sync")
            case Nap():
                machine.scheduler.switch()
            case Jump() | Nothing():
                pass

    def _value(self, operand: Operand) -> Bits:
        match operand:
            case Register(name):
                found = self._registers.get(name)
                return np.zeros(self._count, np.uint64) if found is None else found
            case Immediate(bits):
                return np.full(self._count, bits, np.uint64)
            case Special(name):
                return np.broadcast_to(self._special(name), (self._count,))
            case Address() | Vector() | Label():
                raise AssertionError(operand)

    def _set(self, register: Register | Immediate, value: Bits, taken: NDArray[np.bool_]) -> None:
        assert isinstance(register, Register)
        old = self._registers.get(register.name)
        self._registers[register.name] = value if old is None or taken.all() else np.where(taken, value, old)

    def _special(self, name: str) -> Bits:
        task, machine = self._machine.scheduler.task, self._machine
        what, _, axis = name[1:].partition(".")
        number = "xyz".index(axis) if axis else 0
        threads = np.arange(self._count, dtype=np.uint64)
        match what:
            case "tid":
                return threads if axis == "x" else np.zeros(1, np.uint64)
            case "laneid" | "warpid":
                return threads % np.uint64(WARP) if what == "laneid" else threads // np.uint64(WARP)
            case "ntid":
                return np.array([WARP * task.warps if axis == "x" else 1], np.uint64)
            case "nwarpid":
                return np.array([task.warps], np.uint64)
            case "ctaid":
                return np.array([task.program[number]], np.uint64)
            case "nctaid":
                return np.array([task.grid[number]], np.uint64)
            case "smid":
                x, y, z = task.program
                return np.array([(x + task.grid[0] * (y + task.grid[1] * z)) % machine.num_sms], np.uint64)
            case "nsmid":
                return np.array([machine.num_sms], np.uint64)
            case _:  # a clock
                time = np.array([machine.spins.clock()], np.uint64)
                return time >> np.uint64(32) if what.endswith("hi") else time & _LOW if what.endswith("lo") else time

    def _state(self) -> bytes:
        """Where all lanes are and what they hold."""
        return b"".join((self._next.tobytes(), *(bits.tobytes() for bits in self._registers.values())))
