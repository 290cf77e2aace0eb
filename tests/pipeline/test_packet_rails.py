"""Gathers in packets over several nodes: packets go along rails, and are handed on inside of nodes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import lowering
import topologies
from lowering.steps.renaming import with_own_names
from tests.adversary.bugs import verdict
from tests.pipeline.workloads import load
from tests.schedule.judged import judged
from tests.schedule.operators import Operator
from tilelink.adversary.verdict import VerdictKind
from tilelink.compiled.check import check_compiled
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin
from tilelink.ir.calls import PacketCollective
from tilelink.ir.schedule import Schedule
from tilelink.planner.levels import busy_levels
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.flights import with_flights
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import Index, call, rank, replaced
from tilelink.schedule.instance import instantiated, with_indices
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Network, Sms
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Load, Move, Step, Store
from tilelink.schedule.walk import mapped, with_bodies, with_phases, with_roles
from topologies.topology import Topology

GATHER, MATMUL = load("11_reduce_scatter.py:all_gather"), load("02_ag_gemm.py:ag_gemm")
PINS = {"protocol": "ll", "mover": "OwnKernel()"}
MESHES = [(2, 2), (3, 2), (2, 4), (4, 2), (2, 1), (3, 1), (2, 3)]
NVSHMEM = "triton-nvshmem"
_PUT = "nvshmemx_putmem_nbi_block"


def machine(nodes: int, local: int) -> Topology:
    return topologies.load("laptop-switch", nodes * local, nodes)


def planned(mesh: tuple[int, int], rows: int, cols: int, dtype: str = "bf16") -> Schedule:
    sizes = {"M": mesh[0] * mesh[1] * rows, "N": cols}
    return GATHER.plan_for(machine(*mesh), sizes, dtype, PINS)


def test_one_launch_and_nothing_else() -> None:
    (launch,) = planned((2, 2), 16, 64).launches
    assert isinstance(launch, PacketCollective) and launch.per_node == 2 and launch.puts > 0


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.quick(7)
def test_equal_to_torch(mesh: tuple[int, int], seed: int) -> None:
    rng = random.Random(repr((mesh, seed)))
    dtype = rng.choice(("bf16", "fp16", "fp32"))
    schedule = planned(mesh, rng.randint(1, 40), rng.randint(1, 60) * 8, dtype)
    proof = verify(schedule)
    assert proof.proved, proof.lines()
    for target in (NVSHMEM, "triton", "triton-distributed"):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=4, seed=seed).equal, target


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.quick(2)
def test_in_front_of_a_matmul(mesh: tuple[int, int]) -> None:
    ranks = mesh[0] * mesh[1]
    schedule = MATMUL.plan_for(machine(*mesh), {"M": 6 * ranks, "K": 40, "N": 16 * ranks}, "bf16", PINS)
    assert verify(schedule).proved
    for target in (NVSHMEM, "triton"):
        assert run_emulated(schedule, lowering.emit(schedule, target), calls=3).equal


@pytest.mark.parametrize("mesh", [(2, 2), (3, 1)], ids=str)
@pytest.mark.quick(1)
def test_whenever_puts_land(mesh: tuple[int, int]) -> None:
    steps = with_own_names(instantiated(elaborated(planned(mesh, 4, 32, "fp32"))))
    operator = Operator(with_flights(steps), lambda x: [torch.cat(x)] * len(x))
    assert judged(operator, range(8), 80) == "right"


# ---- mistakes ----------------------------------------------------------------------------------------------------------

Change = Callable[[Steps], Steps]


def each(change: Callable[[Step], tuple[Step, ...]]) -> Change:
    return lambda steps: with_bodies(steps, lambda body: mapped(body, change))


def put_from(change: Callable[[Region], Region], to: Callable[[Region], Region]) -> Change:
    def changed(step: Step) -> tuple[Step, ...]:
        if not isinstance(step, Move):
            return (step,)
        return (Move(tuple(map(change, step.source)), tuple(map(to, step.target))),)

    return each(changed)


def same(region: Region) -> Region:
    return region


def one_set(steps: Steps) -> Steps:
    """The same packets in each call."""
    return with_bodies(steps, lambda body: with_indices(body, lambda one: replaced(one, {"call": 0})))


def not_handed_on(step: Step) -> tuple[Step, ...]:
    """What has come from a rail stays there."""
    away = isinstance(step, Store) and step.region.at == Index("peer") and step.value == "come"
    return () if away else (step,)


def torn(step: Step) -> tuple[Step, ...]:
    """A put ends inside of a packet, which the next one goes on with."""
    if not isinstance(step, Move):
        return (step,)

    def half(region: Region, number: int) -> Region:
        *start, first = region.start
        *extent, cols = region.extent
        cut = 3
        begin, size = (first, cut) if number == 0 else (first + cut, cols - cut)
        return replace(region, start=(*start, begin), extent=(*extent, size))

    (source,), (target,) = step.source, step.target
    return tuple(Move((half(source, one),), (half(target, one),)) for one in range(2))


def by_sms(steps: Steps) -> Steps:
    """As if the memory of other nodes were mapped."""
    return with_roles(
        steps, lambda _, role: replace(role, engine=Sms(1, 4)) if isinstance(role.engine, Network) else role
    )


def straight_from_rails(step: Step) -> tuple[Step, ...]:
    """Ranks of other nodes load what they are sent."""
    if isinstance(step, Load) and step.result == "come":
        return (replace(step, region=replace(step.region, at=Index("owner"))),)
    return (step,)


def put_first(steps: Steps) -> Steps:
    """A put reads what is packed behind it."""

    def behind(body: tuple[Step, ...]) -> tuple[Step, ...]:
        packed = [one for one in body if isinstance(one, Store) and one.region.at == rank and one.value == "own"]
        return tuple(one for one in body if one not in packed) + tuple(packed)

    return with_phases(
        steps,
        lambda role, phase: replace(phase, body=behind(phase.body)) if isinstance(role.engine, Network) else phase,
    )


BUGS: dict[str, tuple[Change, tuple[Wrong, ...]]] = {
    "one set of packets": (one_set, (Wrong.OVERWRITTEN,)),
    "a packet torn over two puts": (each(torn), (Wrong.TORN,)),
    "the wrong rail": (
        put_from(same, lambda one: replace(one, at=rank // 2 * 2 + (rank + 1) % 2)),
        (Wrong.NEVER_RAISED, Wrong.OVERWRITTEN, Wrong.EARLY_READ),
    ),
    "packets that are not handed on": (each(not_handed_on), (Wrong.NEVER_RAISED,)),
    "packets of the last call": (
        put_from(lambda one: replace(one, start=((call + 1) % 2, *one.start[1:])), same),
        (Wrong.NEVER_RAISED, Wrong.EARLY_READ, Wrong.OVERWRITTEN),
    ),
    "a put of what is not packed yet": (put_first, (Wrong.TOLD_EARLY,)),
    "stores to another node": (by_sms, (Wrong.ACROSS,)),
    "loads from another node": (each(straight_from_rails), (Wrong.ACROSS,)),
}


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_are_refuted(bug: str) -> None:
    steps = instantiated(elaborated(planned((2, 2), 4, 32)))
    edit, kinds = BUGS[bug]
    changed = edit(steps)
    assert changed != steps
    refutation = checked(changed).refutation
    assert refutation is not None and refutation.wrong in kinds, str(refutation)


def test_programs_that_put_take_sms() -> None:
    schedule = planned((2, 2), 4, 32)
    steps = with_roles(
        instantiated(elaborated(schedule)),
        lambda _, role: replace(role, engine=Network(100)) if isinstance(role.engine, Network) else role,
    )
    assert any("do not fit on" in one.fact for one in verify(schedule, steps).findings)


# ---- what is emitted ---------------------------------------------------------------------------------------------------


def emitted() -> str:
    schedule = GATHER.plan_for(topologies.load("h200-nvswitch", 4, 2), {"M": 256, "N": 512}, "bf16", PINS)
    return lowering.emit(schedule, NVSHMEM)


@pytest.mark.slow
def test_no_delay_of_a_put_shows() -> None:
    found = verdict(lowering.emit(planned((2, 2), 2, 16), NVSHMEM), "all_gather")
    assert found.kind is VerdictKind.NOT_REFUTED, found.lines()


MISTAKES = {
    "one set of packets": (r"call % 2", "0"),
    "another rank of the node": (r"(RANKS_PER_NODE \+ rank % RANKS_PER_NODE)", r"\1 - rank % 2 + (rank + 1) % 2"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.slow
def test_a_mistake_shows(mistake: str) -> None:
    line, other = MISTAKES[mistake]
    source = lowering.emit(planned((2, 2), 4, 16), NVSHMEM)
    changed = re.sub(line, other, source, flags=re.MULTILINE)
    assert changed != source
    assert verdict(changed, "all_gather").kind is VerdictKind.REFUTED


def test_a_block_is_one_put() -> None:
    source = emitted()
    assert source.count(" put_alone(") == 2  # its name, and one call
    assert "OUT_PUT_BLOCK_ROWS" in source


def test_the_compiler_keeps_packets_in_front_of_their_put() -> None:
    source = emitted()
    report = check_compiled(load_source(source, "all_gather"), 4, "sm_90")
    assert not report.findings and not report.unknown and report.events, report.lines()
    without = source.replace("    published()\n", "").replace("    program_barrier()\n", "")
    assert without != source
    report = check_compiled(load_source(without, "all_gather"), 4, "sm_90")
    assert report.findings and _PUT in report.findings[0].early, report.lines()


# ---- what is planned ---------------------------------------------------------------------------------------------------


def test_packets_that_readers_empty_do_not_cross_nodes() -> None:
    with pytest.raises(IllegalPin, match="protocol=ll"):
        GATHER.plan_for(machine(2, 2), {"M": 64, "N": 64}, "bf16", {"protocol": "lamport"})


@pytest.mark.parametrize(("rows", "protocol"), [(64, "ll"), (65536, "simple")])
def test_few_bytes_are_planned_in_packets(rows: int, protocol: str) -> None:
    schedule = GATHER.plan_for(topologies.load("h800-2-nodes"), {"M": rows, "N": 4096}, "bf16", {})
    packets = [one for one in schedule.launches if isinstance(one, PacketCollective)]
    assert ("ll" if packets else "simple") == protocol


def test_levels_of_packets() -> None:
    topology = topologies.load("h800-2-nodes")
    schedule = GATHER.plan_for(topology, {"M": 512, "N": 4096}, "bf16", PINS)
    found = {one.level: one.us for one in busy_levels(schedule, topology)}
    part = 512 // 16 * 4096 * 2 * 2  # bytes in packets, half of which are numbers
    rates = [level.gb_per_s * 1e3 for level in topology.levels]
    assert list(found.values()) == pytest.approx([7 * 2 * part / rates[0], part / rates[1]])
