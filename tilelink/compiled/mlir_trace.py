"""One program of a kernel in Triton's IR, before or after passes -> its events. Addresses, indices and conditions are computed,
data are not: a loop whose condition depends on data ends, a branch on data is taken."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tilelink.compiled.errors import CannotFollow
from tilelink.compiled.mlir import Block, Function, Op, Region, call_arguments, callee, carried
from tilelink.compiled.mlir_accesses import ACCESSES
from tilelink.compiled.mlir_state import Full, State, Value
from tilelink.compiled.mlir_values import VALUES

_ENDS = frozenset(("scf.yield", "tt.return", "scf.condition", "ttg.warp_yield", "ttg.warp_return", "tt.reduce.return"))


@dataclass(slots=True)
class Tracer(State):
    """Runs functions of one module."""

    functions: dict[str, Function] = field(kw_only=True)
    _operations: int = 0

    def run(self, name: str, arguments: list[Value]) -> None:
        """Trace the function `name`. Raises CannotFollow."""
        self.current = self.traces[0]
        self._guarded(lambda: self.call(self.functions[name], arguments))

    def _guarded(self, run: Callable[[], object]) -> None:
        try:
            run()
        except Full:
            self.complete = False

    def call(self, function: Function, arguments: list[Value]) -> list[Value]:
        names = [name for name, _ in function.parameters]
        return self.region(function.body, dict(zip(names, arguments, strict=True)))[1]

    def region(self, region: Region, values: dict[str, Value]) -> tuple[str, list[Value]]:
        """Run to the terminator; returns it with its operands."""
        block = region.blocks[0]
        while True:
            last = self._block(block, values)
            if last is None:
                return "", []
            if last.name in _ENDS:
                return last.name, [values[name] for name in last.operands]
            block = self._jump(region, last, values)

    def _jump(self, region: Region, last: Op, values: dict[str, Value]) -> Block:
        """The next block of a function with an early return."""
        targets = re.findall(r"(\^\w+)(?:\(([^)]*)\))?", last.text)
        taken = 0
        if last.name == "cf.cond_br":
            condition = self.number(values[last.operands[0]])
            taken = 1 if condition == 0 else 0
        label, passed = targets[taken]
        block = next(one for one in region.blocks if one.label == label)
        given = [values[name] for name in re.findall(r"%[\w$.\-]+(?:#\d+)?", passed.split(":")[0])]
        values.update(zip(block.arguments, given, strict=True))
        return block

    def _block(self, block: Block, values: dict[str, Value]) -> Op | None:
        for op in block.ops:
            if op.name in _ENDS or op.name.startswith("cf."):
                return op
            self._operations += 1
            if self._operations > self.limits.operations:
                raise Full
            handler = HANDLERS.get(op.name)
            if handler is not None:
                handler(self, op, values)
            elif _touches_memory(op.name):
                raise CannotFollow(what=f"operation {op.name}", text=op.text)
            else:
                values.update(dict.fromkeys(op.results))
        return None

    def groups(self, op: Op, values: dict[str, Value]) -> None:
        before, self.current = self.current, self.traces[0]
        self.region(op.regions[0], values)
        for number, region in enumerate(op.regions[1:], start=1):
            while len(self.traces) <= number:
                self.traces.append([])
            self.current = self.traces[number]
            given = dict(zip(region.blocks[0].arguments, (values[name] for name in op.operands), strict=True))
            self._guarded(lambda region=region, given=given: self.region(region, {**values, **given}))  # type: ignore[misc]
        self.current = before


def _touches_memory(name: str) -> bool:
    return any(part in name for part in ("load", "store", "atomic", "_copy", "tma", "gather", "scatter")) and not (
        name.startswith(("ttg.local", "ttng.async_tma_store_wait", "ttg.memdesc", "tt.gather"))  # of registers
    )


def _for(tracer: Tracer, op: Op, values: dict[str, Value]) -> None:
    header = re.search(r"scf\.for (%[\w$.\-]+) = (%\S+) to (%\S+) step (%\S+)", op.text)
    assert header is not None, op.text
    start, end, step = (tracer.number(values[name]) for name in header.groups()[1:])
    if start is None or end is None or step is None:
        raise CannotFollow(what="a loop whose length depends on data", text=op.text)
    names = carried(op)
    state = [values[outside] for _, outside in names]
    for index in range(start, end, step):
        values[header[1]] = index
        values.update(zip((inside for inside, _ in names), state, strict=True))
        _, state = tracer.region(op.regions[0], values)
    values.update(zip(op.results, state, strict=True))


def _while(tracer: Tracer, op: Op, values: dict[str, Value]) -> None:
    names = carried(op)
    state = [values[outside] for _, outside in names]
    while True:
        values.update(zip((inside for inside, _ in names), state, strict=True))
        _, found = tracer.region(op.regions[0], values)
        go_on, state = tracer.number(found[0]), list(found[1:])
        if not go_on:  # also where it depends on data: what is waited for has come
            break
        values.update(zip(op.regions[1].blocks[0].arguments, state, strict=True))
        _, state = tracer.region(op.regions[1], values)
    values.update(zip(op.results, state, strict=True))


def _if(tracer: Tracer, op: Op, values: dict[str, Value]) -> None:
    taken = tracer.number(values[op.operands[0]]) != 0  # one that depends on data is taken
    if taken or len(op.regions) > 1:
        _, found = tracer.region(op.regions[0 if taken else 1], values)
        values.update(zip(op.results, found, strict=True))


def _invoke(tracer: Tracer, op: Op, values: dict[str, Value]) -> None:
    function = tracer.functions[callee(op)]
    found = tracer.call(function, [values[name] for name in call_arguments(op)])
    values.update(zip(op.results, found, strict=True))


Handler = Callable[[Tracer, Op, dict[str, Value]], None]
HANDLERS: dict[str, Handler] = {
    **VALUES,
    **ACCESSES,
    "scf.for": _for,
    "scf.while": _while,
    "scf.if": _if,
    "tt.call": _invoke,
    "ttg.warp_specialize": Tracer.groups,
}
