"""Packets that tiles send themselves: emulated for both targets and all dtypes, proved, refuted where they must be, planned
where weights are read for few rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import lowering
import topologies
from tests.adversary.bugs import edited, verdict
from tests.pipeline.features import of
from tests.pipeline.operators import GEMM_AR, GEMM_RS, scatter_columns
from tilelink.emulator import World
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.collective import Collective
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import Fused
from tilelink.ir.nodes import Kernel
from tilelink.ir.spec import bind
from tilelink.ir.steps import Step, Store, SumPackets
from tilelink.planner.collectives import MOST_PACKETS, legal_collectives
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilelink.declaration import Overlap
    from tilelink.ir.schedule import Schedule

CASES = {
    name: (row.operator, dict(row.sizes), row.pins["algorithm"])
    for name, row in of("packets of tiles").items()
    if "algorithm" in row.pins
}


def planned(
    operator: Overlap,
    sizes: dict[str, int],
    algorithm: str = "ll-tiles",
    dtype: str = "bf16",
    topology: str = "laptop-switch",
    **pins: str,
) -> Schedule:
    return operator.plan_for(topologies.load(topology, 4), sizes, dtype, {"algorithm": algorithm, **pins})


def with_steps(schedule: Schedule, change: Callable[[Step], Step | None], **role: Any) -> Schedule:
    """With other steps, and other fields of roles, in its kernels; a step that becomes None is left out."""
    launches = []
    for launch in schedule.launches:
        if isinstance(launch, Kernel) and launch.compute is not None:
            body = tuple(step for step in map(change, launch.compute.body) if step is not None)
            launch = replace(launch, compute=replace(launch.compute, body=body, **role))
        launches.append(launch)
    return replace(schedule, launches=tuple(launches))


@pytest.mark.parametrize("algorithm", ["ll-tiles", "lamport-tiles", "lamport-tiles-two-shot"])
@pytest.mark.quick(1)
def test_all_ranks_add_in_one_order(algorithm: str) -> None:
    """All have the same bits, though sums of floats depend on the order."""
    schedule = planned(GEMM_AR, {"M": 32, "K": 256, "N": 128}, algorithm)
    build = operator_class(load_source(lowering.emit(schedule), "word_tiles"))
    world = World(4, num_sms=schedule.machine.num_sms, seed=3)
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 5)
    first, *others = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    assert first.any() and all(torch.equal(first, other) for other in others)


def _edit(kind: type, **fields: object) -> Callable[[Step], Step | None]:
    """A change of all steps of a kind; nothing is left of them without fields."""

    def change(step: Step) -> Step | None:
        one: Any = step
        if isinstance(step, kind):
            one = replace(one, **fields) if fields else None
        changed: Step | None = one
        return changed

    return change


MISTAKES: dict[str, tuple[Callable[[Step], Step | None], str]] = {
    "nothing is added": (_edit(SumPackets), "nothing made it"),
    "of another value": (_edit(SumPackets, value="x"), "x is no tile"),
    "every rank gets everything": (_edit(SumPackets, cut=""), "more than the tile holds of the sum of y"),
    "shares of the other axis": (_edit(SumPackets, cut="n"), "more than the tile holds of the sum of y"),
    "another number of shots": (_edit(SumPackets, shots=2), "lies outside of its buffer"),
    "indexed the other way": (_edit(SumPackets, index=("n", "m")), "more than the tile holds of the sum of y"),
    "nothing is stored": (_edit(Store), "nothing makes a part of it"),
    "what was not added is stored": (_edit(Store, value="y"), "it is y, not the sum of y over the ranks"),
    "another sum": (_edit(SumPackets, result="y"), "no buffer y"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_the_proof_refutes(name: str) -> None:
    schedule = planned(*CASES["scatter rows"])
    assert verify(schedule).proved
    change, fact = MISTAKES[name]
    found = verify(with_steps(schedule, change)).findings
    assert any(fact in finding.fact for finding in found), found


@pytest.mark.slow
def test_packets_of_the_other_protocol_are_right_too() -> None:
    other = with_steps(planned(*CASES["scatter rows"]), _edit(SumPackets, protocol=Protocol.LAMPORT))
    assert verify(other).proved
    assert run_emulated(other, lowering.emit(other), calls=3).equal


def test_a_share_is_stored_as_one() -> None:
    schedule = planned(*CASES["scatter rows"])

    def whole(step: Step) -> Step:
        return replace(step, operand=replace(step.operand, cut="")) if isinstance(step, Store) else step

    found = verify(with_steps(schedule, whole)).findings
    assert any("it stores more than the tile holds" in finding.fact for finding in found), found


def test_programs_that_wait_for_peers_fit() -> None:
    schedule = planned(*CASES["several tiles a program"])
    small = replace(schedule, machine=replace(schedule.machine, num_sms=1))
    assert BugClass.RESIDENCY in [finding.bug for finding in verify(small).findings]


@pytest.mark.slow
def test_tiles_may_be_halved_and_stay_in_one_order() -> None:
    schedule = planned(*CASES["several tiles a program"])
    halved = with_steps(schedule, lambda step: step, halved=1)
    assert verify(halved).proved
    assert run_emulated(halved, lowering.emit(halved), calls=3).equal
    kernel = schedule.kernels()[0]
    assert kernel.compute is not None
    m, *others = kernel.compute.axes
    cut = (replace(m, extent=m.extent // 4, segments=4), *others)
    found = verify(with_steps(schedule, lambda step: step, axes=cut)).findings
    assert any("programs wait for each other" in finding.fact for finding in found), found


FEW = {"M": 32, "K": 16, "N": 64}  # two tiles

PLANTED = {
    "one set of packets": ("call % 2 * OUT_PACKETS_STEP_0", "0 * OUT_PACKETS_STEP_0"),
    "nobody waits": (
        "while not_there(found, call, NUMBERED, mask) > 0:",
        "while not_there(found, call, NUMBERED, mask) > 1:",
    ),
    "the number of the call stays": ("program, call + 1)", "program, call)"),
    "shares of the next rank": ("(m - peer * (M_SIZE", "(m - (peer + 1) % NUM_RANKS * (M_SIZE"),
}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ll-tiles", "lamport-tiles"])
def test_without_mistakes_nothing_is_refuted(algorithm: str) -> None:
    assert not verdict(lowering.emit(planned(GEMM_RS, FEW, algorithm))).refuted


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ll-tiles", "lamport-tiles"])
@pytest.mark.parametrize("name", PLANTED)
def test_mistakes_in_the_kernel_are_found(name: str, algorithm: str) -> None:
    source = lowering.emit(planned(GEMM_RS, FEW, algorithm))
    assert verdict(edited(source, PLANTED[name])).refuted, name


@pytest.mark.slow
def test_packets_that_nobody_empties_are_found() -> None:
    source = lowering.emit(planned(GEMM_RS, FEW, "lamport-tiles"))
    assert verdict(edited(source, ("store_words(words, tl.zeros(words.shape, tl.int64), mask)", "pass"))).refuted


def test_where_it_is_legal() -> None:
    """Of what tiles make, for few whole packets, none of which belongs to two ranks; not with the library's matmul."""

    def legal(operator: Overlap, sizes: dict[str, int], protocol: Protocol = Protocol.LL) -> bool:
        machine = topologies.load("h200-nvswitch", 4)
        ((_, ways),) = legal_collectives(bind(operator.spec, sizes, 4, "bf16"), machine)
        return Collective(Fused(), protocol) in ways

    most = MOST_PACKETS * 2 // 64
    assert legal(GEMM_AR, {"M": most, "K": 64, "N": 64}) and not legal(GEMM_AR, {"M": most + 1, "K": 64, "N": 64})
    assert legal(scatter_columns, {"M": 16, "K": 64, "N": 72}) and not legal(
        scatter_columns, {"M": 16, "K": 64, "N": 68}
    )
    assert not legal(GEMM_RS, {"M": 16, "K": 64, "N": 33})
    assert not legal(GEMM_RS, {"M": 16, "K": 64, "N": 34}, Protocol.LAMPORT)
    assert legal(GEMM_RS, {"M": 16, "K": 64, "N": 36}, Protocol.LAMPORT)
    with pytest.raises(NoLegalSchedule):
        planned(GEMM_RS, {"M": 32, "K": 64, "N": 64}, compute="library")
    with pytest.raises(IllegalPin):
        planned(GEMM_RS, {"M": 32, "K": 64, "N": 64}, topology="l20-pcie")
