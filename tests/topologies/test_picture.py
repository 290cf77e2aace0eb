"""What show() must mention; how it looks is for the eye."""

from __future__ import annotations

import re

import pytest

import topologies
from topologies import Fabric, Ramp, numbers


@pytest.mark.parametrize("name", topologies.names())
@pytest.mark.parametrize("num_ranks", [None, 2, 3])
def test_mentions_everything(name: str, num_ranks: int | None) -> None:
    topology = topologies.load(name, num_ranks)
    text = topologies.show(topology)
    lines = text.splitlines()
    assert f"{name}: {topology.num_ranks} ranks" in lines[0]
    assert lines[2].split() == ["rank", *map(str, range(topology.num_ranks))]
    for level in topology.levels:
        assert f"{level.name} ({level.fabric.value}), {level.gb_per_s:g} GB/s" in text
        assert f"signal {level.signal_us:g} µs, multicast {'yes' if level.multicast else 'no'}" in text
        assert f"peer atomics {'yes' if level.peer_atomics else 'no'}" in text
    origins = dict(topology.provenance)
    for key, value in numbers(topology):
        [line] = [line for line in lines if line.startswith(f"{key} ")]
        assert line.endswith(f"  {origins[key]}")
        assert isinstance(value, Ramp) or f" {value:g} " in line or f" {value} " in line
    for ramp in (topology.copy_engine, topology.push_sms, topology.pull_sms):
        assert all(f": {rate:g}" in text for _, rate in ramp.points)
    assert all(line == line.rstrip() for line in lines)


def test_switch_is_one_bar() -> None:
    text = topologies.show(topologies.load("h200-nvswitch", 4))
    assert len(re.findall("┷━━━┷━━━┷━━━┷", text)) == 1
    assert text.count("┷") == 4


def test_mesh_has_a_link_for_each_pair() -> None:
    topology = topologies.load("mi300x-full-mesh", 4)
    text = topologies.show(topology)
    assert topology.levels[0].fabric is Fabric.FULL_MESH
    assert text.count("●") - 3 == 4 * 3 // 2  # each line: one rank, then the ranks it is linked to
    assert "each of 6 links" in text


def test_nodes_hang_on_the_network_by_one_rod_each() -> None:
    lines = topologies.show(topologies.load("h800-2-nodes")).splitlines()
    [bar] = [line for line in lines if "╌" in line]
    assert bar.count("┷") == 2
    assert "infiniband (network), 45 GB/s" in bar
    [switches] = [line for line in lines if "━" in line]
    assert switches.count("┷") == 16
