"""Packets that go to all ranks by one store: proved, emulated for all dtypes, planned only if pinned, refused where no link or
language has it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed._symmetric_memory as symm_mem

import lowering
import topologies
from lowering.host.at_once import NoMulticast
from lowering.host.multicast import MulticastFabric
from lowering.steps.errors import NoMulticastInTarget
from lowering.steps.file import lower
from lowering.steps.renaming import with_own_names
from lowering.targets import NO_GPUS_YET
from tests.adversary.bugs import edited, verdict
from tests.pipeline.file_checks import bare_numbers, cited_elsewhere, undefined, unused
from tests.pipeline.late_gathers import DTYPES, check, gathered, gathered_columns
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS, MLP
from tilelink.declaration import Overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import World
from tilelink.emulator.errors import NoMulticast as NoEmulatedMulticast
from tilelink.errors import IdlePin, IllegalPin
from tilelink.ir.calls import PacketCollective
from tilelink.ir.schedule import Schedule
from tilelink.planner import fields
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.load import fabric_class, load_source, operator_class
from tilelink.runtime.run import run_emulated

PINS = {"multicast": "yes"}


def planned(
    operator: Overlap,
    ranks: int,
    sizes: dict[str, int],
    dtype: str = "bf16",
    topology: str = "laptop-switch",
    **pins: str,
) -> Schedule:
    return operator.plan_for(topologies.load(topology, ranks), sizes, dtype, PINS | pins)


def calls_of(schedule: Schedule) -> list[PacketCollective]:
    return [one for one in schedule.launches if isinstance(one, PacketCollective)]


def drawn() -> list[Any]:
    """Operators with sizes of whole packets, on each number of ranks with each dtype and protocol."""
    rng, found = random.Random(20), list[Any]()
    for ranks in (2, 3, 4, 8):
        for dtype in DTYPES:
            for protocol in ("ll", "lamport"):
                gather = {"M": ranks * rng.randint(1, 9), "K": 4 * rng.randint(1, 40), "N": 16 * ranks}
                found.append((AG_GEMM, ranks, gather, dtype, {"protocol": protocol}))
                for shots in ("1", "2"):  # in two, shares of ranks are whole packets, too
                    cols = 4 * rng.randint(1, 40) if shots == "1" else 4 * ranks * rng.randint(1, 10)
                    sums = {"M": rng.randint(1, 40), "K": 16 * ranks, "N": cols}
                    found.append((GEMM_AR, ranks, sums, dtype, {"protocol": protocol, "shots": shots}))
    return [pytest.param(*one, id=f"{one[0].name} x{' '.join(map(str, one[1:]))}") for one in found]


@pytest.mark.parametrize(("operator", "ranks", "sizes", "dtype", "pins"), drawn())
@pytest.mark.quick(3)
def test_results_are_those_of_torch(
    operator: Overlap, ranks: int, sizes: dict[str, int], dtype: str, pins: dict[str, str]
) -> None:
    schedule = planned(operator, ranks, sizes, dtype, **pins, compute="triton")
    assert all(one.multicast for one in calls_of(schedule)) and len(calls_of(schedule)) == 1
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())
    for target in ("triton", "triton-distributed"):
        result = run_emulated(schedule, lowering.emit(schedule, target), calls=4, seed=ranks)
        assert result.equal, f"{target}: {result.lines()}\n{schedule}"


@pytest.mark.parametrize("policy", ["random:5", "starve-rank:0", "starve-rank:2", "newest", "oldest"])
@pytest.mark.parametrize("operator", [gathered, gathered_columns], ids=lambda one: one.name)
@pytest.mark.quick(1)
def test_a_gather_is_that_of_torch_to_the_bit(operator: Overlap, policy: str) -> None:
    def plan(ranks: int, sizes: dict[str, int], dtype: str) -> Schedule:
        return planned(operator, ranks, sizes, dtype)

    check(
        operator,
        policy,
        plan,
        lambda rng: 4 * rng.randint(1, 12),
        lambda shape, dtype: torch.randn(shape).to(DTYPES[dtype]),
    )


@pytest.mark.slow
def test_gathers_beside_each_other_and_a_whole_layer() -> None:
    schedule = planned(MLP, 4, {"M": 48, "H": 64, "F": 64}, algorithm="lamport", compute="triton")
    assert [one.multicast for one in calls_of(schedule)] == [True, False]  # parts of sums differ from rank to rank
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule), calls=5).equal


# ---- what is planned and printed ---------------------------------------------------------------------------------------


def test_it_is_planned_if_pinned_alone() -> None:
    machine, sizes = topologies.load("h200-nvswitch", 4), {"M": 64, "K": 4096, "N": 14336}
    free = AG_GEMM.plan_for(machine, sizes, "bf16", {})
    (gather,) = calls_of(free)
    assert not gather.multicast
    pinned = AG_GEMM.plan_for(machine, sizes, "bf16", PINS)
    (gather,) = calls_of(pinned)
    assert gather.multicast and dict(pinned.choices)["x_full.multicast"] == "yes"
    assert Schedule.from_json(pinned.to_json()) == pinned and pinned.hash != free.hash
    assert AG_GEMM.plan_for(machine, sizes, "bf16", dict(pinned.choices)) == pinned


def test_the_hash_of_others_does_not_know_of_it() -> None:
    """Nor of links that could do it: files of older versions agree with newer ones."""
    schedule = AG_GEMM.plan_for(topologies.load("h200-nvswitch", 4), {"M": 64, "K": 64, "N": 64}, "bf16", {})
    older = replace(schedule, machine=replace(schedule.machine, multicast=False))
    assert calls_of(schedule) and schedule.machine.multicast and "multicast" in schedule.to_json()
    assert "multicast" not in older.to_json() and Schedule.from_json(older.to_json()) == older
    assert older.hash == schedule.hash


def test_as_many_packets_arrive_and_the_own_ones() -> None:
    plain = AG_GEMM.plan_for(
        topologies.load("h200-nvswitch", 8), {"M": 64, "K": 4096, "N": 14336}, "bf16", {"algorithm": "lamport"}
    )
    at_once = planned(AG_GEMM, 8, {"M": 64, "K": 4096, "N": 14336}, topology="h200-nvswitch", algorithm="lamport")
    assert plain.predicted_us < at_once.predicted_us < 1.1 * plain.predicted_us


def test_one_store_stands_in_the_file() -> None:
    schedule = planned(AG_GEMM, 4, {"M": 32, "K": 64, "N": 64}, compute="triton")
    assert "for step < 4 by multicast: peer = (rank + step) % 4:" in str(schedule)
    source = lowering.emit(schedule)
    assert source.count("on_every_rank(x_full_packets_multicast, tl.int64)") == 1
    assert "    MULTICAST = True" in source and "fabric = MulticastFabric()" in source and NO_GPUS_YET in source
    assert "x_full_packets_peers" not in source
    assert fabric_class(load_source(source, "file")).__name__ == "MulticastFabric"
    assert cited_elsewhere(source) == set() and unused(source) == set()
    assert bare_numbers(source) == [] and undefined(source) == ""
    plain = lowering.emit(
        AG_GEMM.plan_for(topologies.load("laptop-switch", 4), {"M": 32, "K": 64, "N": 64}, "bf16", {})
    )
    assert "multicast" not in plain.lower()


# ---- where it is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "nodes", "reason"),
    [
        ("a100-nvswitch", None, "those of a100-nvswitch do not"),
        ("mi300x-full-mesh", None, "those of mi300x-full-mesh do not"),
        ("l20-pcie", None, "those of l20-pcie do not"),
        ("laptop-switch", 4, "each node of laptop-switch@4 has one"),
    ],
)
@pytest.mark.parametrize("pin", ["multicast", "x_full.multicast"])
def test_links_without_it(topology: str, nodes: int | None, reason: str, pin: str) -> None:
    on = topologies.load(topology, 4, nodes)
    with pytest.raises(IllegalPin) as caught:
        AG_GEMM.plan_for(on, {"M": 64, "K": 64, "N": 64}, "bf16", {pin: "yes"})
    assert reason in str(caught.value.facts["reason"]) and caught.value.facts["name"] == pin
    assert "none on this machine" in str(caught.value)


def test_parts_that_differ_from_rank_to_rank() -> None:
    with pytest.raises(IdlePin, match="packets that all ranks get"):
        planned(GEMM_RS, 4, {"M": 32, "K": 64, "N": 64})


def test_other_values() -> None:
    with pytest.raises(IllegalPin, match=r"Legal multicast: yes\."):
        planned(AG_GEMM, 4, {"M": 32, "K": 64, "N": 64}, multicast="always")
    assert fields.MULTICAST.parsed("no") is None


def test_other_languages() -> None:
    schedule = planned(AG_GEMM, 4, {"M": 32, "K": 64, "N": 64})
    with pytest.raises(NoMulticastInTarget) as caught:
        lowering.emit(schedule, "triton-nvshmem")
    assert caught.value.facts == {"schedule": "ag_gemm", "target": "triton-nvshmem", "arch": "sm_90"}
    with pytest.raises(NoMulticastInTarget, match="on gfx942"):
        lower(with_own_names(elaborated(schedule)), "gfx942")


class _Handle:
    rank, world_size = 0, 1

    def __init__(self, multicast_ptr: int) -> None:
        self.multicast_ptr = multicast_ptr


@pytest.mark.parametrize("address", [0, 1 << 40])
def test_memory_without_an_address_of_all_ranks(address: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch has it: 0 where links have no multicast, or where it is switched off."""
    monkeypatch.setattr(symm_mem, "empty", lambda shape, dtype, device: torch.empty(shape, dtype=dtype))
    monkeypatch.setattr(symm_mem, "rendezvous", lambda tensor, group: _Handle(address))
    fabric = object.__new__(MulticastFabric)
    fabric.device, fabric.group = torch.device("cpu"), None  # type: ignore[assignment]
    if address:
        found = fabric.symmetric((4,), torch.int64)
        assert found.multicast.tolist() == [address] and found.pointers.tolist() == [found.local.data_ptr()]
    else:
        with pytest.raises(NoMulticast, match="TORCH_SYMM_MEM_DISABLE_MULTICAST"):
            fabric.symmetric((4,), torch.int64)


# ---- mistakes in the file ----------------------------------------------------------------------------------------------

SIZES = {"gather": (AG_GEMM, {"M": 32, "K": 64, "N": 64}), "sums": (GEMM_AR, {"M": 5, "K": 64, "N": 64})}
_SCALAR = "multimem.st.relaxed.sys.global.b64 [$1], $2; "
_VECTOR = "{ .reg .b32 lo, hi; mov.b64 {lo, hi}, $2; multimem.st.relaxed.sys.global.v2.f32 [$1], {lo, hi}; } "
_SETS, _SLOT = "+ call % 2 *", "+ rank * X_FULL_PACKETS_PART"
PLANTED = {
    "one set of packets": ("gather", "lamport", _SETS, "+ 0 *"),
    "one set of numbered packets": ("gather", "ll", _SETS, "+ 0 *"),
    "the slot of the next rank": ("gather", "lamport", _SLOT, "+ (rank + 1) % NUM_RANKS * X_FULL_PACKETS_PART"),
    "packets of two halves": ("gather", "lamport", _SCALAR, _VECTOR),
    "nobody waits": ("gather", "lamport", "(found == 0).to(tl.int32)", "(found == 0).to(tl.int32) * 0"),
    "nobody empties packets": (
        "gather",
        "lamport",
        "store_words(words, tl.zeros(words.shape, tl.int64), mask)",
        "pass",
    ),
    "sums in the places of summands": (
        "sums",
        "lamport-two-shot",
        "self.out_sums.multicast",
        "self.out_packets.multicast",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "algorithm"), sorted({one[:2] for one in PLANTED.values()}))
def test_without_mistakes_nothing_is_refuted(name: str, algorithm: str) -> None:
    operator, sizes = SIZES[name]
    assert not verdict(lowering.emit(planned(operator, 4, sizes, algorithm=algorithm, compute="triton"))).refuted


@pytest.mark.slow
@pytest.mark.parametrize("mistake", PLANTED)
def test_mistakes_in_the_kernel_are_found(mistake: str) -> None:
    name, algorithm, before, after = PLANTED[mistake]
    operator, sizes = SIZES[name]
    source = lowering.emit(planned(operator, 4, sizes, algorithm=algorithm, compute="triton"))
    assert verdict(edited(source, (before, after))).refuted, mistake


@pytest.mark.slow
def test_a_file_over_links_without_it() -> None:
    operator, sizes = SIZES["gather"]
    source = lowering.emit(planned(operator, 4, sizes, compute="triton"))
    found = verdict(edited(source, ("    MULTICAST = True", "    MULTICAST = False")))
    assert found.refuted and found.counterexample is not None
    assert found.counterexample.number == BugClass.LINK_ATOMICS.number


def test_an_emulated_rank_says_where() -> None:
    operator, sizes = SIZES["gather"]
    schedule = planned(operator, 4, sizes, compute="triton")
    build = operator_class(load_source(lowering.emit(schedule), "file"))
    world = World(4, num_sms=schedule.machine.num_sms)
    for fabric in world.fabrics:
        build(fabric)(torch.zeros(8, 64, dtype=torch.bfloat16), torch.zeros(64, 16, dtype=torch.bfloat16))
    with pytest.raises(NoEmulatedMulticast, match="the links of this world have no multicast"):
        world.run()
