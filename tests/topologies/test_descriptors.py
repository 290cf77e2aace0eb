"""What holds for every descriptor that ships."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass

import pytest

import topologies
from topologies import Fabric, Level, Ramp, Topology, Vendor, numbers
from topologies.descriptor import PROVENANCE
from topologies.loader import load_descriptor

PROMISED = {
    *("a100-nvswitch", "h100-nvswitch", "h800-nvswitch", "h200-nvswitch", "h20-nvswitch", "b200-nvswitch"),
    *("mi300x-full-mesh", "mi308x-full-mesh", "mi355x-full-mesh", "l20-pcie", "l40s-pcie", "h800-2-nodes"),
    *("laptop-switch", "laptop-mesh"),
}
each_name = pytest.mark.parametrize("name", topologies.names())


def numeric_leaves(value: object, key: str) -> set[str]:
    """Dotted keys of all numbers below `value`, found without the package's own list of them."""
    match value:
        case bool():
            return set()
        case int() | float() | Ramp():
            return {key}
        case tuple() if value and all(isinstance(item, Level) for item in value):
            return set().union(*(numeric_leaves(level, f"{key}.{level.name}") for level in value))
        case tuple() if key.endswith("dense_tflops"):
            return {f"{key}.{dtype}" for dtype, _ in value}
        case _ if is_dataclass(value):
            below = [(field.name, getattr(value, field.name)) for field in fields(value)]
            return set().union(*(numeric_leaves(item, f"{key}.{name}".strip(".")) for name, item in below))
        case _:
            return set()


def test_all_promised_names_ship() -> None:
    assert set(topologies.names()) == PROMISED
    assert list(topologies.names()) == sorted(topologies.names())


@each_name
def test_loads_under_its_own_name(name: str) -> None:
    topology = topologies.load(name)
    assert topology.name == name
    assert topology.num_ranks == math.prod(level.size for level in topology.levels)
    assert hash(topology) == hash(topologies.load(name))
    assert topology == topologies.load(name, topology.num_ranks)


@each_name
@pytest.mark.parametrize("num_ranks", [None, 2, 4])
def test_every_number_has_a_provenance(name: str, num_ranks: int | None) -> None:
    topology = topologies.load(name, num_ranks)
    origins = dict(topology.provenance)
    assert set(origins) == numeric_leaves(topology, "") - {"num_ranks"}
    assert list(origins) == [key for key, _ in numbers(topology)]
    assert all(PROVENANCE.fullmatch(origin) for origin in origins.values())


@each_name
def test_rates_are_those_of_the_fabric(name: str) -> None:
    topology = topologies.load(name)
    inner = topology.levels[0]
    links = inner.size - 1 if inner.fabric is Fabric.FULL_MESH else 1
    fastest_copy = max(rate for _, rate in topology.copy_engine.points)
    assert 0.8 * inner.gb_per_s <= fastest_copy <= inner.gb_per_s
    for ramp in (topology.push_sms, topology.pull_sms):
        assert max(rate for _, rate in ramp.points) <= links * inner.gb_per_s
    for ramp in (topology.copy_engine, topology.push_sms, topology.pull_sms):
        assert list(ramp.points) == sorted(ramp.points)
        assert [rate for _, rate in ramp.points] == sorted(rate for _, rate in ramp.points)


@each_name
def test_a_copy_takes_no_less_than_its_start(name: str) -> None:
    topology = topologies.load(name)
    assert all(x / rate / 1e3 > topology.copy_engine_start_us for x, rate in topology.copy_engine.points)


@each_name
def test_shape_of_the_gpu(name: str) -> None:
    gpu = topologies.load(name).gpu
    assert all(gpu.tflops(dtype) > 0 for dtype in ("bf16", "fp16", "fp32"))
    assert gpu.num_sms % gpu.num_dies == 0
    if gpu.vendor is Vendor.AMD:
        assert not gpu.comm_beside_compute and not gpu.tensor_descriptors


def features(topology: Topology) -> tuple[int, Fabric, bool, bool]:
    inner = topology.levels[0]
    return topology.num_ranks, inner.fabric, inner.multicast, topology.gpu.tensor_descriptors


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a100-nvswitch", (8, Fabric.SWITCH, False, False)),
        ("h200-nvswitch", (8, Fabric.SWITCH, True, True)),
        ("b200-nvswitch", (8, Fabric.SWITCH, True, True)),
        ("mi300x-full-mesh", (8, Fabric.FULL_MESH, False, False)),
        ("l20-pcie", (8, Fabric.HOST_BRIDGE, False, False)),
        ("h800-2-nodes", (16, Fabric.SWITCH, True, True)),
        ("laptop-switch", (8, Fabric.SWITCH, True, True)),
        ("laptop-mesh", (8, Fabric.FULL_MESH, False, False)),
    ],
)
def test_features(name: str, expected: tuple[int, Fabric, bool, bool]) -> None:
    assert features(topologies.load(name)) == expected


def test_levels_from_inside_out() -> None:
    assert [(x.fabric, x.size) for x in topologies.load("l20-pcie").levels] == [
        (Fabric.HOST_BRIDGE, 4),
        (Fabric.HOST_BRIDGE, 2),
    ]
    assert [(x.fabric, x.size) for x in topologies.load("h800-2-nodes").levels] == [
        (Fabric.SWITCH, 8),
        (Fabric.NETWORK, 2),
    ]


@pytest.mark.parametrize("name", ["laptop-switch", "laptop-mesh"])
def test_laptops_are_for_emulation(name: str) -> None:
    topology = topologies.load(name)
    assert topology.gpu.num_sms == 8
    assert {origin for _, origin in topology.provenance} == {"estimate: emulation only"}
    assert load_descriptor(name).device_names == ()


def test_a_device_name_belongs_to_one_descriptor() -> None:
    device_names = [device for name in topologies.names() for device in load_descriptor(name).device_names]
    assert len(device_names) == len(set(device_names))
