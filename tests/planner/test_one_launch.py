"""Matmuls in one launch: predicted as they run, found by the search, and only where nothing forbids it."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import topologies
from tests.pipeline.operators import AG_GEMM, qkv, side_by_side
from tilelink.ir.nodes import Kernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.bounds import least_us
from tilelink.planner.decisions import choices_of
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.loop import Loop, last_ends
from tilelink.planner.predicted import time_us
from tilelink.planner.search import descent_of
from tilelink.planner.space import structures
from tilelink.planner.terms import account_of

H200 = topologies.load("h200-nvswitch", 4)
SIZES = {"M": 4096, "K": 8192, "Q": 8192, "V": 1024}


def kernels(schedule: Schedule) -> list[Kernel]:
    return [one for one in schedule.kernels() if not one.joined]


def test_they_take_as_long_as_one_matmul_of_all_columns() -> None:
    """Of which the last round of tiles is filled once, and not three times."""
    three = qkv.plan_for(H200, SIZES, "bf16", {"compute": "triton"})
    one = AG_GEMM.plan_for(H200, {"M": 4096, "K": 8192, "N": 8192 + 2 * 1024}, "bf16", {"compute": "triton"})
    assert len(kernels(three)) == 1
    assert three.predicted_us < 1.01 * one.predicted_us


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.quick(2)
def test_bounds_are_below_the_time(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {name: rng.choice((256, 1024, 4096)) for name in ("M", "K", "Q", "V")}
    seen = 0
    for structure in structures(bind(qkv.spec, sizes, 4, "bf16"), H200, {}):
        search, _ = descent_of(structure, {})
        for _ in range(12 if search is not None else 0):
            assert search is not None
            chosen = {slot: rng.choice(list(options)) for slot, options in search.slots.items()}
            loops = [slot for slot in chosen if slot[0] == "compute"]
            if rng.random() < 0.8:  # alike, as far as all of them have it
                chosen |= {slot: chosen[loops[0]] for slot in loops if chosen[loops[0]] in search.slots[slot]}
            try:
                us, _ = time_us(Problem(structure, choices_of(structure, chosen)), math.inf)
            except Illegal:
                continue
            assert least_us(structure, chosen) <= us + 1e-3
            seen += 1
    assert seen > 10


def test_terms_add_up() -> None:
    schedule = qkv.plan_for(H200, SIZES, "bf16", {"compute": "triton"})
    account = account_of(schedule, H200)
    assert abs(sum(term.us for term in account.critical) - schedule.predicted_us) < 1e-3


def test_programs_go_on_where_the_tiles_before_end() -> None:
    """Tile by tile, against a simulation that knows nothing of rows of programs."""
    rng = random.Random(1)
    for _ in range(50):
        programs, counts = rng.randint(1, 9), [rng.randint(1, 20) for _ in range(3)]
        tile_us = [rng.uniform(1, 3) for _ in counts]
        now, position, free = [0.0] * programs, 0, None
        for count, us in zip(counts, tile_us, strict=True):
            begins = 0.0 if free is None else [free[(position + at) % programs] for at in range(programs)]
            loop = Loop(programs, np.array(begins), us, 0.0)  # type: ignore[arg-type]
            nothing = np.zeros(count, dtype=bool)
            ends = loop.run(np.full(count, -np.inf), nothing, lambda ends, _: ends)
            for tile in range(count):
                now[(position + tile) % programs] += us
                assert ends[tile] == pytest.approx(now[(position + tile) % programs])
            last = last_ends(ends, programs, begins)  # type: ignore[arg-type]
            free = [0.0] * programs
            for at in range(programs):
                free[(position + at) % programs] = float(last[at])
            position += count
            assert free == pytest.approx(now)


@pytest.mark.parametrize(
    "pins",
    [
        {"x_full.mover": "CommSms(8)"},  # programs that copy run beside the tiles
        {"out_1.tile": "128x256x64/8w3s", "out_0.tile": "128x128x64/4w5s", "out_2.tile": "128x128x64/4w5s"},
        {"out_1.compute": "library", "out_0.compute": "triton", "out_2.compute": "triton"},
    ],
    ids=str,
)
def test_not_beside_what_needs_a_launch_of_its_own(pins: dict[str, str]) -> None:
    schedule = qkv.plan_for(H200, SIZES, "bf16", {"protocol": "simple", "tail": "whole"} | pins)
    assert not any(one.joined and one.compute is not None and one.compute.first == 0 for one in schedule.kernels())
    assert len(kernels(schedule)) != 1 or not schedule.kernels()


def test_they_need_not_have_anything_in_common() -> None:
    """Both alike: a last round of tiles of the first one is filled with those of the second one."""
    sizes = {"M": 4608, "K": 4096, "N": 4096, "V": 512}
    schedule = side_by_side.plan_for(H200, sizes, "bf16", {"compute": "triton", "tile": "128x128x64/4w5s"})
    assert len(kernels(schedule)) == 1
