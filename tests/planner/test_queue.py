"""Queues in the search space: what is enumerated, what is legal, and what pins reach."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

import topologies
from tests.pipeline.workloads import load
from tilelink import CommSms
from tilelink.elaborate.schedule import elaborated
from tilelink.errors import IllegalPin, NoLegalSchedule
from tilelink.ir.collective import Collective
from tilelink.ir.movers import Transfer
from tilelink.ir.nodes import Kind, Memory
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import bind
from tilelink.planner.options import exchange_options
from tilelink.planner.pins import pin_names
from tilelink.planner.sample import sample_schedule
from tilelink.planner.space import structures
from tilelink.proof.verify import verify

QUEUE = load("01_queue.py:queue")
SIZES = {"B": 4 * 100, "C": 24}


def planned(**pin: object) -> Schedule:
    return planned_on("h200-nvswitch", pin)


def planned_on(topology: str, pin: Mapping[str, object]) -> Schedule:
    return QUEUE.plan_for(topologies.load(topology, 4), SIZES, "bf16", pin)


def test_the_options() -> None:
    machine = topologies.load("h200-nvswitch", 4)
    (structure,) = structures(bind(QUEUE.spec, SIZES, 4, "bf16"), machine, {})
    assert structure.collectives == (("out", Collective()),)
    (relation,) = structure.graph.relations()
    assert (relation.kind, relation.by, relation.part) == (Kind.SHIFT, 1, (100, 24))
    options = exchange_options(structure, relation, {})
    assert {option.slots for option in options} == {1, 8, 32, 128}
    assert {option.transfer for option in options} == {Transfer.PUSH}
    assert all(isinstance(option.mover, CommSms) for option in options)
    assert {option.chunks for option in options} == {100, 50, 25, 13}  # items of 1, 2, 4 and 8 rows; 7 are 15 rows each


@pytest.mark.parametrize("topology", ["h200-nvswitch", "laptop-switch", "laptop-mesh", "mi300x-full-mesh"])
def test_all_choices_pinned_back(topology: str) -> None:
    found = planned_on(topology, {})
    assert planned_on(topology, dict(found.choices)) == found


@pytest.mark.parametrize("seed", range(12))
def test_sampled_queues_are_proved(seed: int) -> None:
    rng = random.Random(seed)
    topology = topologies.load(rng.choice(("h200-nvswitch", "laptop-switch", "laptop-mesh")), rng.choice((2, 3, 4)))
    sizes = {"B": topology.num_ranks * rng.randint(1, 300), "C": rng.choice((1, 7, 128))}
    schedule = sample_schedule(bind(QUEUE.spec, sizes, topology.num_ranks, "bf16"), topology, rng)
    (kernel,) = schedule.kernels()
    assert kernel.sms <= schedule.machine.num_sms
    assert verify(schedule).proved


def test_pins_reach_the_nodes() -> None:
    schedule = planned(mover=CommSms(5), chunks=25, slots=3, consumers=7)
    (exchange,), (kernel,) = schedule.exchanges, schedule.kernels()
    assert (exchange.mover, exchange.chunks, exchange.chunk_rows, exchange.slots) == (CommSms(5), 25, 4, 3)
    assert [role.programs for role in kernel.comm] == [5]
    assert kernel.compute is not None and kernel.compute.programs == 7
    assert (kernel.compute.axis("m").tile, kernel.compute.axis("n").tile) == (4, 32)
    buffer = schedule.buffer(exchange.target)
    assert (buffer.memory, buffer.shape) == (Memory.SYMMETRIC, (3, 4, 24))
    steps = elaborated(schedule)
    assert [steps.shapes[f"out_queue_{what}"] for what in ("arrived", "free")] == [(3,), (3,)]


def test_all_that_is_left_consumes() -> None:
    (kernel,) = planned(mover=CommSms(60), chunks=100).kernels()
    assert kernel.compute is not None
    assert kernel.compute.programs == 132 - 60


def test_the_review_shows_the_protocol() -> None:
    text = str(planned(mover=CommSms(5), chunks=25, slots=3))
    for line in (
        "symmetric out_queue[3, 4, 24] bf16",
        "signal out_queue_free[3]",
        "wait out_queue_free[slot] >= use\n",
        "notify out_queue_arrived[slot]@((rank + 1) % 4) = use + 1",
        "wait out_queue_arrived[slot] >= use + 1 for out_queue",
        "notify out_queue_free[slot]@((rank - 1) % 4) = use + 1",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("pin", "reason"),
    [
        ({"mover": "CommSms(130)", "consumers": 3}, "3 consumers do not fit beside the producers: 2 SMs are left"),
        ({"chunks": 34}, "a tile has a power of two"),
        ({"mover": "CopyEngine()"}, "CopyEngine()"),
        ({"transfer": "pull"}, "pull"),
    ],
)
def test_what_is_not_legal(pin: dict[str, object], reason: str) -> None:
    with pytest.raises((NoLegalSchedule, IllegalPin)) as caught:
        planned(**pin)
    assert reason in str(caught.value)


@pytest.mark.parametrize("pin", [{"slots": 0}, {"slots": "many"}, {"consumers": 0}, {"tile": "16x16x0/4w1s"}])
def test_pins_without_a_meaning(pin: dict[str, object]) -> None:
    with pytest.raises((NoLegalSchedule, IllegalPin)):
        planned(**pin)


def test_slots_are_pins_of_queues_only() -> None:
    machine = topologies.load("h200-nvswitch", 4)
    other = load("02_ag_gemm.py:ag_gemm")
    names = pin_names(bind(other.spec, {"M": 64, "K": 64, "N": 64}, 4, "bf16"), machine)
    assert not any(name.endswith((".slots", ".consumers")) for name in names)
    assert "out_queue.slots" in pin_names(bind(QUEUE.spec, SIZES, 4, "bf16"), machine)


def test_no_queue_over_links_without_atomics() -> None:
    with pytest.raises(NoLegalSchedule):
        QUEUE.plan_for(topologies.load("l20-pcie", 2), {"B": 8, "C": 8}, "bf16")


def test_more_slots_are_never_predicted_to_be_slower() -> None:
    times = [planned(mover=CommSms(8), chunks=100, slots=n, consumers=8).predicted_us for n in (1, 2, 8, 32)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[-1]


def test_no_number_of_slots_beats_what_is_planned() -> None:
    """More programs that produce need more slots, so that the two are chosen together."""
    sizes, topology = {"B": 8100, "C": 128}, topologies.load("h200-nvswitch", 4)
    found = QUEUE.plan_for(topology, sizes, "bf16", {}).predicted_us
    pinned = [QUEUE.plan_for(topology, sizes, "bf16", {"slots": slots}).predicted_us for slots in ("8", "32", "128")]
    assert found <= min(pinned) * 1.001
