"""Tiles of attention fit shared memory: what the compiler allocates is no more than what the planner counts."""

from __future__ import annotations

import pytest
import triton

import lowering
import topologies
from tests.pipeline.attention_specs import How, spec_of
from tilelink.compiled.launches import Launches
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access
from tilelink.planner.attention_cost import fold_of
from tilelink.planner.fields import TILE
from tilelink.planner.tiles import attention_bytes
from tilelink.runtime.load import load_source

MOST = 232_448  # of a program on H100 and H200 (CUDA programming guide)
SHAPES = (
    "128x128x64/8w3s",
    "128x128x64/8w2s",
    "64x128x64/4w3s",
    "64x128x64/4w2s",
    "32x128x32/4w2s",
    "128x128x128/4w2s2g",
)


def allocated(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of the kernel that needs most."""
    found, compile_ = [0], triton.compile

    def compiled(*given: object, **named: object) -> object:
        kernel = compile_(*given, **named)
        found.append(kernel.metadata.shared)
        return kernel

    monkeypatch.setattr(triton, "compile", compiled)
    for launch in Launches(load_source(lowering.emit(schedule), "shared"), schedule.num_ranks, 1, "sm_90"):
        launch.prepare()
    return max(found)


@pytest.mark.slow
@pytest.mark.parametrize("how", [How(), How(causal=True), How(True, 300)], ids=str)
@pytest.mark.parametrize(
    "sizes",
    [
        {"B": 1, "S": 1024, "Q": 8, "G": 4},
        {"B": 1, "S": 1000, "Q": 8, "G": 4},
        {"B": 4, "S": 54, "Q": 8, "G": 4},
        {"B": 1, "S": 92, "Q": 32, "G": 8},  # loops over keys are of one round
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", ["", *SHAPES])
def test_what_is_allocated_was_counted(
    shape: str, sizes: dict[str, int], how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, machine = spec_of("gathered", how), topologies.load("h200-nvswitch", 2)
    pins = {"tile": shape, "mover": "CopyEngine()"} if shape else {}
    try:
        schedule = spec.plan_for(machine, sizes | {"D": 128}, "bf16", pins)
    except topologies.errors.UserError:
        pytest.skip("it is not planned")
    (role,) = (one.compute for one in schedule.kernels() if one.compute is not None)
    fold, tile = fold_of(role), TILE.parsed(dict(schedule.choices)[f"{role.name}.tile"])
    assert fold is not None and tile is not None
    if tile.m > 2 * role.axes[0].extent:
        pytest.skip("most of the tile would be empty: it is planned only if pinned")
    counted = attention_bytes(tile, "bf16", by_pointer=fold.keys.access is Access.POINTER)
    assert allocated(schedule, monkeypatch) <= counted <= MOST
