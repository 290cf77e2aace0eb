"""The judge of steps: a mutant is killed if the proof refutes it, or if it computes something else than the original.

Who is still proved does the same in any order of programs, so that a few runs in some order show what that is. What then is
equal *is* equivalent: no rule says so by the form of a mutant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tilelink.mutation.mutant import StepMutant, Verdict
from tilelink.proof.happens_before.check import checked
from tilelink.schedule.exact_ops import OPS, Op
from tilelink.schedule.interpreter import Interpreter
from tilelink.schedule.memory import Memory
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Compute
from tilelink.schedule.walk import all_steps

Array = NDArray[np.float64]
Outputs = list[list[dict[str, Array]]]  # of each call, of each rank, by name
SEEDS = (0, 1)  # of inputs, and of the order of programs
CALLS = 3  # words that hold two calls in turn come round
SAME_MEANING = "still proved, computes the same"
_MADE = ("zeros", "full")  # ops of the language itself


@dataclass(frozen=True)
class JudgeSteps:
    """Of mutants of `original`. `tables` are integer arrays by name; `ops` mean what the interpreter does not know: without
    them, such an op is some function of all its operands."""

    original: Schedule
    tables: Mapping[str, object] = field(default_factory=dict)
    ops: Mapping[str, Op] = field(default_factory=dict)
    _right: dict[int, Outputs] = field(default_factory=dict, init=False, repr=False, compare=False)  # by seed

    def __call__(self, mutant: StepMutant) -> Verdict:
        refutation = checked(mutant.schedule, self.tables).refutation
        if refutation is not None:
            return Verdict(True, "proof", " ".join(str(refutation).split()))
        for seed in SEEDS:
            try:
                found = self._run(mutant.schedule, seed)
            except Exception as error:  # a schedule of which a step has no meaning: any lookup may fail
                return Verdict(True, "interpreter", f"{type(error).__name__}: {error}")
            if seed not in self._right:
                self._right[seed] = self._run(self.original, seed)
            other = next(_differing(self._right[seed], found), "")
            if other:
                return Verdict(True, "interpreter", other)
        return Verdict(False, SAME_MEANING, "")

    def _run(self, schedule: Schedule, seed: int) -> Outputs:
        """Outputs of `CALLS` calls, with inputs that `seed` draws for the original."""
        ops: dict[str, Op] = {
            name: partial(_some_function, number, results) for number, (name, results) in enumerate(self._ops())
        }
        tables = {name: np.asarray(table, np.int64) for name, table in self.tables.items()}
        run, drawn = Interpreter(schedule, ops | dict(self.ops), tables, seed), np.random.default_rng(seed)
        shapes = {
            one.name: self.original.shapes[one.name] for one in self.original.buffers if one.memory is Memory.INPUT
        }
        calls = []
        for _ in range(CALLS):
            ranks = range(self.original.num_ranks)
            calls.append(
                run.call([{name: drawn.standard_normal(shape) for name, shape in shapes.items()} for _ in ranks])
            )
        return calls

    def _ops(self) -> list[tuple[str, int]]:
        """Ops without a meaning, with the number of their results."""
        steps = [step for step in all_steps(self.original) if isinstance(step, Compute)]
        known = {*OPS, *self.ops, *_MADE}
        return sorted({step.op: len(step.results) for step in steps if step.op not in known}.items())


def _some_function(number: int, results: int, *operands: Array) -> Array | tuple[Array, ...]:
    """Numbers that depend on every element of every operand and on its place."""
    total = float(number)
    for operand in operands:
        flat = np.asarray(operand, np.float64).ravel()
        total = 0.7 * total + float(np.sin(flat + total) @ np.cos(np.arange(flat.size))) / max(flat.size, 1)
    found = tuple(np.asarray(total + one) for one in range(results))
    return found if results > 1 else found[0]


def _differing(right: Outputs, found: Outputs) -> Iterator[str]:
    for call, ranks in enumerate(zip(right, found, strict=True), 1):
        for rank, (wanted, got) in enumerate(zip(*ranks, strict=True)):
            for name, one in wanted.items():
                other = got.get(name, np.zeros(0))
                if one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True):
                    yield f"{name} of call {call} on rank {rank} is another one"
