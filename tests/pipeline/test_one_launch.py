"""Matmuls in one launch at sizes, tiles and movers that nobody picked: proved, and equal to the reference."""

from __future__ import annotations

import random

import pytest

import lowering
import topologies
from tests.pipeline.operators import qkv, side_by_side
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from topologies.errors import UserError

TILES = ("16x16x16/4w1s", "16x32x16/4w2s", "32x16x32/4w1s", "32x32x16/4w2s2p")
MOVERS: tuple[dict[str, str], ...] = (
    {"mover": "CopyEngine()", "transfer": "push"},
    {"mover": "CopyEngine()", "transfer": "pull"},
    {"mover": "Fused()", "transfer": "pull"},
    {"x_full.mover": "OwnKernel()"},
    {"x_full.mover": "Library()"},
    {"x_full.mover": "Fused()", "protocol": "lamport"},  # gathered by all programs, before their tiles
    {},
)


def drawn(rng: random.Random) -> Schedule | None:
    """A schedule with several matmuls in a launch, or None if there is none of these choices."""
    ranks = rng.choice((2, 3, 4))
    machine = topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), ranks)
    operator = rng.choice((qkv, qkv, side_by_side))
    names = operator.spec.symbols()
    sizes = {name: ranks * rng.choice((4, 16, 20, 36)) for name in names}
    pins = {"compute": "triton", "tile": rng.choice(TILES), "tail": "whole"}
    if operator is qkv:
        pins |= rng.choice(MOVERS)
        pins |= {"chunks": rng.choice(("1", "2"))} if "mover" in pins else {}
    try:
        schedule = operator.plan_for(machine, sizes, "bf16", pins)
    except UserError:
        return None
    return schedule if any(one.compute is not None and one.compute.first for one in schedule.kernels()) else None


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.quick(3)
def test_it_is_proved_and_right(seed: int) -> None:
    rng = random.Random(seed)
    schedule = next(one for one in (drawn(rng) for _ in range(20)) if one is not None)
    assert verify(schedule).proved
    result = run_emulated(schedule, lowering.emit(schedule), calls=3, seed=seed)
    assert result.equal, f"{result.lines()}\n{schedule}"
