"""Groups of ranks on several hosts: how many there are, for what is planned, and in which language it runs."""

from __future__ import annotations

import gc
import socket
import weakref
from pathlib import Path
from typing import cast

import pytest
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

import lowering
import topologies
from lowering.host import hosts as host_code
from lowering.host import nvshmem
from tests.pipeline.workloads import load
from tilelink.errors import OtherHosts, StoresAcrossHosts, UnevenHosts
from tilelink.ir.schedule import Schedule
from tilelink.runtime.hosts import hosts_of, target_on, this_host
from tilelink.runtime.load import fabric_class, load_source
from tilelink.runtime.machine import of_group


def on_hosts(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter for each rank says on which host it is."""

    def gathered(found: list[str], _: str, __: object) -> None:
        found[:] = names

    monkeypatch.setattr(dist, "get_world_size", lambda _: len(names))
    monkeypatch.setattr(dist, "all_gather_object", gathered)


@pytest.mark.parametrize(("names", "hosts"), [("a", 1), ("aaaa", 1), ("ab", 2), ("aabb", 2), ("bbaacc", 3)])
def test_hosts_are_counted(names: str, hosts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on_hosts(names, monkeypatch)
    assert hosts_of(None) == hosts


@pytest.mark.parametrize("names", ["abab", "aab", "abba", "aabbbb"])
def test_ranks_of_a_host_follow_each_other(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_hosts(names, monkeypatch)
    with pytest.raises(UnevenHosts, match="rank 1 on host"):
        hosts_of(None)


def test_a_host_is_known_by_its_name_and_when_it_began(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NCCL_HOSTID", raising=False)
    assert this_host().startswith(socket.gethostname())
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        assert hosts_of(None) == 1
    finally:
        dist.destroy_process_group()
    monkeypatch.setenv("NCCL_HOSTID", "pretended")
    assert this_host() == "pretended"


def test_gpus_of_several_hosts_are_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topologies.detect", lambda ranks: topologies.load("h200-nvswitch", ranks))
    for ranks, hosts in ((16, 2), (4, 2), (2, 2), (32, 4)):
        found = of_group(None, ranks, hosts)
        assert (found.num_ranks, found.num_nodes) == (ranks, hosts)
    assert of_group(None, 8).num_nodes == 1


def planned(nodes: int | None, mover: str) -> Schedule:
    topology = topologies.load("h200-nvswitch", 4, nodes)
    return load("02_ag_gemm.py:ag_gemm").plan_for(topology, {"M": 512, "K": 256, "N": 512}, "bf16", {"mover": mover})


def test_what_crosses_hosts_is_put() -> None:
    topology = topologies.load("h200-nvswitch", 4, 2)
    rails, library = planned(2, "Rails(1)"), planned(2, "Library()")
    assert target_on(2, rails, topology, None) == "triton-nvshmem"
    assert target_on(2, planned(2, "LibraryRails(2)"), topology, None) == "triton"
    assert target_on(2, library, topology, None) == target_on(1, rails, topology, None) == "triton"
    assert target_on(2, rails, topology, "triton-distributed") == "triton-distributed"
    with pytest.raises(StoresAcrossHosts, match="triton-nvshmem"):
        target_on(2, rails, topology, "triton")


def test_a_topology_of_other_hosts_is_refused() -> None:
    topology = topologies.load("h200-nvswitch", 4)
    with pytest.raises(OtherHosts, match="nodes=2"):
        target_on(2, planned(None, "CopyEngine()"), topology, None)


@pytest.mark.parametrize(
    ("mover", "target", "name"),
    [
        ("Rails(1)", "triton-nvshmem", "NvshmemFabric"),
        ("Rails(1)", "triton", "SymmetricMemoryFabric"),
        ("LibraryRails(2)", "triton", "HostsFabric"),
        ("LibraryRails(2)", "triton-distributed", "TritonDistFabric"),
    ],
)
def test_a_file_stands_on_its_last_fabric(mover: str, target: str, name: str) -> None:
    emitted = lowering.emit(planned(2, mover), target)
    assert fabric_class(load_source(emitted, "ag_gemm")).__name__ == name
    if target != "triton-distributed":
        assert f"{name}()" in emitted


class Handle:
    rank, buffer_ptrs = 1, (16, 32, None, 0)

    def get_remote_tensor(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.full(shape, rank, dtype=dtype)


@pytest.fixture
def symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symm_mem, "empty", torch.empty)
    monkeypatch.setattr(symm_mem, "rendezvous", lambda *_: Handle())


@pytest.mark.usefixtures("symmetric")
def test_ranks_that_a_network_alone_reaches_have_no_address() -> None:
    made = nvshmem.NvshmemSymmetric((3,), torch.float32, torch.device("cpu"), None)  # type: ignore[arg-type]
    assert made.pointers.tolist() == [16, 32, 0, 0]
    assert made.peers[1] is made.local
    assert made.peers[0] is not None and made.peers[0].tolist() == [0, 0, 0]
    assert made.peers[2:] == (None, None)


class Group:
    """Four ranks, this is number 1."""

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return 4


def test_ranks_of_other_hosts_have_no_address(monkeypatch: pytest.MonkeyPatch, symmetric: None) -> None:
    """Ranks 1 and 2 share a host, where they are number 0 and 1."""
    asked = list[object]()

    def gathered(found: list[str], own: str, group: object) -> None:
        found[:] = ["a", own, own, "b"]

    def made_of(ranks: list[int], use_local_synchronization: bool) -> str:
        asked.append((ranks, use_local_synchronization))
        return "the node"

    monkeypatch.setattr(dist, "all_gather_object", gathered)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda _: [10, 11, 12, 13])
    monkeypatch.setattr(dist, "new_group", made_of)
    node = host_code.node_of(cast("dist.ProcessGroup", Group()), None)
    assert tuple(node) == (4, (1, 2), "the node") and asked == [([11, 12], True)]
    monkeypatch.setattr(Handle, "rank", 0)
    made = host_code.NodeSymmetric((3,), torch.float32, torch.device("cpu"), node)
    assert [peer is None for peer in made.peers] == [True, False, False, True]
    assert made.peers[1] is made.local and made.peers[2].tolist() == [1, 1, 1]
    assert [bool(one) for one in made.pointers.tolist()] == [False, True, True, False]


def test_one_host_may_be_cut_into_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def gathered(found: list[str], own: str, group: object) -> None:
        assert own == "0"
        found[:] = ["0", "0", "1", "1"]

    monkeypatch.setattr(dist, "all_gather_object", gathered)
    monkeypatch.setattr(dist, "get_process_group_ranks", lambda _: [0, 1, 2, 3])
    monkeypatch.setattr(dist, "new_group", lambda ranks, use_local_synchronization: ranks)
    assert tuple(host_code.node_of(cast("dist.ProcessGroup", Group()), 2)) == (4, (0, 1), [0, 1])


@pytest.mark.usefixtures("symmetric")
def test_no_rank_frees_symmetric_memory_alone() -> None:
    module = load_source(lowering.emit(planned(2, "Rails(1)"), "triton-nvshmem"), "ag_gemm")
    memory = weakref.ref(module.NvshmemSymmetric((3,), torch.float32, torch.device("cpu"), None).local)
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None and memory() is not None
