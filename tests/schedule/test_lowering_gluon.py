"""Phases in ping-pong, printed in Gluon from their steps: what today's printers print, on any steps that have this form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

import topologies
from lowering.emit import emit
from lowering.steps.errors import NotPrinted
from lowering.steps.file import lower
from lowering.steps.gluon import one_by_one
from lowering.steps.planned import lower_planned
from lowering.steps.renaming import with_own_names
from tests.pipeline.test_turns import CASES, planned
from tests.replay import surface
from tests.replay.cases import STOCK, Case, cases
from tests.replay.normal import normal_ir
from tests.schedule.test_lowering_planned import alike, results
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.roles import Phase, PingPong, Role, Schedule
from tilelink.schedule.steps import Compute, For, Load, Step, Store, Wait
from tilelink.schedule.walk import mapped, phases, with_bodies

QUICK = "parts by stores"


@pytest.mark.parametrize("name", [QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in CASES if one != QUICK)])
def test_the_bits_are_those_of_today(name: str) -> None:
    """On emulated ranks, under the race detector; what is compiled keeps the order of accesses."""
    quick = name == QUICK
    alike(planned(name, 2 if quick else 4), seeds=(7,) if quick else (0, 7), compiled=not quick)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sums, copies", "gather"])
def test_weights_that_lie_as_n_k(name: str) -> None:
    alike(planned(name, k_major=True))


def steps(name: str, ranks: int = 2) -> Schedule:
    return with_own_names(elaborated(planned(name, ranks)))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_those_of_one_tile_after_the_other(name: str) -> None:
    """The same steps without groups, in Triton: ping-pong changes who does them, and when."""
    one = steps(name)
    both = [load_source(lower(form), "turns") for form in (one, one_by_one(one))]
    assert all("warp_specialize" in lower(form) for form in (one,))
    same(*(results(module, 2, seed=3) for module in both))


def same(ours: list[object], theirs: list[object]) -> None:
    import torch

    assert len(ours) == len(theirs) > 0
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))  # type: ignore[arg-type]
