"""Every tile of every role is computed exactly once on every rank, and the tiles cover what the op writes."""

from __future__ import annotations

import random

import numpy as np
import pytest

import topologies
from tests.pipeline.random_specs import random_spec
from tilelink.ir.nodes import ComputeRole
from tilelink.planner.sample import sample_schedule


def painted(role: ComputeRole, rank: int) -> np.ndarray:
    """How often each element of the written axes is computed, segments behind each other."""
    major = role.axis(role.order.major)
    minor = role.axis(role.order.minor) if role.order.minor else None
    shape = (major.segments * major.extent, minor.segments * minor.extent if minor else 1)
    count = np.zeros(shape, np.int64)
    minor_tiles = minor.segments * minor.tiles if minor else 1
    for place, tile, other in role.order.sequence(major.tiles, minor_tiles, major.segments):
        segment = role.order.ranks.at(rank, place) if major.segments > 1 else 0
        first = tile * major.tile
        rows = slice(segment * major.extent + first, segment * major.extent + min(first + major.tile, major.extent))
        cols = slice(0, 1)
        if minor:
            part, inner = divmod(other, minor.tiles)
            part = role.order.minor_ranks.at(rank, part) if minor.segments > 1 else 0
            start = inner * minor.tile
            cols = slice(part * minor.extent + start, part * minor.extent + min(start + minor.tile, minor.extent))
        count[rows, cols] += 1
    return count


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed >= 20 else []) for seed in range(40)]
)
def test_every_element_once(seed: int) -> None:
    rng = random.Random(seed)
    num_ranks = rng.choice((2, 3, 4, 8))
    spec = random_spec(rng, num_ranks)
    schedule = sample_schedule(spec, topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), num_ranks), rng)
    for kernel in schedule.kernels():
        assert kernel.programs <= schedule.machine.num_sms
        assert kernel.compute is not None
        for rank in range(num_ranks):
            assert (painted(kernel.compute, rank) == 1).all()
