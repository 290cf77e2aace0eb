"""Nodes of several halves: what is gathered goes from node to node, from half to half, and inside of halves, each chunk once.
What is scattered goes the other way round, added up at each level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

import topologies
from tests.pipeline.rail_specs import SPECS, check_equal, check_random, check_refuted, planned_on, without
from tests.proof.planted import Change, refuted
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.movers import LibraryRails, StreamRails
from tilelink.ir.schedule import Schedule
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.verify import verify
from tilelink.schedule.index import evaluate, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.roles import Phase
from tilelink.schedule.roles import Schedule as Steps
from tilelink.schedule.steps import Call, For, Load, Move, Notify, Step, Store, Wait
from tilelink.schedule.walk import steps_in, with_phases
from topologies.topology import Topology

Mesh = tuple[int, int, int]  # nodes, halves of each, ranks of a half
MESHES: list[Mesh] = [(2, 2, 2), (3, 2, 2), (2, 3, 2), (2, 2, 3)]
NAMES = ("gathered", "ag_gemm", "both", "scattered", "gemm_rs", "mlp", "there_and_back", "gemm_ar")


def machine(nodes: int, halves: int, local: int, *, atomics: bool = False) -> Topology:
    """PCIe boards behind the bridges of so many sockets, in so many nodes. `atomics`: links inside of nodes carry them."""
    found = topologies.load("l20-pcie", 16, 2)
    inner, outer, far = found.levels
    levels = (
        replace(inner, size=local, peer_atomics=atomics),
        replace(outer, size=halves, peer_atomics=atomics),
        replace(far, size=nodes),
    )
    return replace(found, num_ranks=nodes * halves * local, levels=levels, gpu=replace(found.gpu, num_sms=24))


def planned(name: str, mesh: Mesh, mover: str, chunks: str = "2", rows: int = 24) -> Schedule:
    topology = machine(*mesh, atomics=mover.startswith("Rails"))
    return planned_on(topology, name, {"mover": mover, "chunks": chunks}, rows)


@pytest.mark.parametrize("mover", ["LibraryRails(2)", "StreamRails(1)", "Rails(2)"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(6)
def test_equal_to_torch(name: str, mesh: Mesh, mover: str) -> None:
    check_equal(planned(name, mesh, mover), mover, "2")


@pytest.mark.parametrize("chunks", ["1", "3"])
@pytest.mark.parametrize("mover", ["StreamRails(1)", "Rails(4)"])
@pytest.mark.parametrize("name", ["gathered", "ag_gemm", "both", "scattered", "gemm_rs"])
@pytest.mark.quick(1)
def test_chunks(name: str, mover: str, chunks: str) -> None:
    """Of 64 rows, so that chunks are added in strips."""
    check_equal(planned(name, (2, 2, 2), mover, chunks, rows=64), mover, chunks)


@pytest.mark.parametrize("block", range(8))
@pytest.mark.quick(1)
def test_random_specs_and_schedules(block: int) -> None:
    def of(nodes: int, local: int) -> Topology:
        return machine(nodes, 2, local // 2, atomics=block % 2 == 0)

    meshes = [(nodes, 2 * local) for nodes, local in ((2, 1), (2, 2), (3, 2), (2, 3))]
    check_random("three levels", range(6 * block, 6 * block + 6), meshes, of, lambda mover: mover.along_rails)


def sent(schedule: Schedule, mesh: Mesh) -> Counter[str]:
    """Rows that rank 0 moves over each level."""
    _, halves, local = mesh
    found = Counter[str]()
    steps = instantiated(elaborated(schedule))
    for role in (role for launch in steps.launches for role in launch.roles):
        for phase in role.phases:
            moves = [step for step in steps_in(phase.body) if isinstance(step, Move | Call)]
            for tile in range(phase.count if moves and isinstance(phase.count, int) else 0):
                env = {"rank": 0, "call": 1, "tile": tile, "program": 0}
                for key, index in phase.let:
                    env[key] = int(evaluate(index, env, {}))
                for one in moves:
                    there = one.target[0].at if isinstance(one, Move) else one.numbers[0] if one.numbers else rank
                    extent = one.target[0].extent if isinstance(one, Move) else one.operands[0].extent
                    at = int(evaluate(there, env, {}))
                    level = "node" if at // (halves * local) else "half" if at // local else "rank" if at else "own"
                    found[level] += int(evaluate(extent[-2], env, {}))
    return found


@pytest.mark.parametrize("mover", ["LibraryRails(2)", "StreamRails(1)", "Rails(1)"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_each_row_crosses_each_level_once(mesh: Mesh, mover: str) -> None:
    """A rank has the rows of its place on every node and half to hand on."""
    nodes, halves, local = mesh
    rows, found = 24, sent(planned("gathered", mesh, mover), mesh)
    assert found["node"] == (nodes - 1) * rows
    assert found["half"] == nodes * (halves - 1) * rows
    assert found["rank"] == nodes * halves * (local - 1) * rows


@pytest.mark.parametrize("mover", ["LibraryRails(2)", "StreamRails(4)"])
@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_one_sum_of_each_group_crosses(mesh: Mesh, mover: str) -> None:
    nodes, halves, local = mesh
    rows, found = 24, sent(planned("scattered", mesh, mover), mesh)
    assert found["node"] == (nodes - 1) * rows
    assert found["half"] == nodes * (halves - 1) * rows
    assert found["rank"] == nodes * halves * (local - 1) * rows


def test_levels_are_dimensions_of_the_ranks() -> None:
    mesh = elaborated(planned("ag_gemm", (3, 2, 2), "StreamRails(1)")).mesh
    assert [(axis.name, axis.transport is None) for axis in mesh] == [
        ("nodes", False),
        ("halves", True),
        ("local", True),
    ]


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
def test_halves_pay(name: str) -> None:
    """Where four boards share the link to the other socket, it carries a quarter of the bytes."""
    sizes, topology = {"M": 8192, "K": 4096, "N": 4096}, topologies.load("l20-pcie", 16, 2)
    through = SPECS[name].plan_for(topology, sizes, "bf16")
    (exchange,) = through.exchanges
    assert isinstance(exchange.mover, LibraryRails | StreamRails) and exchange.order.ranks.ranks_per_half == 4
    one_half = replace(topology, levels=(replace(topology.levels[1], size=8), topology.levels[2]))
    flat = SPECS[name].plan_for(one_half, sizes, "bf16")
    assert 1.4 < flat.predicted_us / through.predicted_us < 4
    assert verify(through).proved


# ---- mistakes ----------------------------------------------------------------------------------------------------------
Edit = Callable[[Steps], Steps]
TOO_EARLY = (Wrong.EARLY_READ, Wrong.TOLD_EARLY, Wrong.OVERWRITTEN, Wrong.NOT_AWAITED)
ELSEWHERE = (*TOO_EARLY, Wrong.NEVER_RAISED, Wrong.WRITTEN_BY_TWO, Wrong.NEVER_WRITTEN, Wrong.CIRCLE)


def of_role(ending: str, edit: Callable[[Phase], Phase]) -> Edit:
    return lambda steps: with_phases(steps, lambda role, phase: edit(phase) if role.name.endswith(ending) else phase)


def unasked(phase: Phase) -> Phase:
    return replace(phase, body=tuple(one for one in phase.body if not isinstance(one, Wait)))


def renamed(name: str, by: int) -> Callable[[Phase], Phase]:
    """To another rank of the node."""

    def edit(phase: Phase) -> Phase:
        let = tuple((key, index // 4 * 4 + (index + by) % 4 if key == name else index) for key, index in phase.let)
        return replace(phase, let=let)

    return edit


def no_chunks_of_others(phase: Phase) -> Phase:
    return replace(phase, count=0) if any(key == "owner" for key, _ in phase.let) else phase


BUGS: dict[str, tuple[Edit, tuple[Wrong, ...]]] = {
    "halves hand on what has not come": (of_role("_halves", unasked), TOO_EARLY),
    "ranks of a half hand on what has not come": (of_role("copy_x_full", unasked), TOO_EARLY),
    "to the rank of another place in the other half": (of_role("_halves", renamed("peer", 1)), ELSEWHERE),
    "what another rank has": (of_role("_halves", renamed("owner", 1)), ELSEWHERE),
    "ranks of a half hand on another part": (of_role("copy_x_full", renamed("owner", 2)), ELSEWHERE),
    "halves keep what has come from nodes": (
        of_role("_halves", no_chunks_of_others),
        (Wrong.NEVER_RAISED, Wrong.CIRCLE),
    ),
    "peers that may still read": (
        without(lambda one: isinstance(one, Wait) and one.signal == "done"),
        (Wrong.OVERWRITTEN,),
    ),
    "halves tell nobody": (
        of_role("_halves", lambda one: replace(one, body=tuple(s for s in one.body if not isinstance(s, Notify)))),
        (Wrong.NEVER_RAISED, Wrong.CIRCLE),
    ),
}


@pytest.mark.parametrize("mover", ["LibraryRails(2)", "StreamRails(1)"])
@pytest.mark.parametrize("bug", BUGS)
def test_mistakes_are_refuted(bug: str, mover: str) -> None:
    edit, kinds = BUGS[bug]
    check_refuted(planned("ag_gemm", (2, 2, 2), mover, "1", rows=64), edit, kinds)


def unawaited(signal: str) -> Edit:
    return without(lambda one: isinstance(one, Wait) and one.signal == signal)


SUMS: dict[str, tuple[Edit, tuple[Wrong, ...]]] = {
    "halves copy what nobody has added": (of_role("_halves", unasked), TOO_EARLY),
    "to the rank of another place in the other half": (of_role("_halves", renamed("peer", 1)), ELSEWHERE),
    "parts of the half have not come": (unawaited("y_parts_arrived"), TOO_EARLY),
    "sums of the other half have not come": (unawaited("y_parts_beside"), TOO_EARLY),
    "halves tell nobody": (
        of_role("_halves", lambda one: replace(one, body=tuple(s for s in one.body if not isinstance(s, Notify)))),
        (Wrong.NEVER_RAISED, Wrong.CIRCLE),
    ),
    "nobody adds for the other half": (
        without(lambda one: isinstance(one, Notify) and one.signal == "y_parts_of_half_added"),
        (Wrong.NEVER_RAISED, Wrong.CIRCLE),
    ),
}


@pytest.mark.parametrize("mover", ["LibraryRails(2)", "Rails(2)"])
@pytest.mark.parametrize("bug", SUMS)
def test_mistakes_in_sums_are_refuted(bug: str, mover: str) -> None:
    edit, kinds = SUMS[bug]
    check_refuted(planned("gemm_rs", (2, 2, 2), mover, "1", rows=64), edit, kinds)


def from_next(buffer: str, kind: type[Load | Store]) -> Change:
    """The part behind the right one."""

    def change(step: Step) -> tuple[Step, ...]:
        if isinstance(step, kind) and step.region.buffer == buffer:
            part, *rest = step.region.start
            return (replace(step, region=replace(step.region, start=((part + 1) % 4, *rest))),)
        return (step,)

    return change


def once_more(step: Step) -> tuple[Step, ...]:
    """What comes from the other half is added twice."""
    if isinstance(step, For) and any(
        isinstance(one, Load) and one.region.buffer == "y_parts_from_halves" for one in step.body
    ):
        return step, step
    return (step,)


CONTENTS: dict[str, Change] = {
    "a sum of the own half": from_next("y_parts_from_halves", Load),
    "a sum for another half": from_next("y_parts_of_half", Store),
    "a part for another half": from_next("y_parts", Load),
    "once more": once_more,
}


@pytest.mark.parametrize("bug", CONTENTS)
def test_other_sums_are_refuted(bug: str) -> None:
    assert refuted(planned("gemm_rs", (2, 2, 2), "Rails(2)", "1"), CONTENTS[bug])
