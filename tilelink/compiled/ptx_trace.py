"""One thread of a compiled kernel -> its events. As in `mlir_trace`, addresses and conditions are computed and data are not."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilelink.compiled.assembly import CALLED
from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.events import Descriptor, Kind
from tilelink.compiled.ptx import Instruction
from tilelink.compiled.ptx_state import PAGE, PARAMETERS, ThreadState
from tilelink.compiled.ptx_values import EXPRESSIONS, Number, Register, compare, width

_ALL_WARPS = "1"  # the barrier at which groups of warps of a kernel meet


@dataclass(slots=True)
class Thread(ThreadState):
    """Runs the kernel."""

    def run(self) -> None:
        """Trace the thread to its end. Raises CannotFollow."""
        at, operations = 0, 0
        instructions = self.kernel.instructions
        while at < len(instructions):
            operations += 1
            if operations > self.limits.operations or len(self.trace) >= self.limits.events:
                self.complete = False
                return
            instruction = instructions[at]
            taken = self._guard(instruction)
            if instruction.opcode.startswith("bra"):
                at = self._branch(instruction, taken, at)
                continue
            if instruction.opcode.startswith(("ret", "exit")) and taken:
                return
            self._execute(instruction, taken)
            at += 1

    def _guard(self, instruction: Instruction) -> bool | None:
        if not instruction.guard:
            return True
        value = self.registers.get(instruction.guard)
        return None if value is None else bool(value) != instruction.inverted

    def _branch(self, instruction: Instruction, taken: bool | None, at: int) -> int:
        """Where a condition depends on data, a branch forward is taken out of a loop, and one back is not."""
        target = self.kernel.labels[str(instruction.operands[0])]
        if taken is None:
            return self._on_data(target, at)
        return target if taken else at + 1

    def _on_data(self, target: int, at: int) -> int:
        """A condition that depends on data: what is waited for has come, so that a loop is left."""
        if target <= at:
            return at + 1
        following = self.kernel.instructions[at + 1]
        if following.opcode.startswith("bra"):
            other = self.kernel.labels[str(following.operands[0])]
            return target if other <= at else at + 1 if target <= at else max(target, other)
        return at + 1

    def _execute(self, instruction: Instruction, taken: bool | None) -> None:
        opcode = instruction.opcode
        base = opcode.partition(".")[0]
        special = _SPECIAL_INSTRUCTIONS.get(base)
        if special is not None:
            special(self, instruction, taken)
            return
        if base in EXPRESSIONS:
            if taken is False:
                return
            values = [self.value(operand) for operand in instruction.operands[1:]]
            unknown = any(value is None for value in values)
            result = None if unknown or taken is None else EXPRESSIONS[base](opcode, *values)
            self.put(instruction.operands[0], result if result is None else width(opcode, result))
            return
        if ".global" in opcode:
            raise CannotFollow(what=f"instruction {opcode}", text=instruction.text)
        if instruction.operands and base not in ("wgmma", "stmatrix", "setmaxnreg", "mbarrier", "nanosleep"):
            self.put(instruction.operands[0], None)


def _move(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    if taken is False:
        return
    target, source = instruction.operands
    if isinstance(source, tuple):
        parts = [thread.value(one) for one in source]
        bits = {"32": 16, "64": 32}.get(instruction.opcode[-2:], 16)
        known = all(part is not None for part in parts)
        whole = sum((part or 0) % (1 << bits) << bits * at for at, part in enumerate(parts)) if known else None
        thread.put(target, whole)
        return
    value = thread.value(source)
    if isinstance(target, tuple):
        bits = {"32": 16, "64": 32}.get(instruction.opcode[-2:], 16)
        for at, one in enumerate(target):
            if one != "_":
                thread.put(one, None if value is None else value >> bits * at & ((1 << bits) - 1))
        return
    thread.put(target, value)


def _load(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    opcode, target = instruction.opcode, instruction.operands[0]
    targets = target if isinstance(target, tuple) else (target,)
    if ".param" in opcode and "_param_" not in str(instruction.operands[1]):  # what a function has returned
        thread.put(target, None)
        return
    where = thread.address(instruction.operands[1])
    if ".param" in opcode:
        thread.put(target, _parameter(thread, where))
    elif ".shared" in opcode:
        _shared_load(thread, targets, where, opcode)
    elif "acquire" in opcode:
        _word(thread, instruction, taken, Kind.WAIT, where, target)
    elif ".relaxed" in opcode or ".volatile" in opcode:
        if taken is not False:
            thread.event(Kind.WORD, instruction, where)
            for one in targets:
                thread.put(one, None)
    elif taken is not False:
        thread.event(Kind.LOAD, instruction, where)
        size = max(Register.bits(opcode) // 8, 1)
        for at, one in enumerate(targets):
            thread.put(one, None)
            if where is not None and size >= 4 and not re.search(r"\.f(16|32|64)", opcode):
                thread.put(one, int(thread.memory.load(np.asarray(where + at * size))))


def _parameter(thread: Thread, where: Number) -> Number:
    assert where is not None
    number, offset = divmod(where - PARAMETERS, PAGE)
    given = thread.arguments[number] if number < len(thread.arguments) else 0
    return None if isinstance(given, Descriptor) or offset else given


def _shared_load(thread: Thread, targets: Sequence[str], where: Number, opcode: str) -> None:
    size = max(Register.bits(opcode) // 8, 1)
    before = (thread.barriers[True], thread.barriers[False])
    for at, one in enumerate(targets):
        value: Number = None
        if where is not None:
            found = [_byte(thread, address, before) for address in range(where + at * size, where + (at + 1) * size)]
            known = [byte for byte in found if byte is not None]
            value = int.from_bytes(known, "little") if len(known) == size else None
            if not _is_stored(thread, where + at * size, before):
                value = thread.given(before, size)
        thread.put(one, value)


def _is_stored(thread: Thread, address: int, before: tuple[int, int]) -> bool:
    """Whether a thread that is traced has stored there."""
    return address in thread.own or any(time < before for time, _ in thread.shared.stored.get(address, ()))


def _byte(thread: Thread, address: int, before: tuple[int, int]) -> Number:
    """What this thread has stored there, or what another one had before the last barrier."""
    if address in thread.own:
        return thread.own[address]
    older = [found for time, found in thread.shared.stored.get(address, []) if time < before]
    return older[-1] if older else None


def _store(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    opcode, value = instruction.opcode, instruction.operands[1]
    if ".param" in opcode:  # of a function that is called behind this
        thread.put(str(instruction.operands[0]).strip("[] "), thread.value(value))
        return
    where = thread.address(instruction.operands[0])
    if ".shared" in opcode:
        if taken is not False and where is not None:
            size = max(Register.bits(opcode) // 8, 1)
            time = (thread.barriers[True], thread.barriers[False])
            for at, one in enumerate(value if isinstance(value, tuple) else (value,)):
                found = thread.value(one) if taken else None
                thread.give(time, size, found)
                for byte in range(size):
                    part = None if found is None else found >> 8 * byte & 255
                    thread.own[where + at * size + byte] = part
                    thread.shared.stored.setdefault(where + at * size + byte, []).append((time, part))
    elif "release" in opcode:
        thread.event(Kind.RAISE, instruction, where)
    elif taken is not False:
        thread.event(Kind.WORD if ".relaxed" in opcode else Kind.STORE, instruction, where)


def _call(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    """`call (result), function, (arguments)`."""
    function, arguments = (str(one) for one in instruction.operands[-2:])
    called = CALLED.get(function)
    if called is not None and taken is not False:
        given = [thread.registers.get(name.strip()) for name in arguments.strip("() ").split(",")]
        if called.source is not None:
            thread.event(Kind.LOAD, instruction, given[called.source])
        thread.event(Kind.RAISE, instruction, given[called.word])


def _atomic(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    opcode, operands = instruction.opcode, list(instruction.operands)
    if ".shared" in opcode:
        if operands and opcode.startswith("atom"):
            thread.put(operands[0], None)
        return
    target = operands.pop(0) if opcode.startswith("atom") else ""
    where = thread.address(operands[0])
    kinds = {"acquire": Kind.WAIT, "release": Kind.RAISE, "acq_rel": Kind.BOTH}
    kind = next((kinds[order] for order in kinds if f".{order}" in opcode), Kind.WORD)
    if ".cas" in opcode:
        thread.event(kind, instruction, where)
        thread.put(target, thread.value(operands[1]) if taken else None)
        return
    _word(thread, instruction, taken, kind, where, target)


def _word(
    thread: Thread,
    instruction: Instruction,
    taken: bool | None,
    kind: Kind,
    where: Number,
    target: str | tuple[str, ...],
) -> None:
    """An access of a word, which one thread of a program does; for the others it stands at the same place."""
    if where is None and not taken:
        return
    thread.event(kind, instruction, where)
    value = None
    if taken and where is not None:
        value = thread.memory.next_word(where)[0]
    if target:
        thread.put(target[0] if isinstance(target, tuple) else target, value)


def _barrier(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    thread.barriers[instruction.operands[0] == _ALL_WARPS] += 1
    if ".arrive" not in instruction.opcode:
        thread.mark(Kind.BARRIER, instruction)


def _fence(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    if "proxy.async" in instruction.opcode and "shared" not in instruction.opcode:
        thread.mark(Kind.FENCE, instruction)


def _copy(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    opcode, operands = instruction.opcode, instruction.operands
    if opcode.startswith("cp.async.bulk.wait_group"):
        if ".read" not in opcode and operands[0] == "0":
            thread.mark(Kind.DRAIN, instruction)
        return
    if "commit_group" in opcode or "wait_" in opcode or "mbarrier.arrive" in opcode:
        return
    if not opcode.startswith("cp.async.bulk"):
        if taken is not False and (len(operands) < 4 or thread.value(operands[3]) != 0):
            thread.event(Kind.LOAD, instruction, thread.address(operands[1]))
        return
    if taken is False:
        return
    stores = ".global.shared" in opcode
    tensor = operands[0] if stores else operands[1]
    thread.event(Kind.STORE if stores else Kind.LOAD, instruction, _tile(thread, tensor, instruction), descriptor=True)


def _tile(thread: Thread, operand: str | tuple[str, ...], instruction: Instruction) -> Number:
    """First address of the box `[descriptor, {col, row}]`."""
    found = re.match(r"\[\s*([%\w$]+)\s*,\s*\{([^}]*)\}", str(operand))
    where = thread.value(found[1]) if found is not None else None
    if found is None or where is None or where < PARAMETERS:
        raise CannotFollow(what="a descriptor that is not a parameter", text=instruction.text)
    descriptor = thread.arguments[(where - PARAMETERS) // PAGE]
    col, row = (thread.value(one.strip()) for one in found[2].split(","))
    if not isinstance(descriptor, Descriptor) or row is None or col is None:
        raise CannotFollow(what="a place that depends on data", text=instruction.text)
    signed = [(one + (1 << 31)) % (1 << 32) - (1 << 31) for one in (row, col)]
    return descriptor.box(signed[0], signed[1]).first


def _elect(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    thread.put(instruction.operands[0], int(thread.thread % 32 == 0))


def _shuffle(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    """Lanes hold the same, as far as addresses and conditions go."""
    target = str(instruction.operands[0]).split("|")[0]
    thread.put(target, thread.value(instruction.operands[1]) if taken else None)


def _compare(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    if taken is False:
        return
    values = [thread.value(operand) for operand in instruction.operands[1:]]
    thread.put(instruction.operands[0], compare(instruction.opcode, values) if taken else None)


def _choose(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    a, b, condition = (thread.value(operand) for operand in instruction.operands[1:])
    if taken is not False:
        thread.put(instruction.operands[0], None if condition is None else a if condition else b)


def _nothing(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    """Shared memory and tensor cores: order among those is that of other instructions."""


def _try_wait(thread: Thread, instruction: Instruction, taken: bool | None) -> None:
    if "wait" in instruction.opcode:
        thread.put(instruction.operands[0], 1)


_SPECIAL_INSTRUCTIONS: dict[str, Callable[[Thread, Instruction, bool | None], None]] = {
    "mov": _move,
    "ld": _load,
    "st": _store,
    "multimem": _store,
    "atom": _atomic,
    "red": _atomic,
    "call": _call,
    "bar": _barrier,
    "barrier": _barrier,
    "fence": _fence,
    "cp": _copy,
    "elect": _elect,
    "shfl": _shuffle,
    "setp": _compare,
    "selp": _choose,
    "mbarrier": _try_wait,
    "wgmma": _nothing,
    "stmatrix": _nothing,
    "setmaxnreg": _nothing,
    "nanosleep": _nothing,
    "membar": _nothing,
    "griddepcontrol": _nothing,
}
