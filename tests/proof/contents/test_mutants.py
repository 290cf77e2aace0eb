"""Contents against the interpreter: of a schedule whose order is proved, one execution on numbers shows whether it is right.

They share no code. The interpreter multiplies and adds numbers, contents follow which elements of which value lie where.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tests.elaborate.test_meaning import WORKLOADS, differing, inputs_of, sampled
from tests.schedule.mutants import mutants
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.spec import BoundSpec
from tilelink.proof.contents.check import contents
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.refuted import Refuted
from tilelink.runtime.meaning import evaluate, whole_inputs
from tilelink.schedule.instance import instantiated
from tilelink.schedule.interpreter import Interpreter, NeverEnds
from tilelink.schedule.roles import Schedule

PLACES = ("h200-nvswitch", "laptop-switch", "l20-pcie")
CASES = [(name, ranks, PLACES[(at + ranks) % 3]) for at, name in enumerate(WORKLOADS) for ranks in (2, 3)]


class Shapes(Exception):
    """Tiles of different shapes meet: kernels of such steps cannot be printed."""


def right(steps: Schedule, spec: BoundSpec, calls: int = 3) -> bool:
    """Whether calls give what the spec means, on numbers. Raises Shapes."""
    generator, run = torch.Generator().manual_seed(0), Interpreter(steps)
    for _ in range(calls):
        ranks = inputs_of(spec, generator)
        values = evaluate(spec, whole_inputs(spec, ranks))
        try:
            results = run.call([{name: part.numpy() for name, part in parts.items()} for parts in ranks])
        except ValueError as error:
            raise Shapes from error
        except (NeverEnds, IndexError, KeyError, AssertionError):
            return False
        if any(differing(spec, values, outputs, rank) for rank, outputs in enumerate(results)):
            return False
    return True


def refuted(steps: Schedule, spec: BoundSpec) -> bool:
    try:
        return bool(list(contents(steps, spec)))
    except (Refuted, LookupError, ValueError, AssertionError):
        return True


def right_or_unjudged(steps: Schedule, spec: BoundSpec) -> bool:
    """Whether results are right, or cannot be judged since tiles of different shapes meet."""
    try:
        return right(steps, spec)
    except Shapes:
        return True


@pytest.mark.parametrize(("workload", "ranks", "topology"), random.Random(3).sample(CASES, len(CASES)))
@pytest.mark.slow
def test_a_wrong_mutant_whose_order_is_right_is_found(workload: str, ranks: int, topology: str) -> None:
    try:
        planned = sampled(workload, ranks, topology, 1)
    except LookupError:
        pytest.skip("the spec has no schedule there")
    steps = instantiated(elaborated(planned))
    assert not refuted(steps, planned.spec)
    for what, mutant in random.Random(workload).sample(list(mutants(steps)), 40):
        if checked(mutant).refutation is not None:
            continue
        try:
            with np.errstate(all="ignore"):
                found = right(mutant, planned.spec)
        except Shapes:
            continue
        assert refuted(mutant, planned.spec) or found, what


@pytest.mark.slow
def test_wrong_mutants_are_among_them() -> None:
    """A check of mutants of which none is wrong would be no check."""
    planned = sampled("03_gemm_rs.py:gemm_rs", 2, "h200-nvswitch", 1)
    steps = instantiated(elaborated(planned))
    found = [one for _, one in random.Random(0).sample(list(mutants(steps)), 120) if checked(one).refutation is None]
    wrong = [one for one in found if refuted(one, planned.spec) and not right_or_unjudged(one, planned.spec)]
    assert len(wrong) > 5
