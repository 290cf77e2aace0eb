"""Rails inside of a node, between halves that a slower link joins: proved, compared with torch, chosen where they pay."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

import lowering
import topologies
from tests.pipeline.rail_specs import SPECS, check_equal, check_refuted, planned_on, without
from tests.pipeline.random_specs import random_spec
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.movers import SocketRails
from tilelink.ir.schedule import Schedule
from tilelink.planner.sample import sample_schedule
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.runtime.run import run_emulated
from tilelink.schedule.index import evaluate, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Phase
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Move, Notify, Wait
from tilelink.schedule.walk import steps_in, with_phases
from topologies.topology import Topology

HALVES = [(2, 2), (2, 4), (3, 2), (4, 2), (2, 1), (2, 3)]


def machine(halves: int, local: int) -> Topology:
    """PCIe boards behind the bridges of so many sockets."""
    found = topologies.load("l20-pcie", 8)
    inner, outer = found.levels
    levels = (replace(inner, size=local), replace(outer, size=halves))
    return replace(found, num_ranks=halves * local, levels=levels, gpu=replace(found.gpu, num_sms=24))


def planned(name: str, mesh: tuple[int, int], pins: dict[str, str], rows: int = 24) -> Schedule:
    return planned_on(machine(*mesh), name, {"mover": "SocketRails(2)", **pins}, rows)


@pytest.mark.parametrize("chunks", ["1", "2", "3"])
@pytest.mark.parametrize("mesh", HALVES, ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.quick(4)
def test_equal_to_torch(name: str, mesh: tuple[int, int], chunks: str) -> None:
    check_equal(planned(name, mesh, {"chunks": chunks}), "SocketRails(2)", chunks)


def test_halves_of_one_rank_hand_on_nothing() -> None:
    """Nothing passes their port, behind which copies of another exchange begin."""
    pins = {"x_full.mover": "SocketRails(1)", "w_full.mover": "CopyEngine()", "mover": "CopyEngine()"}
    schedule = planned("both", (3, 1), pins)
    assert len({exchange.mover.text for exchange in schedule.exchanges}) == 2
    assert verify(schedule).proved and run_emulated(schedule, lowering.emit(schedule), calls=2).equal


@pytest.mark.parametrize("block", range(8))
@pytest.mark.quick(1)
def test_random_specs_and_schedules(block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        rng = random.Random(f"sockets {seed}")
        mesh = rng.choice(HALVES)
        schedule = sample_schedule(random_spec(rng, mesh[0] * mesh[1]), machine(*mesh), rng)
        assert verify(schedule).proved, f"seed {seed}"
        result = run_emulated(schedule, lowering.emit(schedule), calls=2, seed=seed)
        assert result.equal, f"seed {seed}: {result.lines()}\n{schedule}"


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
@pytest.mark.parametrize("halves", [2, 4])
def test_each_byte_crosses_once(name: str, halves: int) -> None:
    """Rows that a rank moves to other halves: its part once for each of them, as a ring of two levels moves them."""
    local, rows = 2, 24
    schedule = planned(name, (halves, local), {"chunks": "2"}, rows)
    crossing = 0
    steps = instantiated(elaborated(schedule))
    for role in (role for launch in steps.launches for role in launch.roles):
        for phase in role.phases:
            moves = [step for step in steps_in(phase.body) if isinstance(step, Move)]
            for tile in range(phase.count if moves and isinstance(phase.count, int) else 0):
                env = {"rank": 0, "call": 1, "tile": tile, "program": 0}
                for key, index in phase.let:
                    env[key] = int(evaluate(index, env, {}))
                for move in moves:
                    there = int(evaluate(move.target[0].at, env, {}))
                    crossing += int(evaluate(move.target[0].extent[-2], env, {})) if there // local else 0
    assert crossing == (halves - 1) * rows


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "all_gather", "mlp"])
def test_they_are_planned_where_the_link_of_sockets_is_narrow(name: str) -> None:
    spec = SPECS["gathered" if name == "all_gather" else name]
    every = {"M": 8192, "K": 4096, "N": 14336, "H": 4096, "F": 14336}
    sizes = {str(dim): every[str(dim)] for value in spec.spec.inputs for dim in value.shape}
    topology = topologies.load("l20-pcie", 8)
    best, copies = (
        spec.plan_for(topology, sizes, "bf16"),
        spec.plan_for(topology, sizes, "bf16", {"mover": "CopyEngine()"}),
    )
    assert all(isinstance(one.mover, SocketRails) for one in best.exchanges) and best.exchanges
    # behind a shared bridge a rank has a quarter of a rate: copies cross sockets at 16 / 4 GB/s for 7 parts, and rails take 6
    # at 26 / 4 GB/s; halves of one level have nothing to gain
    assert 1.7 < copies.predicted_us / best.predicted_us < 7 / 16 * 26 / 6 + 0.1
    alone = spec.plan_for(topologies.load("l20-pcie", 4), sizes, "bf16")
    assert not any(isinstance(one.mover, SocketRails) for one in alone.exchanges)


def test_halves_are_dimensions_of_the_ranks() -> None:
    assert topologies.load("l20-pcie", 8).ranks_per_half == 4
    assert topologies.load("l20-pcie", 4).ranks_per_half == topologies.load("h200-nvswitch", 8, 2).ranks_per_half == 4
    mesh = elaborated(planned("ag_gemm", (3, 2), {})).mesh
    assert [(axis.name, axis.transport) for axis in mesh] == [("halves", None), ("local", None)]


@pytest.mark.parametrize(
    ("topology", "pins", "reason"),
    [
        (topologies.load("l20-pcie", 4), {}, "SocketRails|Legal mover"),
        (topologies.load("h200-nvswitch", 8), {}, "SocketRails|Legal mover"),
        (topologies.load("h800-2-nodes"), {}, "Rails"),
        (machine(2, 2), {"nest": "chunk by chunk"}, "rank by rank"),
        (machine(2, 2), {"transfer": "pull"}, "pushed by their owner"),
    ],
    ids=["one half", "a switch", "nodes", "chunk by chunk", "pull"],
)
def test_why_not(topology: Topology, pins: dict[str, str], reason: str) -> None:
    sizes = {"M": 512, "K": 64, "N": 512}
    with pytest.raises((IllegalPin, NoLegalSchedule), match=reason):
        SPECS["ag_gemm"].plan_for(topology, sizes, "fp32", {"mover": "SocketRails(2)"} | pins)


# ---- mistakes ----------------------------------------------------------------------------------------------------------
Edit = Callable[[Steps], Steps]


def to_the_wrong_rail(steps: Steps) -> Steps:
    def wrong(phase: Phase) -> Phase:
        let = tuple((name, (rank + 1) % 4 if name == "peer" else index) for name, index in phase.let)
        return replace(phase, let=let)

    return with_phases(steps, lambda role, phase: wrong(phase) if role.name.endswith("_rails") else phase)


BUGS: dict[str, tuple[str, Edit, tuple[Wrong, ...]]] = {
    "chunks handed on before they have come": (
        "ag_gemm",
        without(lambda one: isinstance(one, Wait) and one.signal == "x_full_arrived" and "owner" in str(one.index)),
        (Wrong.EARLY_READ, Wrong.TOLD_EARLY, Wrong.OVERWRITTEN, Wrong.NOT_AWAITED),
    ),
    "sums leave before they are there": (
        "gemm_rs",
        without(lambda one: isinstance(one, Wait) and one.signal.endswith("_of_node_added")),
        (Wrong.EARLY_READ, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY, Wrong.NOT_AWAITED),
    ),
    "a sum that does not wait for its half": (
        "gemm_rs",
        without(lambda one: isinstance(one, Wait) and "part" in str(one.index) and "segment" not in str(one.index)),
        (Wrong.EARLY_READ, Wrong.NOT_AWAITED, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY),
    ),
    "tiles do not wait for the other half": (
        "gemm_rs",
        without(lambda one: isinstance(one, Wait) and one.signal.endswith("_far")),
        (Wrong.EARLY_READ, Wrong.NOT_AWAITED, Wrong.OVERWRITTEN, Wrong.TOLD_EARLY),
    ),
    "nobody is told of a rail's chunk": (
        "gemm_rs",
        without(lambda one: isinstance(one, Notify) and one.signal.endswith("_far")),
        (Wrong.NEVER_RAISED,),
    ),
    "peers that may still read": (
        "ag_gemm",
        without(lambda one: isinstance(one, Wait) and one.signal == "done"),
        (Wrong.OVERWRITTEN,),
    ),
    "chunks to the wrong rail": (
        "ag_gemm",
        to_the_wrong_rail,
        (
            Wrong.NEVER_RAISED,
            Wrong.WRITTEN_BY_TWO,
            Wrong.EARLY_READ,
            Wrong.TOLD_EARLY,
            Wrong.OVERWRITTEN,
            Wrong.NOT_AWAITED,
            Wrong.NEVER_WRITTEN,
        ),
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_are_refuted(bug: str) -> None:
    name, edit, kinds = BUGS[bug]
    check_refuted(planned(name, (2, 2), {"chunks": "1"}, rows=64), edit, kinds)
