"""Kernels whose order nobody sees need not be followed; those whose order somebody may see are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import lowering
import topologies
from tests.compiled import kernels
from tests.compiled.planted import RANKS, checked
from tests.pipeline.expert_specs import SPECS
from tilelink.compiled.apart import order_unseen
from tilelink.compiled.events import STORAGE_BITS
from tilelink.compiled.launches import Prepared
from tilelink.compiled.mlir import parse
from tilelink.runtime.aot import RecordedLaunch, written_ir

IDS, TABLE, OTHER = 1, 2, 3  # allocations
SIZES = {"H": 64, "F": 64, "E": 8, "K": 2}

UNSEEN = (
    kernels.place,
    kernels.filled_in_loop,
    kernels.by_branch,
    kernels.counted,
    kernels.counted_in_loop,
    kernels.place_elsewhere,
)
SEEN = (
    kernels.place_in_loop,
    kernels.place_elsewhere_in_loop,
    kernels.filled_from_where_data_say,
    kernels.read_back,
    kernels.read_back_elsewhere,
    kernels.stored_twice,
    kernels.counted_and_stored,
    kernels.numbered,
    kernels.by_address,
    kernels.either,
)


def prepared(kernel: Any, written: frozenset[int] = frozenset(), read: frozenset[int] = frozenset()) -> Prepared:
    tensors = tuple(torch.empty(64, dtype=torch.int32, device="meta") for _ in range(3))
    text = written_ir(RecordedLaunch(kernel, (1,), (*tensors, 64), {}), "sm_90")
    addresses = tuple(number << STORAGE_BITS for number in (IDS, TABLE, OTHER))
    return Prepared(kernel.__name__, 1, 4, text, "", "", addresses, frozenset({IDS}), {}, written, read)


@pytest.mark.parametrize("kernel", UNSEEN, ids=lambda kernel: kernel.__name__)
def test_what_is_stored_and_not_loaded_has_no_order(kernel: Any) -> None:
    alone = prepared(kernel)
    assert order_unseen(parse(alone.written), alone)


@pytest.mark.parametrize("kernel", SEEN, ids=lambda kernel: kernel.__name__)
def test_what_may_be_seen_is_not_passed_over(kernel: Any) -> None:
    alone = prepared(kernel)
    assert not order_unseen(parse(alone.written), alone)


@pytest.mark.parametrize(
    ("written", "read"),
    [((TABLE,), ()), ((), (TABLE,)), ((IDS,), ())],
    ids=["stores what others store", "stores what others load", "loads what others store"],
)
def test_what_others_access_meanwhile_has_an_order(written: tuple[int, ...], read: tuple[int, ...]) -> None:
    beside = prepared(kernels.place, frozenset(written), frozenset(read))
    assert not order_unseen(parse(beside.written), beside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tokens", "pins"),
    [
        ("ag_moe", 64, {}),
        ("ag_moe", 2048, {"out.own": "first"}),
        ("moe_rs", 2048, {}),
        ("ep_layer", 64, {}),
        ("ep_layer", 2048, {"rows_value.mover": "NeededRows()"}),
        ("ep_layer", 2048, {"rows_value.mover": "NeededRows()", "rows_value.transfer": "pull"}),
        # threads hold table entries of rows that others load
        ("ep_layer", 2048, {"rows_value.mover": "NeededRows()", "h.tile": "128x64x64/4w5s"}),
        ("ep_layer", 64, {"rows_value.mover": "PlacedRows(64)", "h.tile": "64x64x64/4w4s"}),
        ("ep_layer", 2048, {"rows_value.mover": "PlacedRows(128)", "h.tile": "128x64x64/4w4s"}),
        ("ag_moe", 2048, {"out.tile": "128x64x64/4w4s", "out.own": "first"}),
        ("moe_rs", 2048, {"grouped_matmul_out.tile": "128x64x64/4w3s2p"}),
    ],
)
def test_every_kernel_of_experts_is_followed_or_has_no_order(name: str, tokens: int, pins: dict[str, str]) -> None:
    machine = topologies.load("h100-nvswitch", RANKS)
    schedule = SPECS[name].plan_for(machine, {"T": tokens, **SIZES}, "bf16", dict(pins))
    report = checked(schedule, lowering.emit(schedule))
    assert report.events and not report.findings and not report.unknown, report.lines()
