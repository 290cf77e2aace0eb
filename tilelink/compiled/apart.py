"""Kernels in which no order can be seen: nothing that they load is written while they run, by themselves or beside them.

An index program stores tables at addresses that depend on ids, which no trace follows. It need not be followed: who reads the
tables begins behind the launch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilelink.compiled.events import STORAGE_BITS, Descriptor
from tilelink.compiled.launches import Prepared
from tilelink.compiled.mlir import Function, Op, Region, callee, carried, every_op

_Roots = frozenset[int]  # allocations that an address may be in, and _DATA if it depends on what has been loaded
_NOWHERE: _Roots = frozenset()
_DATA = -1
_ENDS = ("scf.yield", "tt.return", "tt.reduce.return", "tt.scan.return")
_KNOWN = ("arith.", "math.", "ub.")
_KNOWN_OF_SCF = ("scf.for", "scf.if", "scf.yield")
_KNOWN_OF_TRITON = re.compile(
    r"tt\.(addptr|bitcast|broadcast|call|cat|expand_dims|gather|get_num_programs|get_program_id|histogram|join|make_range"
    r"|reduce(\.return)?|reshape|return|scan(\.return)?|splat|split|trans)"
)


@dataclass(slots=True)
class _Accesses:
    """Allocations that a kernel loads, how many operations store in each, and where it only counts; `strange`: it does something
    else. One that may come to an address again, in a loop and where data say, stores twice."""

    loaded: set[int] = field(default_factory=set)
    stored: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    counted: set[int] = field(default_factory=set)
    strange: bool = False


def order_unseen(functions: Mapping[str, Function], kernel: Prepared) -> bool:
    """Whether it makes no difference to anybody in which order `kernel`, of these functions as they are written, accesses
    memory. False where that is not known.

    It is so where no allocation is loaded that the launch or somebody beside it writes, none that somebody beside it reads is
    written, and one operation at most writes each, once. An atomic operation whose result nobody reads may be done again.
    """
    entry = next(function for function in functions.values() if function.public)
    addresses = [one for one in kernel.arguments if not isinstance(one, Descriptor)]
    if len(addresses) != len(entry.parameters):
        return False
    found = _Accesses()
    given = [
        frozenset({value >> STORAGE_BITS}) if types.startswith("!tt.ptr") else _NOWHERE
        for value, (_, types) in zip(addresses, entry.parameters, strict=True)
    ]
    _Flow(functions, found).run(entry, given)
    written = set(found.stored) | found.counted
    return (
        not found.strange
        and not found.loaded & (written | kernel.written_beside)
        and not written & (kernel.written_beside | kernel.read_beside)
        and not found.counted & set(found.stored)
        and all(times == 1 for times in found.stored.values())
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation in names of one function, each of which stands for one value: MLIR numbers values of two branches alike.
    `inside`: what a loop defines for its body; `ends`: what its regions result in; `looped`: it stands in a loop."""

    op: Op
    operands: list[str]
    results: list[str]
    inside: list[str]
    ends: list[str]
    looped: bool


def _steps(region: Region, names: dict[str, str], found: list[_Step], *, looped: bool = False) -> list[str]:
    """Adds the operations of a region in which these names are known; what the region results in."""
    ends = list[str]()
    for op in (op for block in region.blocks for op in block.ops):
        operands = [names.get(name, name) for name in op.operands]
        loop = op.name == "scf.for"
        bound = [op.operands[0], *(name for name, _ in carried(op))] if loop else []
        inner = names | {name: f"{name} of {len(found)}" for name in bound}
        of_regions = [end for one in op.regions for end in _steps(one, dict(inner), found, looped=looped or loop)]
        results = [f"{name} of {len(found)}" for name in op.results]
        names |= dict(zip(op.results, results, strict=True))
        found.append(_Step(op, operands, results, [inner[name] for name in bound], of_regions, looped))
        ends += operands if op.name in _ENDS else []
    return ends


class _Flow:
    """Where addresses come from, whichever way the control flow goes."""

    def __init__(self, functions: Mapping[str, Function], found: _Accesses) -> None:
        self.functions, self.found = functions, found

    def run(self, function: Function, given: Sequence[_Roots], *, again: bool = False) -> _Roots:
        """Adds the accesses of a call, which is done `again` in a loop; what it returns may point to these allocations."""
        roots: dict[str, _Roots] = {name: one for (name, _), one in zip(function.parameters, given, strict=True)}
        steps = list[_Step]()
        returned = _steps(function.body, {name: name for name in roots}, steps)
        read = {name for step in steps for name in step.operands}
        before = -1
        while before != (before := sum(map(len, roots.values()))):
            for step in steps:
                self._pass_on(step, roots)
        for step in steps:
            many = again or step.looped
            self._access(step, roots, read, again=many)
            if step.op.name == "tt.call":
                inner = self.functions.get(callee(step.op))
                arguments = [roots.get(name, _NOWHERE) for name in step.operands]
                known = inner is not None and len(inner.parameters) == len(arguments)
                if inner is None or not known or self.run(inner, arguments, again=many) - {_DATA}:
                    self.found.strange = True  # a function that is not known, or that returns an address
        return _NOWHERE.union(*(roots.get(name, _NOWHERE) for name in returned))

    def _pass_on(self, step: _Step, roots: dict[str, _Roots]) -> None:
        """Results, and what a loop defines, point where operands do, or what regions result in."""
        reached = _NOWHERE.union(*(roots.get(name, _NOWHERE) for name in (*step.operands, *step.ends)))
        if step.op.name in ("tt.load", "tt.atomic_rmw"):
            reached = frozenset({_DATA})
        elif step.op.name == "tt.call":
            reached = frozenset({_DATA}) if _DATA in reached or self._loads(callee(step.op)) else _NOWHERE
        if reached:
            for name in (*step.results, *step.inside):
                roots[name] = roots.get(name, _NOWHERE) | reached

    def _loads(self, name: str) -> bool:
        """Whether a function loads anything, or one that it calls does."""
        ops = list(every_op(self.functions[name].body)) if name in self.functions else []
        return any(op.name == "tt.load" or (op.name == "tt.call" and self._loads(callee(op))) for op in ops)

    def _access(self, step: _Step, roots: Mapping[str, _Roots], read: set[str], *, again: bool) -> None:
        name, found = step.op.name.removeprefix("tt."), self.found
        address = roots.get(step.operands[0], _NOWHERE) if step.operands else _NOWHERE
        at = address - {_DATA}
        match name:
            case "load" | "store" | "atomic_rmw" if not at:
                found.strange = True
            case "load":
                found.loaded |= at
            case "store":
                for one in at:
                    found.stored[one] += 2 if again and _DATA in address else 1
            case "atomic_rmw" if not read & set(step.results):
                found.counted |= at
            case _ if step.op.name in _KNOWN_OF_SCF or step.op.name.startswith(_KNOWN):
                pass
            case _ if _KNOWN_OF_TRITON.fullmatch(step.op.name):
                pass
            case _:
                found.strange = True
