"""OpenSHMEM in kernels: what is ordered arrives in order under every policy, what is not can be seen to be late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from triton.runtime.jit import JITFunction

from tests.compat import dialect_kernels as kernels
from tests.emulator.test_events import Recorder, happens_before
from tilelink.compat.dialects import (
    IllegalShmemArgument,
    IllegalSignal,
    NotEmulated,
    NotSymmetric,
    OverlappingCollectives,
    openshmem,
)
from tilelink.compat.dialects.active import Dialects
from tilelink.emulator import CollectiveMismatch, Deadlock, OutOfBounds, Race, World
from tilelink.emulator.events import Access, Kind, Scope, Semantic, Via
from tilelink.emulator.operations import Transfer
from tilelink.emulator.policies import RandomPolicy
from tilelink.emulator.races.detector import RaceDetector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilelink.emulator import EmulationError, Observer, Policy, Task

N = 32
INT = torch.int32


class InOrder:
    """The least key runs first."""

    def __init__(self, key: Callable[[Task], tuple[int, int]]) -> None:
        self._key = key

    def choose(self, ready: Sequence[Task]) -> int:
        return min(range(len(ready)), key=lambda index: self._key(ready[index]))


def is_transfer(task: Task) -> bool:
    return isinstance(task.operation, Transfer)


POLICIES: dict[str, Callable[[], Policy]] = {
    "late": lambda: InOrder(lambda task: (is_transfer(task), task.identity.number)),
    "late, last first": lambda: InOrder(lambda task: (is_transfer(task), -task.identity.number)),
    "early": lambda: InOrder(lambda task: (not is_transfer(task), task.identity.number)),
    "random 1": lambda: RandomPolicy(1),
    "random 2": lambda: RandomPolicy(2),
    "random 3": lambda: RandomPolicy(3),
}
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)


def run(
    kernel: object, policy: str, num_ranks: int = 2, observers: Sequence[Observer] = (), **options: object
) -> list[list[int]]:
    """A kernel of (x [2, N], signal, out [N + 1]), of which it may leave some out, on all ranks; each rank's out."""
    assert isinstance(kernel, JITFunction)
    world = World(num_ranks, num_sms=2, policy=POLICIES[policy](), observers=observers)
    outs = []
    for fabric in world.fabrics:
        x = fabric.symmetric((2, N), INT)
        signal = fabric.symmetric((1,), torch.int64)
        flag = fabric.symmetric((1,), INT)
        out = torch.zeros(N + 1, dtype=INT)
        given: dict[str, Any] = {"x": x.local, "signal": signal.local, "flag": flag.local, "out": out, "N": N}
        arguments = {name: given[name] for name in kernel.arg_names if name in given}
        fabric.main().launch(kernel, (1,), **arguments, **options)
        outs.append(out)
    world.run()
    return [out.tolist() for out in outs]


@EVERY_POLICY
@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("nbi", [True, False])
def test_a_put_with_signal_brings_its_data_first(policy: str, num_ranks: int, nbi: bool) -> None:
    outs = run(kernels.ring, policy, num_ranks, NBI=nbi)
    assert outs == [[(rank - 1) % num_ranks + 1] * N + [7] for rank in range(num_ranks)]


@EVERY_POLICY
@pytest.mark.parametrize("order", ["fence", "quiet"])
def test_fence_and_quiet_order_a_put_and_a_signal(policy: str, order: str) -> None:
    assert run(kernels.put_then_signal, policy, ORDER=order)[1] == [5] * N + [0]


def test_without_a_fence_the_signal_can_come_first() -> None:
    assert run(kernels.put_then_signal, "late, last first", ORDER="none")[1] == [0] * (N + 1)


@EVERY_POLICY
@pytest.mark.parametrize("how", ["quiet", "blocking"])
def test_the_source_may_be_reused_after_quiet_or_a_blocking_put(policy: str, how: str) -> None:
    assert run(kernels.put_and_reuse, policy, HOW=how)[1] == [5] * N + [0]


def test_reuse_of_the_source_before_quiet_sends_the_new_values() -> None:
    assert run(kernels.put_and_reuse, "late", HOW="nbi")[1] == [6] * N + [0]


@EVERY_POLICY
@pytest.mark.parametrize("how", ["quiet", "blocking"])
def test_gets_are_there_after_quiet_or_when_they_block(policy: str, how: str) -> None:
    assert run(kernels.get, policy, 3, HOW=how) == [[(rank + 1) % 3 + 1] * N + [0] for rank in range(3)]


def test_a_get_is_not_there_before_quiet() -> None:
    assert run(kernels.get, "late", HOW="nbi") == [[0] * (N + 1)] * 2


def test_a_blocking_get_may_fill_a_tensor_of_this_rank() -> None:
    assert run(kernels.get_to_a_local_tensor, "late") == [[0] * (N + 1)] * 2


@EVERY_POLICY
def test_barrier_all_delivers_what_is_under_way(policy: str) -> None:
    assert run(kernels.put_then_meet, policy, 3, BARRIER=True) == [[(rank - 1) % 3 + 1] * N + [0] for rank in range(3)]


def test_sync_all_does_not() -> None:
    assert run(kernels.put_then_meet, "late", BARRIER=False) == [[0] * (N + 1)] * 2


@EVERY_POLICY
def test_signals_are_counted(policy: str) -> None:
    assert run(kernels.count, policy, 4)[0][0] == 4


@pytest.mark.parametrize(
    ("comparison", "true", "false"),
    [
        (openshmem.NVSHMEM_CMP_EQ, (5,), (4, 6)),
        (openshmem.NVSHMEM_CMP_NE, (4, 6), (5,)),
        (openshmem.NVSHMEM_CMP_GT, (4, 0), (5, 6)),
        (openshmem.NVSHMEM_CMP_LE, (5, 6), (4,)),
        (openshmem.NVSHMEM_CMP_LT, (6, -1), (5, 4)),  # as unsigned 64 bits, -1 is the greatest
        (openshmem.NVSHMEM_CMP_GE, (5, 4), (6, -1)),
    ],
)
def test_comparisons_of_a_wait(comparison: Any, true: tuple[int, ...], false: tuple[int, ...]) -> None:
    for value in (*true, *false):
        world = World(1)
        signal, out = world.fabrics[0].symmetric((1,), torch.int64), torch.zeros(1, dtype=INT)
        signal.local.fill_(5)
        world.fabrics[0].main().launch(kernels.wait_until, (1,), signal.local, out, comparison, value)
        if value in true:
            world.run()
            assert out.item() == 5
        else:
            with pytest.raises(Deadlock):
                world.run()


def test_a_wait_for_a_value_that_nobody_writes_hangs_and_says_so() -> None:
    world = World(2)
    for fabric in world.fabrics:
        signal = fabric.symmetric((1,), torch.int64)
        fabric.main().launch(kernels.signal, (1,), signal.local, 9, 1 - fabric.rank)
        out = torch.zeros(1, dtype=INT)
        fabric.main().launch(kernels.wait_until, (1,), signal.local, out, openshmem.NVSHMEM_CMP_EQ, 2)
    with pytest.raises(Deadlock, match=r"waits for signal\[0\] of rank 1 \(value 1\) == 2"):
        world.run()


@EVERY_POLICY
def test_a_flag_written_by_int_p_needs_a_fence(policy: str) -> None:
    assert run(kernels.flag_by_int_p, policy, FENCE=True)[1] == [5] * N + [0]


def test_a_flag_written_by_int_p_without_a_fence() -> None:
    assert run(kernels.flag_by_int_p, "late, last first", FENCE=False)[1] == [0] * (N + 1)


def test_remote_ptr_is_the_peers_address() -> None:
    world = World(3)
    buffers = [fabric.symmetric((2, N), INT) for fabric in world.fabrics]
    for fabric, buffer in zip(world.fabrics, buffers, strict=True):
        fabric.main().launch(kernels.store_through_remote_ptr, (1,), buffer.local[1], N=N)
    world.run()
    assert [buffer.local[1].tolist() for buffer in buffers] == [[(rank - 1) % 3 + 1] * N for rank in range(3)]
    assert all(int(buffer.local[0].abs().sum()) == 0 for buffer in buffers)


@EVERY_POLICY
def test_a_broadcast_takes_the_roots_source_as_it_was(policy: str) -> None:
    assert run(kernels.broadcast_alike, policy, 3) == [[10] * N + [0]] * 3


@EVERY_POLICY
def test_the_root_of_a_broadcast_waits_for_nobody(policy: str) -> None:
    run(kernels.lonely_root, policy)


def test_a_mismatch_of_broadcasts_is_refused() -> None:
    with pytest.raises(CollectiveMismatch) as caught:
        run(kernels.broadcast, "late", 3)
    assert "broadcastmem of 128 bytes from rank 1" in str(caught.value)


@pytest.mark.parametrize("policy", ["late", "early"])
def test_the_delivery_of_a_put_is_ordered_by_quiet_only(policy: str) -> None:
    """What observers see: the delivery reads the source after the program wrote it, before it is overwritten if quiet."""
    for how, ordered in (("quiet", True), ("nbi", False)):
        recorder = Recorder()
        run(kernels.put_and_reuse, policy, observers=[recorder], HOW=how)
        first, second = stores(recorder, "put_and_reuse")[:2]
        read, written = (access for access in recorder.accesses("transfer") if access.via in (Via.COPY, Via.PUT))
        assert (read.kind, read.item_bytes, written.kind, written.item_bytes) == (Kind.LOAD, 4 * N, Kind.STORE, 4 * N)
        assert happens_before(recorder.events, first, read)
        after = recorder.events.index(second) > recorder.events.index(written)
        assert (after and happens_before(recorder.events, written, second)) is ordered
        assert "shmem.putmem_signal_nbi_block" in read.place.text


def stores(recorder: Recorder, name: str) -> list[Access]:
    """Plain block stores of rank 0."""
    plain = [access for access in recorder.accesses(name) if access.kind is Kind.STORE and access.via is Via.PLAIN]
    return [access for access in plain if access.task.rank == 0]


@pytest.mark.parametrize("order", ["fence", "none"])
def test_the_signal_is_a_release_of_its_own_task(order: str) -> None:
    recorder = Recorder()
    run(kernels.put_then_signal, "early", observers=[recorder], ORDER=order)
    transfers = recorder.accesses("transfer")
    data = next(access for access in transfers if access.kind is Kind.STORE and access.via in (Via.COPY, Via.PUT))
    (signal,) = (access for access in transfers if access.semantic is Semantic.RELEASE)
    assert (signal.kind, signal.via, signal.scope) == (Kind.ATOMIC, Via.ATOMIC, Scope.SYSTEM)
    assert signal.task != data.task and signal.changed and signal.item_bytes == 8
    # the data came first in this run; only a fence makes that an order
    assert happens_before(recorder.events, data, signal) is (order == "fence")


def test_the_wait_acquires() -> None:
    recorder = Recorder()
    run(kernels.ring, "random 1", observers=[recorder], NBI=True)
    waits = [access for access in recorder.accesses("ring") if access.semantic is Semantic.ACQUIRE]
    assert waits and all(access.scope is Scope.SYSTEM and "signal_wait_until" in access.place.text for access in waits)


ORDERED: dict[str, tuple[object, dict[str, Any]]] = {
    "nbi put with signal": (kernels.ring, {"NBI": True}),
    "put with signal": (kernels.ring, {"NBI": False}),
    "fence": (kernels.put_then_signal, {"ORDER": "fence"}),
    "quiet": (kernels.put_then_signal, {"ORDER": "quiet"}),
    "reuse after quiet": (kernels.put_and_reuse, {"HOW": "quiet"}),
    "reuse after a blocking put": (kernels.put_and_reuse, {"HOW": "blocking"}),
    "get": (kernels.get, {"HOW": "blocking"}),
    "get and quiet": (kernels.get, {"HOW": "quiet"}),
    "barrier": (kernels.put_then_meet, {"BARRIER": True}),
    "flag behind a fence": (kernels.flag_by_int_p, {"FENCE": True}),
    "broadcast": (kernels.broadcast_alike, {}),
    "count": (kernels.count, {}),
    "two puts to one place, quiet between": (kernels.put_twice, {"QUIET": True}),
}
UNORDERED: dict[str, tuple[object, dict[str, Any]]] = {
    "no fence": (kernels.put_then_signal, {"ORDER": "none"}),
    "reuse before quiet": (kernels.put_and_reuse, {"HOW": "nbi"}),
    "get without quiet": (kernels.get, {"HOW": "nbi"}),
    "sync is no barrier": (kernels.put_then_meet, {"BARRIER": False}),
    "two puts to one place": (kernels.put_twice, {"QUIET": False}),
    "flag without a fence": (kernels.flag_by_int_p, {"FENCE": False}),
}


@EVERY_POLICY
@pytest.mark.parametrize("name", ORDERED)
def test_what_is_ordered_is_no_race(name: str, policy: str) -> None:
    kernel, options = ORDERED[name]
    run(kernel, policy, observers=[RaceDetector(2)], **options)


@EVERY_POLICY
@pytest.mark.parametrize("name", UNORDERED)
def test_what_is_not_ordered_is_a_race_in_every_run(name: str, policy: str) -> None:
    """Also where the transfers happened to be early enough."""
    kernel, options = UNORDERED[name]
    with pytest.raises(Race, match=r"transfer \d of"):
        run(kernel, policy, observers=[RaceDetector(2)], **options)


def launch_all(
    kernel: object, make: Callable[[Any, Any], tuple[object, ...]], grid: int = 1, **options: object
) -> None:
    """Rank 0 of 2 launches `kernel` with the arguments that `make` chooses of (x, signal)."""
    world = World(2)
    fabrics = world.fabrics
    buffers = [(fabric.symmetric((N,), INT), fabric.symmetric((2,), torch.int64)) for fabric in fabrics]
    fabrics[0].main().launch(kernel, (grid,), *make(*buffers[0]), **options)
    world.run()


LOCAL = torch.zeros(4, dtype=INT)
MISTAKES: dict[str, tuple[type[EmulationError], str, Callable[[], None]]] = {
    "a local tensor as destination": (
        NotSymmetric,
        "in no symmetric buffer",
        lambda: launch_all(kernels.put, lambda x, s: (LOCAL, x.local, 4, 1)),
    ),
    "a local tensor as source of a nbi put": (
        NotSymmetric,
        "in no symmetric buffer",
        lambda: launch_all(kernels.put_nbi, lambda x, s: (x.local, LOCAL, 4, 1)),
    ),
    "a peer's address": (
        NotSymmetric,
        "buffers[0] of rank 1, which is the copy of rank 1 already",
        lambda: launch_all(kernels.put_to_translated, lambda x, s: (x.local,)),
    ),
    "a rank that does not exist": (
        IllegalShmemArgument,
        "Legal: 0 to 1",
        lambda: launch_all(kernels.put, lambda x, s: (x.local, x.local, 4, 2)),
    ),
    "a negative size": (
        IllegalShmemArgument,
        "integers of at least 0",
        lambda: launch_all(kernels.put, lambda x, s: (x.local, x.local, -4, 1)),
    ),
    "a signal operation of another library": (
        IllegalShmemArgument,
        "NVSHMEM_SIGNAL_SET (9)",
        lambda: launch_all(kernels.signal, lambda x, s: (s.local, 0, 1)),
    ),
    "a block of pointers": (
        IllegalShmemArgument,
        "one pointer",
        lambda: launch_all(kernels.put_a_block, lambda x, s: (x.local,), N=4),
    ),
    "a 32-bit signal": (
        IllegalSignal,
        "of type int32",
        lambda: launch_all(kernels.signal, lambda x, s: (x.local, 9, 1)),
    ),
    "elements instead of bytes": (
        OutOfBounds,
        "putmem of 256 bytes",
        lambda: launch_all(kernels.put, lambda x, s: (x.local, x.local, 4 * N * 2, 1)),
    ),
    "all programs of a rank in one barrier": (
        OverlappingCollectives,
        "is inside barrier_all",
        lambda: launch_all(kernels.everyone_meets, lambda x, s: (x.local,), grid=2),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_its_class(mistake: str) -> None:
    kind, text, make = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        make()
    assert text in str(caught.value)
    assert "dialect_kernels.py" in str(caught.value.facts.get("place", "dialect_kernels.py"))


def test_different_collectives_are_refused() -> None:
    with pytest.raises(CollectiveMismatch):
        run(kernels.meet_differently, "random 1")


def test_outside_of_a_run_there_is_no_rank() -> None:
    with pytest.raises(NotEmulated, match="my_pe"):
        openshmem.my_pe()


def test_an_unfinished_transfer_does_not_outlive_the_run() -> None:
    world = World(2, policy=POLICIES["late"]())
    buffers = [fabric.symmetric((2,), INT) for fabric in world.fabrics]
    for run_number in range(2):
        buffers[0].local[0] = run_number + 5
        world.fabrics[0].main().launch(kernels.put_nbi, (1,), buffers[0].local[1:], buffers[0].local, 4, 1)
        world.run()
        assert buffers[1].local.tolist() == [0, run_number + 5]


def test_transfers_and_collectives_of_earlier_runs_are_forgotten() -> None:
    world = World(2)
    buffers = [fabric.symmetric((2, N), INT).local for fabric in world.fabrics]
    outs = [torch.zeros(N, dtype=INT) for _ in world.fabrics]
    for _ in range(5):
        for fabric, x, out in zip(world.fabrics, buffers, outs, strict=True):
            fabric.main().launch(kernels.put_then_meet, (1,), x, out, N=N, BARRIER=True)
            fabric.main().launch(kernels.broadcast_alike, (1,), x, out, N=N)
        world.run()
    dialects = world.machine.companion(Dialects)
    kept = [value for part in (dialects.deliveries, dialects.team) for value in vars(part).values()]
    assert not any(value for value in kept if isinstance(value, (dict, set)))
    assert [out.tolist() for out in outs] == [[10] * N] * 2
