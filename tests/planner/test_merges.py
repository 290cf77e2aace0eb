"""Merges of states as the planner sees them: tiles that fit, splits that fill the machine, and more time for more bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import topologies
from tests.pipeline.decode_specs import How, spec_of
from tests.pipeline.workloads import load
from tests.planner.test_attention_tiles import allocated
from tilelink.ir.calls import StateMerge
from tilelink.ir.nodes import TileShape
from tilelink.plan import Plan
from tilelink.planner.fields import FOLD
from tilelink.planner.states import why_no_fold

H100 = topologies.load("h100-nvswitch", 2)
LENGTHS = How(lengths=True)
SIZES = {"B": 1, "S": 32768, "Q": 64, "G": 8, "D": 128}
FOLDS = (
    "64x128/4w4s",
    "64x128/4w3s2p",
    "64x128/4w2s3p",
    "128x128/4w3s",
    "32x128/4w3s4p",
    "32x64/4w4s4p",
    "64x64/4w4s2p",
)


def planned(kind: str = "heads", how: How = LENGTHS, pins: dict[str, str] | None = None, **sizes: int) -> Plan:
    return spec_of(kind, how).plan_for(H100, SIZES | sizes, "bf16", pins or {})


def launch_of(plan: Plan) -> StateMerge:
    (launch,) = plan.launches
    assert isinstance(launch, StateMerge)
    return launch


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [How(), How(lengths=True), How(lengths=True, window=1000), How(lengths=True, pages=True)], ids=str
)
@pytest.mark.parametrize("fold", FOLDS)
def test_what_is_allocated_was_counted(fold: str, how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    width = int(fold.partition("x")[2].partition("/")[0])
    sizes = {**SIZES, "D": width} | ({"N": 4096, "L": 16, "P": 2048} if how.pages else {})
    sizes = {name: size for name, size in sizes.items() if not how.pages or name != "S"}
    plan = spec_of("heads", how).plan_for(H100, sizes, "bf16", {"splits": "4", "fold": f"16x{fold}"})
    tile = FOLD.parsed(dict(plan.choices)["out.fold"])
    assert tile is not None and not why_no_fold(tile, "bf16", H100.gpu)
    assert (
        tile.per_sm * (allocated(plan, monkeypatch) + 1024) <= H100.gpu.shared_bytes_per_sm
    )  # of each, the hardware has 1 KB


@pytest.mark.parametrize(("sequences", "tokens"), [(1, 8192), (1, 1 << 20), (8, 8192), (64, 8192), (300, 4096)])
def test_all_programs_have_work_and_none_has_two_rounds_for_long(sequences: int, tokens: int) -> None:
    launch = launch_of(planned(B=sequences, S=tokens))
    positions = launch.tiles * launch.splits
    rounds = -(-positions // launch.programs)
    assert positions / (rounds * launch.programs) > 0.9
    assert 0.9 * 132 < launch.programs <= 132 * launch.per_sm


def test_more_bytes_take_more_time() -> None:
    times = [planned(S=tokens).predicted_us for tokens in (2048, 8192, 32768, 131072, 1 << 20)]
    assert times == sorted(times)
    assert planned("all", B=64).predicted_us > planned("heads", B=64).predicted_us


def test_few_tokens_have_no_more_splits_than_tiles() -> None:
    launch = launch_of(planned(S=96))
    assert launch.splits * launch.block < 2 * 48 + launch.block


@pytest.mark.parametrize(
    ("tokens", "width", "stages", "fits"), [(64, 128, 4, True), (128, 128, 4, False), (64, 256, 3, True)]
)
def test_shared_memory_is_counted(tokens: int, width: int, stages: int, fits: bool) -> None:
    assert (not why_no_fold(TileShape(16, tokens, width, 4, stages), "bf16", H100.gpu)) is fits


@pytest.mark.slow
def test_it_leaves_what_waiting_copies_hold() -> None:
    """One program on a stream polls until the rows of a peer are there: on an SM that no program of the merge may take."""
    few = replace(H100, gpu=replace(H100.gpu, num_sms=16))
    sizes = {"B": 4, "S": 2048, "Q": 16, "G": 8, "D": 128, "H": 256}
    pins = {"splits": "2", "fold": "16x128x128/4w3s", "out.shots": "2", "out.landing": "copied"}
    pins |= {"out_whole.mover": "CopyEngine()", "out_whole.transfer": "pull", "matmul_out.compute": "library"}
    plan = load("12_flash_decode.py:decode_and_project").plan_for(few, sizes, "bf16", pins)
    (launch,) = (one for one in plan.launches if isinstance(one, StateMerge))
    assert launch.tiles * launch.splits > launch.programs == few.gpu.num_sms - 1
