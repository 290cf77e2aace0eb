"""Packets that go to all ranks of a node by one store, where there are several nodes: rails bring packets of LL, and a store
reaches the own node. NVSHMEM and Triton-distributed have an address for its ranks."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.distributed._symmetric_memory as symm_mem

import lowering
from lowering.host import nvshmem_multicast
from lowering.host.at_once import NoMulticast
from lowering.steps.errors import NoMulticastInTarget
from lowering.targets import NO_GPUS_YET
from tests.adversary.bugs import edited, verdict
from tests.pipeline.late_gathers import DTYPES
from tests.pipeline.test_multicast import PINS
from tests.pipeline.test_packet_rails import GATHER, NVSHMEM, each, machine
from tilelink.dialect_api import check_source
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.load import fabric_class, load_source
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import Index, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.steps import For, Step


def over_nodes(mesh: tuple[int, int], rows: int, cols: int, dtype: str = "bf16") -> Schedule:
    pins = PINS | {"protocol": "ll", "mover": "OwnKernel()"}
    return GATHER.plan_for(machine(*mesh), {"M": mesh[0] * mesh[1] * rows, "N": cols}, dtype, pins)


@pytest.mark.parametrize("mesh", [(2, 2), (2, 4), (3, 2), (4, 2)], ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.quick(4)
def test_two_levels_are_equal_to_torch(mesh: tuple[int, int], seed: int) -> None:
    """One store goes to the ranks of a node. What rails bring has a buffer of its own."""
    rng = random.Random(repr((mesh, seed)))
    schedule = over_nodes(mesh, rng.randint(1, 40), rng.randint(1, 60) * 8, rng.choice(tuple(DTYPES)))
    assert f"for step < {mesh[1]} by multicast:" in str(schedule) and "out_rails" in str(schedule)
    proof = verify(schedule)
    assert proof.proved, proof.lines()
    for target in (NVSHMEM, "triton-distributed"):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=4, seed=seed).equal, target


def to_all_nodes(step: Step) -> tuple[Step, ...]:
    """As if one store reached ranks of other nodes."""
    if not isinstance(step, For) or not step.multicast:
        return (step,)
    return (replace(step, count=4, let=(("peer", (rank + Index("step")) % 4),)),)


def to_the_next_rank(step: Step) -> tuple[Step, ...]:
    """Of the next node."""
    if not isinstance(step, For) or not step.multicast:
        return (step,)
    return (replace(step, let=tuple((name, (index + 2) % 4) for name, index in step.let)),)


@pytest.mark.parametrize("change", [to_all_nodes, to_the_next_rank], ids=lambda one: one.__name__)
def test_a_store_reaches_the_own_node(change: Callable[[Step], tuple[Step, ...]]) -> None:
    schedule = over_nodes((2, 2), 4, 32)
    steps = instantiated(elaborated(schedule))
    found = verify(schedule, each(change)(steps)).findings
    assert any("not all ranks of a node, each once" in one.fact for one in found), found
    assert verify(schedule, steps).proved


def test_stock_triton_has_no_address_of_a_node() -> None:
    schedule = over_nodes((2, 2), 4, 32)
    with pytest.raises(NoMulticastInTarget, match="over several nodes --target triton-nvshmem"):
        lowering.emit(schedule, "triton")
    other = lowering.emit(schedule, "triton-distributed")
    assert "remote_mc_ptr(libshmem_device.NVSHMEMX_TEAM_NODE" in other and NO_GPUS_YET in other
    assert not check_source(other).findings
    source = lowering.emit(schedule, NVSHMEM)
    assert fabric_class(load_source(source, "file")).__name__ == "NvshmemMulticastFabric"
    assert "RANKS_PER_NODE = 2  # of which these are all" in source and NO_GPUS_YET in source


@pytest.mark.slow
@pytest.mark.parametrize("target", [NVSHMEM, "triton-distributed"])
def test_no_delay_shows_over_nodes(target: str) -> None:
    found = verdict(lowering.emit(over_nodes((2, 2), 2, 16), target), "all_gather")
    assert not found.refuted, found.lines()


NODE_MISTAKES = {
    "one set of packets": ("+ call % 2 *", "+ 0 *"),
    "packets of LL are not awaited": ("(found >> 32).to(tl.int32) != call", "(found >> 32).to(tl.int32) > call"),
    "a store reaches the own rank alone": ("    RANKS_PER_NODE = 2", "    RANKS_PER_NODE = 1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", NODE_MISTAKES)
def test_mistakes_over_nodes_are_found(mistake: str) -> None:
    source = lowering.emit(over_nodes((2, 2), 4, 16), NVSHMEM)
    assert verdict(edited(source, NODE_MISTAKES[mistake]), "all_gather").refuted, mistake


class _OfNode:
    rank = 0

    def __init__(self, local: int) -> None:
        self.buffer_ptrs = (local,)


@pytest.mark.parametrize("address", [0, 1 << 40])
def test_memory_of_nodes_without_an_address(address: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NVSHMEM has it: no address where NVLink SHARP is missing, or switched off. The team of a node is number 2."""
    library = SimpleNamespace(nvshmemx_mc_ptr=lambda team, pointer: address if team == 2 and pointer else None)
    monkeypatch.setattr(symm_mem, "empty", lambda shape, dtype, device: torch.empty(shape, dtype=dtype))
    monkeypatch.setattr(symm_mem, "rendezvous", lambda tensor, group: _OfNode(tensor.data_ptr()))
    monkeypatch.setattr(nvshmem_multicast, "host_library", lambda: library)
    fabric = object.__new__(nvshmem_multicast.NvshmemMulticastFabric)
    fabric.device, fabric.group = torch.device("cpu"), None  # type: ignore[assignment]
    if address:
        assert fabric.symmetric((4,), torch.int64).multicast.tolist() == [address]
    else:
        with pytest.raises(NoMulticast, match="NVSHMEM_DISABLE_NVLS"):
            fabric.symmetric((4,), torch.int64)
