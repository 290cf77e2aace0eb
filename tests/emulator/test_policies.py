"""Directed schedules: what they order, that they repeat, that they stay fair, and what they find that chance does not."""

from __future__ import annotations

import pytest
import torch

from tests.emulator import hazards, kernels
from tests.emulator.test_ag_gemm import Trace, emulate
from tilelink.emulator import (
    Deadlock,
    Event,
    Policy,
    RandomPolicy,
    UnknownPolicy,
    World,
    policy_by_name,
    standard_policies,
)
from tilelink.emulator.events import Access, Kind

INT = torch.int32
NAMES = tuple(name for name, _ in standard_policies(3, 5))


def reads_too_early(policy: Policy) -> bool:
    """Two calls of a reader that hands a token to and fro with its peer before it reads what rank 2 sends.

    It waits for rank 2 only behind the read. True if some value read is not that of its call.
    """
    world = World(3, num_sms=4, policy=policy)
    data = [fabric.symmetric((hazards.SIZE,), INT) for fabric in world.fabrics]
    signal = [fabric.symmetric((2,), INT) for fabric in world.fabrics]
    early = False
    for call in (1, 2):
        outs = torch.zeros(2, hazards.SIZE, dtype=INT)
        producer = world.fabrics[2].main()
        for reader in (0, 1):
            tables = data[2].pointers, signal[2].pointers
            producer.launch(hazards.produce, (1,), *tables, reader, call, SIZE=hazards.SIZE)
            buffers = data[reader].local, signal[reader].pointers, reader, 1 - reader, outs[reader]
            stream = world.fabrics[reader].main()
            stream.launch(hazards.read_late, (1,), *buffers, call, ROUNDS=hazards.ROUNDS, SIZE=hazards.SIZE)
        world.run()
        early = early or bool((outs != call).any())
    return early


@pytest.mark.slow
def test_a_rare_bug_is_found_by_direction_and_not_by_chance() -> None:
    """Measured: 1 of 1000 random seeds finds it, 7 of the 13 standard policies do with seed 0, 63 of 100 `pct:SEED:2`."""
    assert sum(reads_too_early(RandomPolicy(seed)) for seed in range(50)) <= 1
    found = {name for name, policy in standard_policies(3, 0) if reads_too_early(policy)}
    assert {"starve-rank:2", "producers-last", "consumers-first"} <= found
    assert not {"starve-rank:0", "copies-late", "random:0"} & found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_policy_is_made_again_from_its_text(name: str) -> None:
    assert policy_by_name(name).text == name
    traces = []
    for _ in range(2):
        trace = Trace()
        emulate(World(3, num_sms=6, policy=policy_by_name(name), observers=[trace]), "SMs", calls=2)
        traces.append(trace.lines)
    assert traces[0] == traces[1]


@pytest.mark.parametrize(
    "text", ["", "random", "random:x", "random:-1", "newest:1", "starve-rank", "pct:1:0", "pct:1:2:0", "chess:1"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UnknownPolicy, match="starve-rank:RANK") as caught:
        policy_by_name(text)
    assert caught.value.facts["text"] == text


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_right_operator_is_right_under_every_policy(name: str) -> None:
    emulate(World(3, num_sms=6, policy=policy_by_name(name), any_residency_order=True), "SMs", calls=2)
    emulate(World(3, num_sms=5, policy=policy_by_name(name)), "copy engine", calls=2)


@pytest.mark.parametrize("switch_every", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(3)
def test_a_loop_that_never_rests_starves_nobody(name: str, switch_every: int) -> None:
    """A poll that counts its rounds looks like work: strict orders have to turn away from it."""
    world = World(3, num_sms=1, policy=policy_by_name(name), switch_every=switch_every, step_limit=100_000)
    signals = [fabric.symmetric((1,), INT) for fabric in world.fabrics]
    outs = torch.zeros(3, dtype=INT)
    for rank, fabric in enumerate(world.fabrics):
        fabric.main().launch(hazards.spin_counting, (1,), signals[rank].local, outs[rank : rank + 1])
        fabric.stream("side").copy(signals[rank].peers[(rank + 1) % 3], torch.ones(1, dtype=INT))
    world.run()
    assert outs.tolist() == [1, 1, 1]


class Order:
    """The ranks and streams in the order in which they wrote."""

    def __init__(self) -> None:
        self.writers: list[str] = []

    def observe(self, event: Event) -> None:
        if isinstance(event, Access) and event.kind is Kind.STORE:
            self.writers.append(f"{event.task.rank} {event.task.name}")


def order(policy: str) -> list[str]:
    """Two ranks, each with a kernel on one stream and a copy on another."""
    record = Order()
    world = World(2, num_sms=4, policy=policy_by_name(policy), observers=[record])
    signals = [fabric.symmetric((2,), INT) for fabric in world.fabrics]
    for rank, fabric in enumerate(world.fabrics):
        fabric.stream("kernel").launch(kernels.fill, (2,), torch.zeros(128, dtype=INT), 1, 128, GUARD=False)
        fabric.stream("copy").copy(signals[rank].peers[1 - rank][0:1], torch.ones(1, dtype=INT))
    world.run()
    return record.writers


def test_what_each_policy_runs_last() -> None:
    assert [line[0] for line in order("starve-rank:0")] == ["1"] * 3 + ["0"] * 3
    assert [line[0] for line in order("starve-rank:1")] == ["0"] * 3 + ["1"] * 3
    assert {line[2:] for line in order("copies-late")[-2:]} == {"stream copy"}
    assert {line[2:] for line in order("copies-early")[:2]} == {"stream copy"}
    programs = [line for line in order("newest") if "fill" in line]
    assert programs == ["1 fill(1, 0, 0)", "1 fill(0, 0, 0)", "0 fill(1, 0, 0)", "0 fill(0, 0, 0)"]
    assert [line for line in order("oldest") if "fill" in line] == [
        "0 fill(0, 0, 0)", "0 fill(1, 0, 0)", "1 fill(0, 0, 0)", "1 fill(1, 0, 0)",
    ]  # fmt: skip


def residency(policy: Policy, num_sms: int, any_order: bool) -> str:
    """Eight programs: the first four notify, the others wait for them."""
    world = World(1, num_sms=num_sms, policy=policy, any_residency_order=any_order)
    out = torch.zeros(4, dtype=INT)
    world.fabrics[0].main().launch(kernels.half_notify, (8,), torch.zeros(1, dtype=INT), 4, out)
    try:
        world.run()
    except Deadlock as hang:
        assert ": waits for a free SM of rank 0 for its start (all 4 are taken)" in str(hang)
        return "hung"
    assert out.tolist() == [1] * 4
    return "passed"


def test_any_order_of_residency_is_tried() -> None:
    """In launch order the producers go first; nothing promises that order, and four SMs are too few without it."""
    for name, policy in standard_policies(1, 0):
        assert residency(policy, 1, any_order=False) == "passed", name
    assert residency(policy_by_name("newest"), 4, any_order=True) == "hung"
    assert {residency(RandomPolicy(seed), 4, any_order=True) for seed in range(60)} == {"passed", "hung"}
    for name, policy in standard_policies(1, 0):
        assert residency(policy, 5, any_order=True) == "passed", name


def test_programs_of_two_launches_compete_for_sms() -> None:
    """A launch that is at its turn may lose every SM to the one beside it."""

    def outcome(policy: Policy) -> str:
        world = World(1, num_sms=2, policy=policy, any_residency_order=True)
        fabric, signal, out = world.fabrics[0], torch.zeros(1, dtype=INT), torch.zeros(1, dtype=INT)
        fabric.stream("a").launch(kernels.wait_twice, (2,), signal, out, 1)
        fabric.stream("b").launch(kernels.notify, (1,), signal, 1)
        try:
            world.run()
        except Deadlock:
            return "hung"
        return "passed"

    assert outcome(policy_by_name("oldest")) == "hung"
    assert {outcome(RandomPolicy(seed)) for seed in range(20)} == {"passed", "hung"}
