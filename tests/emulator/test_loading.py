"""First launches load kernels, which needs an idle GPU; ranks meet in allocations, which needs empty streams."""

from __future__ import annotations

import pytest
import torch

import lowering
import topologies
from tests.emulator import kernels
from tests.pipeline.workloads import load, sizes
from tilelink.emulator import Deadlock, LateSetup, Policy, World, policy_by_name, standard_policies
from tilelink.emulator.report import TaskState
from tilelink.runtime.compare import compare_call
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

INT = torch.int32


def handshake(lazy: bool, policy: Policy, loaded: tuple[str, ...] = (), write_last: bool = False) -> None:
    """A kernel spins on a word that another stream raises: by a kernel, or by a stream write behind a kernel."""
    world = World(1, num_sms=4, policy=policy, lazy_loading=lazy)
    fabric = world.fabrics[0]
    signal, out, other = (torch.zeros(1, dtype=INT) for _ in range(3))
    with fabric.loading():
        if "wait_twice" in loaded:
            fabric.main().launch(kernels.wait_twice, (1,), signal, out, 1)
        if "notify" in loaded:
            fabric.main().launch(kernels.notify, (1,), signal, 1)
    fabric.main().launch(kernels.wait_twice, (1,), signal, out, 1)
    fabric.stream("side").launch(kernels.notify, (1,), other if write_last else signal, 1)
    if write_last:
        fabric.stream("copy").write(signal, 1)
    world.run()
    assert out.item() == 1


def test_a_first_launch_beside_a_spinning_kernel_hangs() -> None:
    with pytest.raises(Deadlock) as caught:
        handshake(True, policy_by_name("oldest"))
    tasks = caught.value.facts["tasks"]
    assert isinstance(tasks, tuple)
    (host,) = [task for task in tasks if isinstance(task, TaskState) and task.name == "host"]
    assert host.doing == "load notify"
    assert host.waits_for == (
        "rank 0 to be idle, so that kernel notify can be loaded (first launch, not loaded under fabric.loading())"
    )
    assert 'fabric.stream("side").launch(kernels.notify' in host.place.text
    (side,) = [task for task in tasks if isinstance(task, TaskState) and task.name == "stream side"]
    assert side.waits_for == "host code to enqueue it, which first has to load kernel notify"


def test_what_host_code_enqueues_behind_a_load_comes_after_it() -> None:
    """The write that ends the spin needs no kernel, but the host thread cannot enqueue it."""
    with pytest.raises(Deadlock, match="kernel notify can be loaded"):
        handshake(True, policy_by_name("oldest"), write_last=True)


@pytest.mark.parametrize("write_last", [False, True])
def test_loaded_kernels_pass_in_every_schedule(write_last: bool) -> None:
    for name, policy in standard_policies(1, 0):
        handshake(True, policy, ("wait_twice", "notify"), write_last)
        handshake(False, policy_by_name(name), (), write_last)


def test_constants_make_another_kernel_and_runtime_numbers_do_not() -> None:
    """`fill` is loaded with GUARD=True; only GUARD=False needs a load of its own, once."""
    world = World(1, lazy_loading=True)
    fabric, out = world.fabrics[0], torch.zeros(64, dtype=INT)
    with fabric.loading():
        fabric.main().launch(kernels.fill, (1,), out, 1, 64, GUARD=True)
    fabric.main().launch(kernels.fill, (1,), out, 2, 10, GUARD=True)
    assert world.host.loads.needed == [[]]
    for _ in range(2):
        fabric.main().launch(kernels.fill, (1,), out, 3, 64, GUARD=False)
    world.run()
    assert [one.kernel for one in world.host.loads.needed[0]] == ["fill"]
    assert world.host.loads.done == [1]
    assert out.tolist() == [3] * 64


@pytest.mark.parametrize("name", ["02_ag_gemm.py:ag_gemm", "04_gemm_ar.py:gemm_ar"])
def test_emitted_operators_load_all_kernels_before(name: str) -> None:
    schedule = load(name).plan_for(topologies.load("laptop-switch", 2), sizes(name, 2), "bf16", {"mover": "CommSms(2)"})
    build = operator_class(load_source(lowering.emit(schedule), schedule.name))
    world = World(2, num_sms=schedule.machine.num_sms, lazy_loading=True)
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 3)
    results = [operator(*parts.values()) for operator, parts in zip(operators, inputs, strict=True)]
    assert world.host.loads.needed == [[], []]
    world.run()
    assert not compare_call(schedule, inputs, [(result,) for result in results]).differences


def test_an_allocation_behind_work_is_refused() -> None:
    world = World(2)
    first, second = world.fabrics
    first.stream("side").write(torch.zeros(1, dtype=INT), 1)
    second.symmetric((4,), INT)  # the ranks meet later; this one has nothing to do
    with pytest.raises(LateSetup) as caught:
        first.symmetric((4,), INT)
    facts = caught.value.facts
    assert (facts["rank"], facts["stream"], facts["pending"], str(facts["operation"])) == (0, "side", 1, "write 1")
    world.run()
    first.symmetric((4,), INT)
