"""Kernels in which no order can be seen: nothing that they load is written while they run, by themselves or beside them.

An index program stores tables at addresses that depend on ids, which no trace follows. It need not be followed: who reads the
tables begins behind the launch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilelink.compiled.events import STORAGE_BITS, Descriptor
from tilelink.compiled.launches import Prepared
from tilelink.compiled.mlir import Function, Op, Region, callee, carried

_Roots = frozenset[int]  # allocations that an address may be in
_NOWHERE: _Roots = frozenset()
_ENDS = ("scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return")
_KNOWN = ("arith.", "math.", "scf.", "ub.")
_KNOWN_OF_TRITON = re.compile(
    r"tt\.(addptr|bitcast|broadcast|call|cat|expand_dims|gather|get_num_programs|get_program_id|histogram|join|make_range"
    r"|reduce(\.return)?|reshape|return|scan(\.return)?|splat|split|trans)"
)


@dataclass(slots=True)
class _Accesses:
    """Allocations that a kernel loads, and how many operations store or count in each; `strange`: it does something else."""

    loaded: set[int] = field(default_factory=set)
    stored: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    counted: set[int] = field(default_factory=set)
    strange: bool = False


def order_unseen(functions: Mapping[str, Function], kernel: Prepared) -> bool:
    """Whether it makes no difference to anybody in which order `kernel`, of these functions as they are written, accesses
    memory. False where that is not known.

    It is so where no allocation is loaded that the launch or somebody beside it writes, none that somebody beside it reads is
    written, and one operation at most writes each. An atomic operation whose result nobody reads counts as one that writes.
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


class _Flow:
    """Where addresses come from, whichever way the control flow goes."""

    def __init__(self, functions: Mapping[str, Function], found: _Accesses) -> None:
        self.functions, self.found = functions, found

    def run(self, function: Function, given: Sequence[_Roots]) -> _Roots:
        """Adds the accesses of a call; what it returns may point to these allocations."""
        roots: dict[str, _Roots] = {name: one for (name, _), one in zip(function.parameters, given, strict=True)}
        ops = list(_every(function.body))
        read = {name for op in ops for name in op.operands}
        returned, before = _NOWHERE, -1
        while before != (before := sum(map(len, roots.values()))):
            for op in ops:
                if op.name != "tt.call":
                    returned |= self._pass_on(op, roots)
        for op in ops:
            self._access(op, roots, read)
            if op.name == "tt.call":
                inner = self.functions.get(callee(op))
                arguments = [roots.get(name, _NOWHERE) for name in op.operands]
                if inner is None or len(inner.parameters) != len(arguments) or self.run(inner, arguments):
                    self.found.strange = True  # a function that is not known, or that returns an address
        return returned

    @staticmethod
    def _pass_on(op: Op, roots: dict[str, _Roots]) -> _Roots:
        """Results of `op`, and what a loop carries, point where its operands do; what it returns does."""
        if op.name == "tt.load":
            return _NOWHERE
        into = [*op.results, *(name for name, _ in carried(op))] if op.name.startswith("scf.") else op.results
        names = [*op.operands, *(name for inner in _ends(op) for name in inner.operands)]
        reached = _NOWHERE.union(*(roots.get(name, _NOWHERE) for name in names))
        if reached:
            for name in into:
                roots[name] = roots.get(name, _NOWHERE) | reached
        return reached if op.name == "tt.return" else _NOWHERE

    def _access(self, op: Op, roots: Mapping[str, _Roots], read: set[str]) -> None:
        name, found = op.name.removeprefix("tt."), self.found
        at = roots.get(op.operands[0], _NOWHERE) if op.operands else _NOWHERE
        match name:
            case "load" | "store" | "atomic_rmw" if not at:
                found.strange = True
            case "load":
                found.loaded |= at
            case "store":
                for one in at:
                    found.stored[one] += 1
            case "atomic_rmw" if not read & set(op.results):
                found.counted |= at
            case _ if op.name.startswith(_KNOWN) or _KNOWN_OF_TRITON.fullmatch(op.name):
                pass
            case _:
                found.strange = True


def _every(region: Region) -> Iterator[Op]:
    for block in region.blocks:
        for op in block.ops:
            yield op
            for inner in op.regions:
                yield from _every(inner)


def _ends(op: Op) -> Iterator[Op]:
    """Operations that say what regions of `op` result in."""
    for region in op.regions:
        for block in region.blocks:
            yield from (one for one in block.ops if one.name in _ENDS)
