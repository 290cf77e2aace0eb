"""Results of all ranks against what they should be, element by element."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from lowering.libraries import library_values
from lowering.selfcheck.compare import Comparison
from lowering.selfcheck.near import Near
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import BoundSpec
from tilelink.runtime.bounds import Parts, near_values
from tilelink.runtime.meaning import cut, evaluate, whole_inputs
from tilelink.threads import one_thread

Outputs = Sequence[tuple[torch.Tensor, ...]]  # by rank


@dataclass(frozen=True, slots=True)
class Difference:
    """An output of one call on one rank that has wrong elements. `text` says where and how far off they are."""

    call: int
    rank: int
    output: str
    wrong: int  # elements
    elements: int
    rows: tuple[int, int]  # first and last row with a wrong element
    cols: tuple[int, int]
    error: float  # the largest, in units of the bound of its element
    text: str

    def line(self) -> str:
        return f"{self.output} on rank {self.rank}, call {self.call}: {self.text}"


@dataclass(frozen=True, slots=True)
class Found:
    """`error`: the largest of all elements, in units of the bound of its element."""

    error: float
    differences: tuple[Difference, ...]


def outputs_with_bounds(spec: BoundSpec, ranks: Parts, library: Collection[str]) -> list[tuple[Near, ...]]:
    """Outputs of every rank: what `spec` means, and how far from it a right result may be. `library` as in `near_values`.

    Raises NoReference and ReferenceFailed.
    """
    with one_thread():
        values = evaluate(spec, whole_inputs(spec, ranks))
        near = near_values(spec, ranks, library, spec.outputs)

    def part(name: str, rank: int) -> Near:
        (found,), placement = near[name], spec.value(name).placement  # no output is Partial
        error = found.error
        if not isinstance(error, float):
            error = cut(error, placement, rank, spec.num_ranks)
        return Near(cut(values[name], placement, rank, spec.num_ranks), error)

    return [tuple(part(name, rank) for name in spec.outputs) for rank in range(spec.num_ranks)]


def compare_ranks(names: Sequence[str], results: Outputs, wanted: Sequence[tuple[Near, ...]], call: int) -> Found:
    """One call: the outputs `names` of every rank."""
    worst, differences = 0.0, []
    for rank, (outputs, nears) in enumerate(zip(results, wanted, strict=True)):
        for name, output, near in zip(names, outputs, nears, strict=True):
            one = Comparison.of(output, near)
            worst = max(worst, one.error)
            if not one.equal:
                differences.append(difference(one, call, rank, name))
    return Found(worst, tuple(differences))


def compare_call(schedule: Schedule, ranks: Parts, results: Outputs, call: int = 0) -> Found:
    """One call of an operator of `schedule`, with local inputs `ranks`. Raises NoReference and ReferenceFailed."""
    wanted = outputs_with_bounds(schedule.spec, ranks, library_values(schedule))
    return compare_ranks(schedule.spec.outputs, results, wanted, call)


def difference(one: Comparison, call: int, rank: int, output: str) -> Difference:
    return Difference(call, rank, output, one.wrong, one.elements, one.rows, one.cols, one.error, one.text())
