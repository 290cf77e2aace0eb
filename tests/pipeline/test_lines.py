"""Lines: packets of 128 bytes that a warp stores and loads whole. They are proved, emulated for all dtypes and both targets, on
one node and inside of several, planned only if pinned, and refused where nothing brings them whole."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

import lowering
import topologies
from lowering.steps.renaming import with_own_names
from tests.adversary.bugs import edited, verdict
from tests.pipeline.file_checks import bare_numbers, cited_elsewhere, undefined, unused
from tests.pipeline.late_gathers import BITS, DTYPES, check, gathered, gathered_columns
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS
from tests.pipeline.test_packet_rails import GATHER, MATMUL, NVSHMEM, each, machine, put_from, same
from tests.pipeline.workloads import load
from tests.schedule.judged import judged
from tests.schedule.operators import Operator
from tilelink.declaration import Overlap
from tilelink.dialect_api import check_source
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin
from tilelink.ir.calls import PacketCollective
from tilelink.ir.enums import Protocol
from tilelink.ir.schedule import Schedule
from tilelink.proof.bug_class import BugClass
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.flights import with_flights
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.rules import broken_rules
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Network
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Move, Step, Store

PINS = {"protocol": "ll128", "mover": "OwnKernel()"}
MESHES = [(2, 2), (2, 4), (3, 2), (4, 2)]


def planned(
    operator: Overlap,
    ranks: int,
    sizes: dict[str, int],
    dtype: str = "bf16",
    topology: str = "laptop-switch",
    **pins: str,
) -> Schedule:
    return operator.plan_for(topologies.load(topology, ranks), sizes, dtype, {**PINS, **pins})


def calls_of(schedule: Schedule) -> list[PacketCollective]:
    return [one for one in schedule.launches if isinstance(one, PacketCollective)]


def drawn() -> list[Any]:
    """Operators of any width: rows are whole lines and a rest of any bytes, or less than a line."""
    rng, found = random.Random(128), list[Any]()
    for ranks in (2, 3, 4, 8):
        for dtype in DTYPES:
            gather = {"M": ranks * rng.randint(1, 9), "K": rng.randint(1, 400), "N": 16 * ranks}
            found.append((AG_GEMM, ranks, gather, dtype, {}))
            scattered = {"M": ranks * rng.randint(1, 9), "K": 16 * ranks, "N": rng.randint(1, 200)}
            found.append((GEMM_RS, ranks, scattered, dtype, {}))
            for shots in ("1", "2"):
                sums = {"M": rng.randint(1, 40), "K": 16 * ranks, "N": rng.randint(1, 200)}
                found.append((GEMM_AR, ranks, sums, dtype, {"shots": shots}))
    return [pytest.param(*one, id=f"{one[0].name} x{' '.join(map(str, one[1:]))}") for one in found]


@pytest.mark.parametrize(("operator", "ranks", "sizes", "dtype", "pins"), drawn())
@pytest.mark.quick(4)
def test_results_are_those_of_torch(
    operator: Overlap, ranks: int, sizes: dict[str, int], dtype: str, pins: dict[str, str]
) -> None:
    schedule = planned(operator, ranks, sizes, dtype, **pins, compute="triton")
    assert [one.protocol for one in calls_of(schedule)] == [Protocol.LL128]
    proof = verify(schedule)
    assert proof.proved, "\n".join(proof.lines())
    for target in ("triton", "triton-distributed"):
        result = run_emulated(schedule, lowering.emit(schedule, target), calls=4, seed=ranks)
        assert result.equal, f"{target}: {result.lines()}\n{schedule}"


@pytest.mark.parametrize("policy", ["random:5", "starve-rank:0", "starve-rank:2", "newest", "oldest"])
@pytest.mark.parametrize("operator", [gathered, gathered_columns], ids=lambda one: one.name)
@pytest.mark.quick(2)
def test_a_gather_of_any_bits_is_that_of_torch(operator: Overlap, policy: str) -> None:
    def plan(ranks: int, sizes: dict[str, int], dtype: str) -> Schedule:
        return planned(operator, ranks, sizes, dtype)

    def part(shape: list[int], dtype: str) -> torch.Tensor:
        limit = torch.iinfo(BITS[dtype])
        return torch.randint(limit.min, limit.max + 1, shape).to(BITS[dtype]).view(DTYPES[dtype])

    check(operator, policy, plan, lambda rng: rng.randint(1, 150), part)


def test_the_experts_of_tokens_come_in_lines() -> None:
    """Numbers of any bits, of which packets of Lamport could not say that they are there."""
    layer = load("09_ep_layer.py:ep_layer")
    sizes = {"T": 16, "H": 64, "F": 64, "E": 4, "K": 3}
    schedule = layer.plan_for(topologies.load("laptop-switch", 4), sizes, "bf16", {"ids_full.protocol": "ll128"})
    assert Protocol.LL128 in {one.protocol for one in calls_of(schedule)}
    assert run_emulated(schedule, lowering.emit(schedule), calls=3).equal


# ---- several nodes -----------------------------------------------------------------------------------------------------


def over_nodes(mesh: tuple[int, int], rows: int, cols: int, dtype: str = "bf16") -> Schedule:
    return GATHER.plan_for(machine(*mesh), {"M": mesh[0] * mesh[1] * rows, "N": cols}, dtype, PINS)


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.quick(4)
def test_two_levels_are_equal_to_torch(mesh: tuple[int, int], seed: int) -> None:
    rng = random.Random(repr((mesh, seed)))
    dtype = rng.choice(("bf16", "fp16", "fp32"))
    schedule = over_nodes(mesh, rng.randint(1, 40), rng.randint(1, 60) * 8, dtype)
    protocols = {one.name: one.protocol for one in elaborated(schedule).buffers}
    assert protocols["out_packets"] is Protocol.LL128 and protocols["out_rails"] is Protocol.LL
    proof = verify(schedule)
    assert proof.proved, proof.lines()
    for target in (NVSHMEM, "triton", "triton-distributed"):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=4, seed=seed).equal, target


@pytest.mark.parametrize("mesh", MESHES[:2], ids=str)
@pytest.mark.quick(1)
def test_two_levels_in_front_of_a_matmul(mesh: tuple[int, int]) -> None:
    ranks = mesh[0] * mesh[1]
    schedule = MATMUL.plan_for(machine(*mesh), {"M": 6 * ranks, "K": 200, "N": 16 * ranks}, "bf16", PINS)
    assert verify(schedule).proved
    assert run_emulated(schedule, lowering.emit(schedule, NVSHMEM), calls=3).equal


@pytest.mark.parametrize("mesh", [(2, 2), (3, 2)], ids=str)
@pytest.mark.quick(1)
def test_whenever_puts_land(mesh: tuple[int, int]) -> None:
    steps = with_own_names(instantiated(elaborated(over_nodes(mesh, 4, 96, "fp32"))))
    operator = Operator(with_flights(steps), lambda x: [torch.cat(x)] * len(x))
    assert judged(operator, range(8), 80) == "right"


def lines_over_rails(steps: Steps) -> Steps:
    """What rails bring lies in lines, too."""
    lines = (replace(one, protocol=Protocol.LL128) if one.name == "out_rails" else one for one in steps.buffers)
    return replace(steps, buffers=tuple(lines))


def straight_to_lines(region: Region) -> Region:
    return replace(region, buffer="out_packets")


def not_handed_on(step: Step) -> tuple[Step, ...]:
    return () if isinstance(step, Store) and step.value == "come" and step.region.buffer == "out_packets" else (step,)


BUGS = {
    "lines are put": (lines_over_rails, Wrong.TORN),
    "packets are put where lines lie": (put_from(same, straight_to_lines), Wrong.TORN),
    "lines are not handed on": (each(not_handed_on), Wrong.NEVER_RAISED),
}


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_over_nodes_are_refuted(bug: str) -> None:
    steps = instantiated(elaborated(over_nodes((2, 2), 4, 96)))
    edit, kind = BUGS[bug]
    refutation = checked(edit(steps)).refutation
    assert refutation is not None and refutation.wrong is kind, str(refutation)


def test_no_line_is_put() -> None:
    steps = elaborated(over_nodes((2, 2), 4, 96))
    moved = [
        step.source[0].buffer
        for launch in steps.launches
        for role in launch.roles
        if isinstance(role.engine, Network)
        for phase in role.phases
        for step in _moves(phase.body)
    ]
    assert set(moved) == {"out_rails"}


def _moves(body: tuple[Step, ...]) -> list[Move]:
    inner = [one for step in body for one in _moves(getattr(step, "body", ()))]
    return [step for step in body if isinstance(step, Move)] + inner


# ---- what is planned and refused ---------------------------------------------------------------------------------------


def test_only_if_pinned() -> None:
    """They take longer than Lamport packets, and less long than as many bytes in packets of LL."""
    sizes = {"M": 256, "K": 4096, "N": 1024}
    lamport, lines, numbered = (
        AG_GEMM.plan_for(topologies.load("h200-nvswitch", 2), sizes, "bf16", {"protocol": one, "mover": "OwnKernel()"})
        for one in ("lamport", "ll128", "ll")
    )
    free = AG_GEMM.plan_for(topologies.load("h200-nvswitch", 2), {"M": 64, "K": 4096, "N": 1024}, "bf16", {})
    assert lamport.predicted_us < lines.predicted_us < numbered.predicted_us
    assert all(one.protocol is not Protocol.LL128 for one in calls_of(free))


@pytest.mark.parametrize(
    ("topology", "nodes", "pins", "reason"),
    [
        ("l20-pcie", None, {}, "l20-pcie has other links"),
        ("mi300x-full-mesh", None, {}, "mi300x-full-mesh has other links"),
        ("laptop-switch", 4, {}, "each node of laptop-switch@4 has one"),
        ("laptop-switch", None, {"mover": "Fused()"}, "only a kernel of its own moves lines"),
        (
            "laptop-switch",
            None,
            {"multicast": "yes", "mover": "OwnKernel()"},
            "a line would come to each rank in pieces",
        ),
    ],
)
def test_where_nothing_brings_them_whole(topology: str, nodes: int | None, pins: dict[str, str], reason: str) -> None:
    on = topologies.load(topology, 4, nodes)
    with pytest.raises(Exception, match=reason) as caught:
        AG_GEMM.plan_for(on, {"M": 64, "K": 64, "N": 64}, "bf16", {"protocol": "ll128", **pins})
    assert isinstance(caught.value, IllegalPin) or pins


@pytest.mark.parametrize("other", [{"arch": "gfx942"}, {"peer_atomics": False}], ids=str)
def test_the_proof_knows_the_links(other: dict[str, Any]) -> None:
    schedule = planned(AG_GEMM, 4, {"M": 32, "K": 64, "N": 64})
    steps = instantiated(elaborated(schedule))
    assert not list(broken_rules(steps, schedule.machine))
    found = [one for one in broken_rules(steps, replace(schedule.machine, **other)) if "line whole" in one.fact]
    assert found and all(one.bug is BugClass.LINK_ATOMICS for one in found)


# ---- the file ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("operator", "pins"), [(AG_GEMM, {}), (GEMM_AR, {"shots": "2"})], ids=str)
def test_the_file_explains_itself(operator: Overlap, pins: dict[str, str]) -> None:
    source = lowering.emit(planned(operator, 2, {"M": 64, "K": 4096, "N": 4096}, topology="h200-nvswitch", **pins))
    assert "LINE_OF_BFLOAT16 = (LINE_WORDS - 1) * 4" in source and "_BLOCK_COLS % LINE_OF_BFLOAT16 == 0" in source
    assert cited_elsewhere(source) == set() and unused(source) == set()
    assert bare_numbers(source) == [] and undefined(source) == ""
    schedule = planned(operator, 2, {"M": 64, "K": 4096, "N": 4096}, **pins)
    assert not check_source(lowering.emit(schedule, "triton-distributed")).findings
    plain = lowering.emit(planned(operator, 2, {"M": 64, "K": 4096, "N": 4096}, protocol="lamport", **pins))
    assert "lines" not in plain.partition("# ---- the operator")[0].partition("# ---- device helpers")[2]


@pytest.mark.slow
@pytest.mark.parametrize("cols", [60, 120, 960])
def test_an_edited_block_is_as_right(cols: int) -> None:
    sizes = {"M": 12, "K": 1100, "N": 64}
    schedule = planned(AG_GEMM, 2, sizes)
    source = lowering.emit(schedule)
    size = next(line for line in source.splitlines() if line.startswith("X_FULL_BLOCK_COLS = "))
    other = edited(source, (size, f"X_FULL_BLOCK_COLS = tl.constexpr({cols})"))
    assert run_emulated(schedule, other, calls=3).equal


def test_half_a_line_is_no_block() -> None:
    source = lowering.emit(planned(AG_GEMM, 2, {"M": 12, "K": 1100, "N": 64}))
    size = next(line for line in source.splitlines() if line.startswith("X_FULL_BLOCK_COLS = "))
    with pytest.raises(AssertionError, match="whole lines, of 60 each"):
        load_source(edited(source, (size, "X_FULL_BLOCK_COLS = tl.constexpr(128)")), "edited")


_SETS, _SLOT = "+ call % 2 *", "+ rank * X_FULL_PACKETS_PART"
MISTAKES = {
    "one set of lines": (_SETS, "+ 0 *"),
    "the slot of the next rank": (_SLOT, "+ (rank + 1) % NUM_RANKS * X_FULL_PACKETS_PART"),
    "nobody waits": ("while lines_missing(high, call, mask) > 0:", "while lines_missing(high, call, mask) > 1:"),
    "every other line is awaited": ("% 8 == 7)[None, :]", "% 16 == 15)[None, :]"),
    "the first piece has no number": (
        "missing = is_last(high) & (high != call)",
        "missing = is_last(high) & (high == 0)",
    ),
    "data end behind the line": ("place // PLACES * ELEMENTS + place % PLACES", "place"),
}


@pytest.mark.slow
def test_without_mistakes_nothing_is_refuted() -> None:
    source = lowering.emit(planned(AG_GEMM, 4, {"M": 32, "K": 280, "N": 64}, compute="triton"))
    assert not verdict(source).refuted


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_the_kernel_are_found(mistake: str) -> None:
    source = lowering.emit(planned(AG_GEMM, 4, {"M": 32, "K": 280, "N": 64}, compute="triton"))
    assert verdict(edited(source, MISTAKES[mistake])).refuted, mistake
