"""Which level of a fabric binds, against closed forms on two nodes of eight H800: 173 GB/s inside of a node, 45 through a NIC."""

from __future__ import annotations

from typing import Any

import pytest

import topologies
from tests.pipeline.workloads import load
from tilelink.ir.schedule import Schedule
from tilelink.planner.levels import busy_levels

NODES = topologies.load("h800-2-nodes")
_AG, _RS = {"M": 8192, "K": 12288, "N": 49152}, {"M": 8192, "K": 49152, "N": 12288}
CASES: list[tuple[str, dict[str, Any], dict[str, float]]] = [
    ("02_ag_gemm.py:ag_gemm", _AG, {"nvswitch": 1018, "infiniband": 280}),
    ("03_gemm_rs.py:gemm_rs", _RS, {"nvswitch": 1018, "infiniband": 280}),
]


def planned(name: str, sizes: dict[str, Any], **pins: str) -> Schedule:
    return load(name).plan_for(NODES, sizes, "bf16", pins)


@pytest.mark.parametrize(("name", "sizes", "wanted"), CASES)
def test_closed_forms(name: str, sizes: dict[str, Any], wanted: dict[str, float]) -> None:
    schedule = planned(name, sizes)
    found = {one.level: one.us for one in busy_levels(schedule, NODES)}
    assert found == pytest.approx(wanted, rel=0.01)
    # what is planned lies between the level that binds and, on top of that, the start and the end that nothing hides
    assert max(found.values()) < schedule.predicted_us < 1.3 * max(found.values())


@pytest.mark.parametrize(("name", "sizes", "wanted"), CASES)
def test_rails_are_faster_than_the_library(name: str, sizes: dict[str, Any], wanted: dict[str, float]) -> None:
    ours, library = planned(name, sizes), planned(name, sizes, mover="Library()")
    assert 1.5 < library.predicted_us / ours.predicted_us < 2.0, wanted  # published for such sizes: 1.3 to 1.4


def test_each_level_counts_what_passes_it() -> None:
    """An all_reduce is both; the library on its own moves nothing of ours."""
    sizes = {"M": 8192, "K": 28672, "N": 8192}
    found = {
        one.level: one.us
        for one in busy_levels(planned("04_gemm_ar.py:gemm_ar", sizes, mover="Rails(8)", algorithm="two-shot"), NODES)
    }
    part = 8192 * 8192 * 2 / 16
    assert found == pytest.approx({"nvswitch": 2 * 14 * part / 173e3, "infiniband": 2 * part / 45e3})
    assert busy_levels(planned("03_gemm_rs.py:gemm_rs", _RS, mover="Library()"), NODES) == ()


def test_bridges_are_shared() -> None:
    """What binds is what the calls wait for, as they are predicted: the bridge of four boards."""
    sizes, sockets = {"M": 8192, "K": 4096, "N": 14336}, topologies.load("l20-pcie", 16, 2)
    schedule = load("02_ag_gemm.py:ag_gemm").plan_for(sockets, sizes, "bf16", {"mover": "LibraryRails(4)"})
    found, part = {one.level: one.us for one in busy_levels(schedule, sockets)}, 512 * 4096 * 2
    assert found == pytest.approx(
        {
            "pcie": 14 * part * 4 / 26e3,
            "numa": 2 * part * 4 / 16e3,
            "infiniband": part / sockets.levels[-1].gb_per_s / 1e3,
        }
    )
    assert max(found, key=found.__getitem__) == "pcie" and found["pcie"] == pytest.approx(
        schedule.predicted_us, rel=0.05
    )
