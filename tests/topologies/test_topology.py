"""Ramps, and who is how far from whom."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import topologies
from topologies import Fabric, NoSuchPair, Ramp, UnknownDtype

POSITIVE = st.floats(min_value=1e-6, max_value=1e12, allow_nan=False)


@st.composite
def rising_ramps(draw: st.DrawFn) -> Ramp:
    xs = sorted(draw(st.lists(POSITIVE, min_size=1, max_size=8, unique=True)))
    rates = sorted(draw(st.lists(POSITIVE, min_size=len(xs), max_size=len(xs))))
    return Ramp(tuple(zip(xs, rates, strict=True)))


@given(ramp=rising_ramps(), x=POSITIVE, y=POSITIVE)
def test_ramp_of_rising_points_rises(ramp: Ramp, x: float, y: float) -> None:
    low, high = sorted((x, y))
    assert ramp.at(low) <= ramp.at(high)


@given(ramp=rising_ramps(), x=POSITIVE)
def test_ramp_passes_its_points_and_stays_between_them(ramp: Ramp, x: float) -> None:
    assert all(ramp.at(point) == rate for point, rate in ramp.points)
    assert ramp.points[0][1] <= ramp.at(x) <= ramp.points[-1][1]


def test_ramp_is_linear_in_log2() -> None:
    ramp = Ramp(((1.0, 10.0), (4.0, 30.0), (64.0, 20.0)))
    assert ramp.at(2) == pytest.approx(20.0)
    assert ramp.at(16) == pytest.approx(25.0)  # rates may fall too
    assert [ramp.at(x) for x in (-1, 0, 0.5, 1, 64, 1e9)] == [10.0, 10.0, 10.0, 10.0, 20.0, 20.0]


def test_ramp_between_neighbouring_floats() -> None:
    low = math.nextafter(2.0, 0.0)
    ramp = Ramp(((1.0, 1.0), (low, 2.0), (2.0, 3.0)))
    assert (ramp.at(low), ramp.at(2.0)) == (2.0, 3.0)


def test_rounding_does_not_leave_the_segment() -> None:
    ramp = Ramp(((1.0, 1.4), (256.0, 5.7)))  # 1.4 + (5.7 - 1.4) is above 5.7
    assert ramp.at(math.nextafter(256.0, 0.0)) == 5.7


def test_measured_ramps_of_h200() -> None:
    h200 = topologies.load("h200-nvswitch")
    assert (h200.push_sms.at(8), h200.pull_sms.at(8)) == (238.0, 108.0)
    assert 304 < h200.push_sms.at(20) < 318
    assert h200.copy_engine.at(2**28) == h200.levels[0].gb_per_s == 389.0
    for mib, us in ((0.25, 3.05), (1, 5.07), (2, 8.18), (4, 13.4), (8, 24.3), (16, 46.4)):
        num_bytes = mib * 2**20
        assert num_bytes / h200.copy_engine.at(num_bytes) / 1e3 == pytest.approx(us, rel=0.005)


@pytest.mark.parametrize(
    ("name", "rank", "peer", "level", "rate"),
    [
        ("h200-nvswitch", 0, 7, "nvswitch", 389.0),
        ("mi300x-full-mesh", 3, 4, "xgmi", 50.0),
        ("l20-pcie", 0, 3, "pcie", 26.0),
        ("l20-pcie", 3, 4, "numa", 16.0),
        ("l20-pcie", 7, 4, "pcie", 26.0),
        ("h800-2-nodes", 8, 15, "nvswitch", 173.0),
        ("h800-2-nodes", 7, 8, "infiniband", 45.0),
        ("h800-2-nodes", 15, 0, "infiniband", 45.0),
    ],
)
def test_level_between(name: str, rank: int, peer: int, level: str, rate: float) -> None:
    topology = topologies.load(name)
    assert topology.level_between(rank, peer).name == level
    assert topology.level_between(peer, rank).name == level
    assert topology.link_gb_per_s(rank, peer) == rate


@pytest.mark.parametrize(("rank", "peer"), [(0, 0), (0, 4), (4, 0), (-1, 2), (0, 8)])
def test_no_such_pair(rank: int, peer: int) -> None:
    with pytest.raises(NoSuchPair) as caught:
        topologies.load("h200-nvswitch", 4).level_between(rank, peer)
    assert caught.value.facts["last_rank"] == 3


def test_nodes() -> None:
    two_nodes = topologies.load("h800-2-nodes")
    assert (two_nodes.num_ranks, two_nodes.ranks_per_node, two_nodes.num_nodes) == (16, 8, 2)
    part = topologies.load("h800-2-nodes", 4)
    assert (part.num_ranks, part.ranks_per_node, part.num_nodes) == (4, 4, 1)
    sockets = topologies.load("l20-pcie")
    assert (sockets.ranks_per_node, sockets.num_nodes) == (8, 1)


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_slowest_link(ranks: int) -> None:
    for topology in (topologies.load("h800-2-nodes", ranks), replace(topologies.load("h800-2-nodes"), num_ranks=ranks)):
        rates = (topology.link_gb_per_s(0, peer) for peer in range(1, ranks))
        assert topology.slowest_link_gb_per_s == min(rates)


def test_nodes_of_a_topology_whose_levels_were_not_cut() -> None:
    uncut = replace(topologies.load("h200-nvswitch"), num_ranks=4)
    assert (uncut.ranks_per_node, uncut.num_nodes) == (4, 1)
    assert uncut.level_between(0, 3).fabric is Fabric.SWITCH


def test_tflops_and_unknown_dtype() -> None:
    gpu = topologies.load("a100-nvswitch").gpu
    assert gpu.tflops("bf16") == 312.0
    with pytest.raises(UnknownDtype) as caught:
        gpu.tflops("fp8")
    assert caught.value.facts["legal"] == "bf16, fp16, tf32, fp32, int8"
    with pytest.raises(UnknownDtype, match="Did you mean 'bf16'"):
        gpu.tflops("BF16")
