"""What the links carry of library collectives: within a node and between nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

import topologies
from tests.planner.grid import gather
from tilelink.planner.links import library_us
from topologies.topology import Fabric, Topology

FUNCTIONS = ("all_gather", "reduce_scatter", "all_reduce")
LARGE = 1 << 30  # bytes


def two_nodes(of: Topology, nic_gb_per_s: float) -> Topology:
    """Two machines `of`, with a NIC for each GPU."""
    network = topologies.load("h800-2-nodes").levels[-1]
    levels = (*of.levels, replace(network, gb_per_s=nic_gb_per_s))
    return replace(of, num_ranks=2 * of.num_ranks, levels=levels)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_between_nodes_all_nics_carry(function: str) -> None:
    """Eight NICs of 45 GB/s are wider than the NVLink port of an H800, so that two nodes take little longer than one."""
    two, one = topologies.load("h800-2-nodes", 16), topologies.load("h800-nvswitch", 8)
    assert 0.95 < library_us(two, function, LARGE) / library_us(one, function, LARGE) < 1.15


@pytest.mark.parametrize("machine", ["h800-nvswitch", "mi300x-full-mesh"])
def test_slow_nics_are_the_limit(machine: str) -> None:
    """Where the NICs of a node are the narrowest part, the time grows as their total falls."""
    node = topologies.load(machine, 8)
    fast, slow = (library_us(two_nodes(node, rate), "all_gather", LARGE) for rate in (4.0, 2.0))
    assert 1.9 < slow / fast < 2.1
    assert fast > library_us(node, "all_gather", LARGE)
    wide = library_us(two_nodes(node, 1000.0), "all_gather", LARGE)
    assert wide < 1.2 * library_us(node, "all_gather", LARGE)


def test_one_gpu_a_node_has_one_nic() -> None:
    network = topologies.load("h800-2-nodes").levels[-1]
    assert network.fabric is Fabric.NETWORK
    node = topologies.load("h800-nvswitch", 8)
    single = replace(node, num_ranks=2, levels=(network,))
    moved_us = LARGE / 2 / network.gb_per_s / 1e3
    assert 1.0 < library_us(single, "all_gather", LARGE) / moved_us < 2.0


def test_a_gather_over_two_nodes() -> None:
    two, sizes = topologies.load("h800-2-nodes", 16), {"M": 65536, "N": 8192}
    library = gather.plan_for(two, sizes, pin={"mover": "Library()"})
    assert 6500 < library.predicted_us < 7500  # 1 GiB * 15/16 at 148 GB/s are 6,800 us, and nothing is copied behind
    # a sixteenth comes from the rail, beside the rest from the node, at the rate of a link
    node = (1 << 30) * 14 / 16 / two.levels[0].gb_per_s / 1e3
    assert node < gather.plan_for(two, sizes).predicted_us < 1.1 * node
