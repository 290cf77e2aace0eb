"""Queues in emulation: both targets, several calls in a row, any number of ranks, items, slots, producers and consumers."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lowering
import topologies
from tests.pipeline.operators import in_a_pipeline
from tests.pipeline.random_specs import random_spec
from tests.pipeline.workloads import STOCK_FIRST, load
from tilelink import dims
from tilelink.dialect_api import Vendor, check_source
from tilelink.emulator import World
from tilelink.emulator.races import RaceDetector
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import SendRecv
from tilelink.ir.steps import Apply, Load, SlotNotify, SlotWait
from tilelink.planner.sample import sample_schedule
from tilelink.proof.verify import verify
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

B, C, K, N = dims("B C K N")
TARGETS = ("triton", "triton-distributed")
QUEUE = load("01_queue.py:queue")


def planned(ranks: int, rows: int, cols: int, items: int, slots: int, producers: int, consumers: int) -> Schedule:
    pins = {
        "mover": f"CommSms({producers})",
        "chunks": str(items),
        "slots": str(slots),
        "consumers": str(consumers) if consumers else "all",
    }
    machine = topologies.load("h200-nvswitch", ranks)
    return QUEUE.plan_for(machine, {"B": rows * ranks, "C": cols}, "bf16", pins)


def received(schedule: Schedule, target: str, calls: int, seed: int = 0) -> None:
    """Run `calls` calls that are enqueued at once; every rank gets what the rank before holds, bit by bit."""
    build = operator_class(load_source(lowering.emit(schedule, target), schedule.name))
    ranks = schedule.num_ranks
    world = World(
        ranks, num_sms=schedule.machine.num_sms, seed=seed, observers=[RaceDetector(ranks)], lazy_loading=True
    )
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = [make_inputs(schedule.spec, call) for call in range(calls)]
    results = [[operator(*parts.values()) for operator, parts in zip(operators, each, strict=True)] for each in inputs]
    world.run()
    for each, found in zip(inputs, results, strict=True):
        for rank, result in enumerate(found):
            assert torch.equal(result, each[(rank - 1) % ranks]["x"]), f"{target}, rank {rank}\n{schedule}"


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("ranks", [3, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (2, 4))])
@pytest.mark.parametrize(
    ("items", "slots", "producers", "consumers"),
    [
        (11, 4, 3, 4),  # items no multiple of slots, nor of programs
        (7, 1, 2, 2),  # one slot
        (3, 2, 8, 5),  # more producers and consumers than items
        pytest.param(11, 4, 3, 1, marks=pytest.mark.slow),
        pytest.param(5, 9, 2, 2, marks=pytest.mark.slow),  # more slots than items
        pytest.param(1, 1, 1, 1, marks=pytest.mark.slow),
    ],
)
def test_queues(target: str, ranks: int, items: int, slots: int, producers: int, consumers: int) -> None:
    received(planned(ranks, items, 24, items, slots, producers, consumers), target, calls=4)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_the_tutorial(target: str) -> None:
    """The protocol of the real size with a tenth of its blocks: 32 slots, 16 producers, 4 consumers."""
    received(planned(2, 205, 128, 205, 32, 16, 4), target, calls=2)


@pytest.mark.parametrize("target", STOCK_FIRST)
@pytest.mark.parametrize("ranks", [2, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (3, 4))])
@pytest.mark.slow
def test_twenty_calls(target: str, ranks: int) -> None:
    """Uses go on from call to call, at slots that are used once or twice in each."""
    received(planned(ranks, 5, 16, 5, 3, 4, 2), target, calls=20)


ANY_QUEUE = given(
    ranks=st.integers(2, 4),
    items=st.integers(1, 13),
    rows=st.sampled_from((1, 2, 4)),
    missing=st.integers(0, 3),
    slots=st.integers(1, 15),
    producers=st.integers(1, 9),
    consumers=st.integers(0, 9),
    cols=st.sampled_from((1, 16, 20)),
    target=st.sampled_from(TARGETS),
    seed=st.integers(0, 999),
)


def check_any_queue(
    ranks: int,
    items: int,
    rows: int,
    missing: int,
    slots: int,
    producers: int,
    consumers: int,
    cols: int,
    target: str,
    seed: int,
) -> None:
    """The last item may be shorter than the others."""
    all_rows = items * rows - min(missing, rows - 1, items - 1)
    received(planned(ranks, all_rows, cols, items, slots, producers, consumers), target, 3, seed)


test_any_queue = settings(max_examples=4)(ANY_QUEUE(check_any_queue))
test_many_queues = pytest.mark.slow(settings(max_examples=30)(ANY_QUEUE(check_any_queue)))


@pytest.mark.parametrize(("items", "slots", "producers", "consumers"), [(11, 4, 3, 4), (7, 1, 2, 2), (2025, 32, 16, 4)])
@pytest.mark.slow
def test_the_api_allows_it(items: int, slots: int, producers: int, consumers: int) -> None:
    schedule = planned(4, items, 128, items, slots, producers, consumers)
    report = check_source(lowering.emit(schedule, "triton-distributed"))
    assert not report.findings, "\n".join(report.lines())


@pytest.mark.slow
def test_amd_raises_slots_without_notify() -> None:
    pins = {"mover": "CommSms(16)", "chunks": "2025", "slots": "32", "consumers": "4"}
    machine = topologies.load("mi300x-full-mesh", 4)
    source = lowering.emit(QUEUE.plan_for(machine, {"B": 4 * 2025, "C": 128}, "bf16", pins), "triton-distributed")
    report = check_source(source, vendor=Vendor.ROCSHMEM)
    assert not report.findings, "\n".join(report.lines())
    assert "dl.notify" not in source


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_it_compiles(target: str) -> None:
    module = load_source(lowering.emit(planned(4, 2025, 128, 2025, 32, 16, 4), target), "emitted")
    found = [compile_launch(launch, "sm_90") for launch in record(module, 4)]
    assert found and all("cubin" in compiled.asm for compiled in found)


def test_words_go_on_from_call_to_call() -> None:
    """After n calls each word is at n times the uses of its slot in a call: nothing is set back, nothing passes."""
    schedule, calls = planned(3, 11, 16, 11, 4, 3, 2), 5
    module = load_source(lowering.emit(schedule), schedule.name)
    build = operator_class(module)
    world = World(3, num_sms=schedule.machine.num_sms, seed=3)
    operators = [build(fabric) for fabric in world.fabrics]
    for call in range(calls):
        for operator, parts in zip(operators, make_inputs(schedule.spec, call), strict=True):
            operator(*parts.values())
    world.run()
    for name in ("out_queue_arrived", "out_queue_free"):
        uses, first = (3, 3, 3, 2), int(getattr(module, name.upper(), 0))
        for operator in operators:
            words = operator.signals.local[first : first + len(uses)]
            assert words.tolist() == [calls * of_slot for of_slot in uses]


def test_an_elementwise_consumer_folds_in() -> None:
    """The slot is free again as soon as it has been loaded: what is computed of the item comes after that."""
    schedule = in_a_pipeline.plan("laptop-switch", 3, B=27, C=20, N=24)
    role = next(kernel.compute for kernel in schedule.kernels() if kernel.compute and kernel.compute.name == "before")
    kinds = [type(step) for step in role.body]
    assert kinds[:3] == [SlotWait, Load, SlotNotify]
    assert [step.function for step in role.body if isinstance(step, Apply)] == ["copy", "add", "relu"]


def check_random_spec(seed: int) -> bool:
    """Run a random schedule of a random spec on a random target; False if no value of it goes through a queue."""
    rng = random.Random(seed)
    num_ranks = rng.choice((2, 3, 4))
    spec = random_spec(rng, num_ranks, queues=True)
    if not any(isinstance(node.operation, SendRecv) for node in spec.nodes):
        return False
    schedule = sample_schedule(spec, topologies.load(rng.choice(("laptop-switch", "laptop-mesh")), num_ranks), rng)
    proof = verify(schedule)
    assert proof.proved, f"seed {seed}\n{schedule}\n{chr(10).join(proof.lines())}"
    result = run_emulated(schedule, lowering.emit(schedule, rng.choice(TARGETS)), calls=3, seed=seed)
    assert result.equal, f"seed {seed}: {result.lines()}\n{schedule}"
    return True


@pytest.mark.slow
def test_random_specs() -> None:
    assert sum(map(check_random_spec, range(40))) > 10


@pytest.mark.slow
@pytest.mark.parametrize("block", range(8))
def test_many_random_specs(block: int) -> None:
    assert sum(map(check_random_spec, range(1000 + 40 * block, 1040 + 40 * block))) > 10
