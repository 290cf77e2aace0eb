"""What lets a search pass choices over: bounds are below the predicted time, and limits change no time below them."""

from __future__ import annotations

import math
import random

import pytest

from tests.planner.grid import EXPERTS, Cell, cells, chain, mlp, sampled_cells
from tilelink.ir.choices import ComputeChoice, ExchangeChoice
from tilelink.ir.spec import bind
from tilelink.planner.bounds import least_us
from tilelink.planner.build import build
from tilelink.planner.cost import predict_us
from tilelink.planner.decisions import Chosen, Option, Slot, choices_of
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.predicted import time_us
from tilelink.planner.roles import compute_role
from tilelink.planner.search import descent_of
from tilelink.planner.space import structures
from tilelink.planner.structure import Structure


def sampled(cell: Cell, rng: random.Random, count: int) -> list[tuple[Structure, Chosen]]:
    """Options of structures of the cell, each at random; not all are legal."""
    spec = bind(cell.spec.spec, cell.sizes, cell.topology.num_ranks, "bf16")
    every = list(structures(spec, cell.topology, {}))
    found: list[tuple[Structure, Chosen]] = []
    for _ in range(count):
        structure = rng.choice(every)
        search, _ = descent_of(structure, {})
        if search is not None:
            chosen = {slot: rng.choice(options) for slot, options in search.slots.items()}
            found.append(
                (structure, {slot: rng.choice((one, *search.last[slot, one])) for slot, one in chosen.items()})
            )
    return found


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(40))
def test_bounds_and_limits(seed: int) -> None:
    rng = random.Random(seed)
    (cell,) = sampled_cells(1, seed)
    for structure, chosen in sampled(cell, rng, 8):
        problem = Problem(structure, choices_of(structure, chosen))
        try:
            us, exact = time_us(problem, math.inf)
        except Illegal:
            continue
        assert exact and least_us(structure, chosen) <= us + 1e-3, f"{cell}, {chosen}"
        search, _ = descent_of(structure, {})
        assert search is not None and search.least_us <= us + 1e-3, f"{cell}, {chosen}"
        assert time_us(problem, us + 1e-2) == (us, True), f"{cell}, {chosen}"
        beyond, exact = time_us(problem, 0.97 * us)
        assert not exact and 0.97 * us <= beyond <= us


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(30))
def test_bounds_of_experts(seed: int) -> None:
    rng = random.Random(seed)
    cell = rng.choice(EXPERTS)
    for structure, chosen in sampled(cell, rng, 12):
        try:
            us, _ = time_us(Problem(structure, choices_of(structure, chosen)), math.inf)
        except Illegal:
            continue
        search, _ = descent_of(structure, {})
        assert search is not None and search.least_us <= us + 1e-3, f"{cell}, {chosen}"
        assert least_us(structure, chosen) <= us + 1e-3, f"{cell}, {chosen}"


def in_small_chunks(cell: Cell, rng: random.Random, count: int) -> list[tuple[Structure, Chosen]]:
    """Options with as many chunks as there are, and with large tiles: a chunk may have no tile of its own. Sums by their own
    kernels."""
    spec = bind(cell.spec.spec, cell.sizes, cell.topology.num_ranks, "bf16")
    every = [search for one in structures(spec, cell.topology, {}) if (search := descent_of(one, {})[0]) is not None]
    found: list[tuple[Structure, Chosen]] = []
    for search in rng.choices([one for one in every if one.timing.structure.relations] or every, k=count):
        chosen: dict[Slot, Option] = {}
        for slot, options in search.slots.items():
            most = max(one.chunks if isinstance(one, ExchangeChoice) else 0 for one in options)
            some = [one for one in options if not isinstance(one, ExchangeChoice) or one.chunks == most]
            loops = [one for one in some if isinstance(one, ComputeChoice) and not one.sum_in_epilogue]
            chosen[slot] = rng.choice(some if most else loops[:4])
        found.append((search.timing.structure, chosen))
    return found


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", [11, *range(11)])
def test_bounds_of_small_chunks(seed: int) -> None:
    rng = random.Random(seed)
    slow = [one for one in cells() if one.spec in (mlp, chain) and one.topology.name in ("laptop-mesh", "l20-pcie")]
    cell, checked = rng.choice(slow), 0
    for structure, chosen in in_small_chunks(cell, rng, 24):
        try:
            us, _ = time_us(Problem(structure, choices_of(structure, chosen)), math.inf)
        except Illegal:
            continue
        checked += 1
        assert least_us(structure, chosen) <= us + 1e-3, f"{cell}, {chosen}"
    assert checked, cell


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(20))
def test_the_time_is_that_of_the_schedule(seed: int) -> None:
    """Without a schedule the same is predicted as of it, and what other choices have left in memory changes nothing."""
    rng = random.Random(seed)
    (cell,) = sampled_cells(1, seed + 100)
    for structure, chosen in sampled(cell, rng, 4):
        problem = Problem(structure, choices_of(structure, chosen))
        try:
            us, _ = time_us(problem, math.inf)
        except Illegal as illegal:
            with pytest.raises(Illegal) as again:
                build(problem)
            assert str(again.value) == str(illegal)
            continue
        schedule = build(problem)
        assert schedule.predicted_us == us == pytest.approx(predict_us(schedule, cell.topology), abs=1e-3)


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(12))
def test_what_a_group_sees_decides_its_tiles(seed: int) -> None:
    """Roles are remembered by it."""
    rng = random.Random(seed)
    (cell,) = sampled_cells(1, seed + 200)
    for structure, chosen in sampled(cell, rng, 6):
        problem = Problem(structure, choices_of(structure, chosen))
        for index in range(len(structure.groups)):
            if problem.host(index) == index and not structure.is_library(index):
                assert _role_or_reason(problem, index) == _role_or_reason(problem.seen_by(index), index)


def _role_or_reason(problem: Problem, index: int) -> object:
    try:
        return compute_role(problem, index, 64)
    except Illegal as illegal:
        return str(illegal)
