"""Collectives whose packets say themselves that they have arrived: emulated for both targets and all dtypes, proved, refuted
where they must be, planned where few bytes travel."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from triton import knobs

import lowering
import topologies
from tests.adversary.bugs import edited, verdict
from tests.pipeline.features import of
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS
from tests.pipeline.workloads import STOCK_FIRST
from tilelink.declaration import Overlap
from tilelink.elaborate.schedule import elaborated
from tilelink.emulator import World
from tilelink.errors import IllegalPin
from tilelink.ir.calls import LibraryCollective, PacketCollective
from tilelink.ir.collective import Collective
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import OwnKernel
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.collectives import MOST_PACKETS, legal_collectives
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

CASES = {name: (row.operator, dict(row.sizes), row.pins["algorithm"]) for name, row in of("packets").items()}


def planned(
    operator: Overlap,
    sizes: dict[str, int],
    algorithm: str = "ll",
    dtype: str = "bf16",
    topology: str = "laptop-switch",
) -> Schedule:
    pins = {"algorithm": algorithm, "compute": "triton"}
    return operator.plan_for(topologies.load(topology, 4), sizes, dtype, pins)


def collective(schedule: Schedule) -> PacketCollective:
    return next(launch for launch in schedule.launches if isinstance(launch, PacketCollective))


LONG = {  # more blocks than programs
    "numbered": (AG_GEMM, {"M": 64, "K": 256, "N": 16}, "ll"),
    "all data": (AG_GEMM, {"M": 96, "K": 256, "N": 16}, "lamport"),
    "in two shots": (GEMM_AR, {"M": 96, "K": 16, "N": 256}, "lamport-two-shot"),
}


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("name", LONG)
@pytest.mark.quick(1)
def test_a_program_moves_several_blocks(name: str, target: str) -> None:
    schedule = planned(*LONG[name])
    found = collective(schedule)
    few = replace(found, programs=1, per_sm=1)
    schedule = replace(schedule, launches=tuple(few if x is found else x for x in schedule.launches))
    assert verify(schedule).proved and few.places // few.block > 1
    outcome = run_emulated(schedule, lowering.emit(schedule, target), calls=5)  # each set of packets more than once
    assert outcome.equal, f"{schedule}\n{outcome}"


def test_shots_send_a_share_each() -> None:
    one, two = (
        collective(planned(GEMM_AR, {"M": 16, "K": 64, "N": 64}, name)) for name in ("lamport", "lamport-two-shot")
    )
    assert (one.shots, two.shots) == (1, 2) and one.packets == 4 * two.packets


class Bits(NamedTuple):
    """What a rank gathers, as bits of its elements."""

    bits: int
    dtype: torch.dtype


EMPTY_OR_NEARLY = [
    Bits(-1, torch.int16),
    Bits(0, torch.int16),
    Bits(-(2**15), torch.int16),
    Bits(2**15 - 1, torch.int16),
]


@pytest.mark.parametrize("given", EMPTY_OR_NEARLY, ids=str)
def test_data_that_look_like_an_empty_word_arrive(given: Bits) -> None:
    """Every word of the peers is of these bits; only NaNs in all elements may become other NaNs."""
    schedule = planned(AG_GEMM, {"M": 16, "K": 16, "N": 16}, "lamport")
    build = operator_class(load_source(lowering.emit(schedule), "packets"))
    world = World(4, num_sms=schedule.machine.num_sms, seed=3)
    x = torch.full((4, 16), given.bits, dtype=given.dtype).view(torch.bfloat16)
    w = torch.eye(16, 4, dtype=torch.bfloat16)
    outs = [build(fabric)(x, w) for fabric in world.fabrics]
    for _ in range(3):
        world.run()
    expected = x.float() @ w.float()
    assert all(torch.equal(out.float().nan_to_num(7.0), expected.repeat(4, 1).nan_to_num(7.0)) for out in outs)


@pytest.mark.parametrize("algorithm", ["ll", "lamport", "lamport-two-shot"])
def test_all_ranks_add_in_one_order(algorithm: str) -> None:
    """All have the same bits, though sums of floats depend on the order."""
    schedule = planned(GEMM_AR, {"M": 16, "K": 256, "N": 64}, algorithm)
    build = operator_class(load_source(lowering.emit(schedule), "packets"))
    world = World(4, num_sms=schedule.machine.num_sms, seed=3)
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 5)
    first, *others = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    assert first.any() and all(torch.equal(first, other) for other in others)


def changed(schedule: Schedule, **fields: Any) -> Schedule:
    """With other fields of its collective."""
    there = collective(schedule)
    launches = (replace(x, **fields) if x is there else x for x in schedule.launches)
    return replace(schedule, launches=tuple(launches))


@pytest.mark.parametrize(
    ("fields", "bug"),
    [
        ({"programs": 9}, BugClass.RESIDENCY),
        ({"programs": 0}, BugClass.CIRCLE),
        ({"function": "reduce_scatter"}, BugClass.WRONG_PLACE),
        ({"operand": "w"}, BugClass.WRONG_PLACE),
        ({"shots": 2}, BugClass.WRONG_PLACE),
    ],
    ids=str,
)
def test_what_the_proof_refutes(fields: dict[str, object], bug: BugClass) -> None:
    schedule = planned(*CASES["gather"])
    assert verify(schedule).proved
    assert bug in [finding.bug for finding in verify(changed(schedule, **fields)).findings]


@pytest.mark.parametrize("fields", [{"block": 96}, {"protocol": Protocol.LAMPORT}], ids=str)
def test_other_blocks_and_packets_are_right_too(fields: dict[str, object]) -> None:
    other = changed(planned(*CASES["gather"]), **fields)
    assert elaborated(other) != elaborated(planned(*CASES["gather"]))
    assert verify(other).proved
    assert run_emulated(other, lowering.emit(other), calls=3).equal


def test_programs_share_sms_where_there_are_more_blocks() -> None:
    """So that all blocks travel at once; a program moves several where even those are too few."""
    large = (AG_GEMM, {"M": 640, "K": 256, "N": 16}, "ll")
    rows = CASES["gather"], CASES["several programs an SM"], large
    few, shared, most = (collective(planned(*row)) for row in rows)
    assert (few.programs, few.per_sm, few.sms) == (1, 1, 1)
    assert (shared.programs, shared.per_sm, shared.sms) == (16, 2, 8)
    assert (most.programs, most.per_sm, most.sms) == (32, 4, 8) and most.packets > 32 * most.block
    alone = verify(changed(planned(*CASES["several programs an SM"]), per_sm=1))
    assert [finding.bug for finding in alone.findings] == [BugClass.RESIDENCY]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ll", "lamport", "lamport-two-shot"])
@pytest.mark.parametrize("operator", [AG_GEMM, GEMM_RS, GEMM_AR], ids=lambda operator: operator.name)
def test_as_many_programs_fit_an_sm(operator: Overlap, algorithm: str, tmp_path: Path) -> None:
    """By the registers that ptxas gives them, as the fabric asks the driver where there is one."""
    machine = topologies.load("h200-nvswitch", 4)
    if algorithm == "lamport-two-shot" and operator is not GEMM_AR:
        pytest.skip("of an all_reduce alone")
    rows = 256 if algorithm == "ll" else 512
    schedule = operator.plan_for(machine, {"M": rows, "K": 4096, "N": 4096}, "bf16", {"algorithm": algorithm})
    assert collective(schedule).per_sm > 1
    launch = next(
        one for one in record(load_source(lowering.emit(schedule), "ll"), 4) if one.options["num_warps"] == 16
    )
    kernel = compile_launch(launch, "sm_90")
    (tmp_path / "ll.ptx").write_text(kernel.asm["ptx"])
    ptxas = knobs.nvidia.ptxas.path
    told = [ptxas, "-v", "-arch=sm_90a", str(tmp_path / "ll.ptx"), "-o", str(tmp_path / "ll.cubin")]
    registers = re.search(
        r"Used (\d+) registers", subprocess.run(told, capture_output=True, text=True, check=True).stderr
    )
    assert registers is not None
    threads = 32 * kernel.metadata.num_warps * collective(schedule).per_sm
    assert threads * int(registers[1]) <= 65536 and threads <= 2048


def test_the_library_may_carry_out_what_goes_by_packets() -> None:
    """A proof asks what a call makes, and not of which algorithm it is."""
    schedule = planned(*CASES["gather"])
    there = collective(schedule)
    library = LibraryCollective(there.function, there.out, there.operand)
    launches = tuple(library if x is there else x for x in schedule.launches)
    other = replace(schedule, launches=launches)
    assert verify(other).proved
    assert run_emulated(other, lowering.emit(other), calls=3).equal


PLANTED = {
    "one set of packets": ("gather", "+ call % 2 *", "+ 0 *"),
    "nobody waits": ("gather", "!= call).to(tl.int32)", "!= call).to(tl.int32) * 0"),
    "the number of the call stays": ("gather", "program, call + 1)", "program, call)"),
    "one set, all data": ("gather, all data", "+ call % 2 *", "+ 0 *"),
    "nobody waits, all data": ("gather, all data", "(found == 0).to(tl.int32)", "(found == 0).to(tl.int32) * 0"),
    "nobody empties packets": ("gather, all data", "store_words(words, tl.zeros(words.shape, tl.int64), mask)", "pass"),
    "sums in the places of summands": (
        "in two shots",
        "(\n                on_peer(out_sums_peers",
        "(\n                on_peer(out_packets_peers",
    ),
    "the next rank's sums": ("in two shots", "cols_from(peer * (", "cols_from((peer + 1) % NUM_RANKS * ("),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({case for case, *_ in PLANTED.values()}))
def test_without_mistakes_nothing_is_refuted(name: str) -> None:
    assert not verdict(lowering.emit(planned(*CASES[name]))).refuted


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_mistakes_in_the_kernel_are_found(name: str) -> None:
    """Where ranks are late, and one begins the next call before another one has read the packets of this one."""
    case, *edit = PLANTED[name]
    source = lowering.emit(planned(*CASES[case]))
    assert verdict(edited(source, (edit[0], edit[1]))).refuted, name


def test_where_it_is_legal() -> None:
    """On links that carry atomics, for few whole packets."""
    ll, lamport = (Collective(OwnKernel(), protocol) for protocol in (Protocol.LL, Protocol.LAMPORT))

    def legal(operator: Overlap, **sizes: int) -> tuple[Collective, ...]:
        ((_, ways),) = legal_collectives(bind(operator.spec, sizes, 4, "bf16"), topologies.load("h200-nvswitch", 4))
        return ways

    assert ll in legal(AG_GEMM, M=32, K=64, N=64)
    rows = 4 * (MOST_PACKETS * 2 // 64)
    for m, k in ((rows, 64), (rows + 4, 64), (4, 33)):
        ways = legal(AG_GEMM, M=m, K=k, N=64)
        assert (ll in ways) is (m == rows)
        assert (lamport in ways) is (m >= rows)  # twice as much, in whole packets of twice as much
    with pytest.raises(IllegalPin, match="Legal algorithm: direct, library"):
        planned(AG_GEMM, {"M": 32, "K": 64, "N": 64}, topology="l20-pcie")
    for n in (64, 66):  # shares of a rank are whole packets, too
        ways = legal(GEMM_AR, M=6, K=64, N=n)
        assert lamport in ways and (replace(lamport, shots=2) in ways) is (n == 64)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "packets"), [(256, True), (512, False)])
def test_more_packets_than_were_measured_are_planned_if_pinned(rows: int, packets: bool) -> None:
    """On 4 ranks 512 rows of 8 KiB are 786,432 packets in two shots."""
    machine = topologies.load("h200-nvswitch", 4)
    sizes = {"M": rows, "K": 14336, "N": 4096}
    free = GEMM_AR.plan_for(machine, sizes, "bf16", {})
    pinned = GEMM_AR.plan_for(machine, sizes, "bf16", {"algorithm": "lamport-two-shot"})
    two_shots = Collective(OwnKernel(), Protocol.LAMPORT, shots=2)
    assert (dict(free.decided.collectives)["out"] == two_shots) is packets
    assert dict(pinned.decided.collectives)["out"] == two_shots


def test_calls_are_replayed() -> None:
    """NCCL must not be captured by one rank alone; a kernel may be."""
    sizes = {"M": 32, "K": 64, "N": 64}
    assert "self.fabric.run(self.enqueue, main" in lowering.emit(planned(AG_GEMM, sizes))
