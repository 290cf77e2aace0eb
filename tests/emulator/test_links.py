"""Links that do not carry atomics: one on a peer's word is refused, stores, copies and own atomics are not."""

from __future__ import annotations

import pytest
import torch

import lowering
import topologies
from tests.emulator import kernels
from tests.pipeline.workloads import load, sizes
from tilelink.emulator import NoPeerAtomics, World
from tilelink.runtime.compare import compare_call
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

INT = torch.int32


def notify_peer(peer_atomics: bool) -> None:
    world = World(2, peer_atomics=peer_atomics)
    signals = [fabric.symmetric((3,), INT) for fabric in world.fabrics]
    world.fabrics[0].main().launch(kernels.notify, (1,), signals[0].peers[1][2:3], 5)
    world.run()
    assert signals[1].local.tolist() == [0, 0, 5]


def test_an_atomic_on_a_peer_is_refused() -> None:
    notify_peer(True)
    with pytest.raises(NoPeerAtomics) as caught:
        notify_peer(False)
    facts = caught.value.facts
    assert (facts["rank"], facts["peer"], facts["task"]) == (0, 1, "notify(0, 0, 0)")
    assert facts["what"] == "signals[2] of rank 1"
    assert "tl.atomic_xchg" in facts["place"].text  # type: ignore[attr-defined]


def test_one_lane_on_a_peer_is_enough() -> None:
    world = World(2, peer_atomics=False)
    words = [fabric.symmetric((4,), INT) for fabric in world.fabrics]
    with pytest.raises(NoPeerAtomics, match=r"atomic on words\[3\] of rank 1"):
        world.fabrics[0].main().launch(kernels.atomics, (1,), words[0].peers[1][3:], torch.zeros(4, dtype=INT))
        world.run()


def test_own_atomics_peer_stores_and_copies_pass() -> None:
    world = World(2, num_sms=2, peer_atomics=False)
    words = [fabric.symmetric((64,), INT) for fabric in world.fabrics]
    first, second = world.fabrics
    first.main().launch(kernels.fill, (1,), words[0].peers[1], 3, 64, GUARD=False)
    first.main().copy(words[0].peers[1][0:1], torch.full((1,), 9, dtype=INT))
    second.main().launch(kernels.wait, (1,), words[1].local, 9)
    second.main().launch(kernels.count_up, (64,), words[1].local)
    world.run()
    assert words[1].local.tolist() == [10] + [4] * 63


@pytest.mark.parametrize("name", ["02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs"])
def test_what_is_planned_for_such_links_uses_none(name: str) -> None:
    schedule = load(name).plan_for(topologies.load("l40s-pcie", 2), sizes(name, 2), "bf16", {"algorithm": "direct"})
    build = operator_class(load_source(lowering.emit(schedule), schedule.name))
    world = World(2, num_sms=schedule.machine.num_sms, peer_atomics=False)
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 3)
    results = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    world.run()
    assert not compare_call(schedule, inputs, [(result,) for result in results]).differences
