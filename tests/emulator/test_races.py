"""Each rule of the memory model with a kernel that keeps it and one that breaks it."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
import torch

from tests.emulator import race_kernels as kernels
from tests.emulator.race_scenarios import INT, clean, find, racy, symmetric, zeros
from tilelink.emulator import World
from tilelink.emulator.events import Kind, Via

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.emulator.race_scenarios import Scenario
    from tilelink.emulator import Race, Touch

FENCE = "fence.acq_rel.sys"


def message(
    producer: object = kernels.push,
    consumer: object = kernels.take,
    sent: Mapping[str, object] | None = None,
    taken: Mapping[str, object] | None = None,
    ranks: tuple[int, int] = (0, 1),
) -> Scenario:
    """The producer fills a buffer of the consumer's rank, then raises a signal there."""

    def scenario(world: World) -> None:
        buffers, signals = symmetric(world, 64, 4)
        source, target = ranks
        there = buffers[target], signals[target][1:]
        world.fabrics[source].stream("send").launch(producer, (1,), *there, 5, **(sent or {}))
        world.fabrics[target].main().launch(consumer, (1,), *there, 5, zeros(), **(taken or {}))

    return scenario


def both(race: Race) -> tuple[Touch, Touch]:
    return race.first, race.second


def test_release_and_acquire() -> None:
    clean(message())
    clean(message(ranks=(0, 0)))
    clean(message(producer=kernels.push_scalar))


def test_block_stores_need_a_cta_barrier_before_the_release() -> None:
    race = racy(message(sent={"BARRIER": False}), "cta_barriers")
    first, second = race.first, race.second
    assert (first.rank, first.kernel, first.program, first.kind, first.via) == (
        0,
        "push",
        (0, 0, 0),
        Kind.STORE,
        Via.PLAIN,
    )
    assert (second.rank, second.task, second.kind) == (1, "take(0, 0, 0)", Kind.LOAD)
    assert "tl.store(buffer + lanes" in first.place.text
    assert "tl.load(buffer + lanes)" in second.place.text
    assert first.what == second.what == "buffer[0] of rank 1"
    assert first.number < second.number
    assert "signals[1] of rank 1 (release, sys)" in first.order
    assert "signals[1] of rank 1 (acquire, sys)" in second.order
    assert race.same_call_hint is True


def test_vector_atomics_need_a_cta_barrier_before_the_release() -> None:
    clean(message(kernels.push_by_atomics, sent={"BARRIER": True}))
    racy(message(kernels.push_by_atomics, sent={"BARRIER": False}), "cta_barriers")


@pytest.mark.parametrize("relaxed", [{"sent": {"SEM": "relaxed"}}, {"taken": {"SEM": "relaxed"}}])
def test_relaxed_atomics_do_not_synchronise(relaxed: dict[str, Mapping[str, object]]) -> None:
    racy(message(sent=relaxed.get("sent"), taken=relaxed.get("taken")), "semantics")


def test_acquire_on_the_side_of_the_notify_does_not_release() -> None:
    racy(message(sent={"SEM": "acquire"}), "semantics")
    clean(message(sent={"SEM": "acq_rel"}))


@pytest.mark.parametrize("narrow", [{"sent": {"SCOPE": "gpu"}}, {"taken": {"SCOPE": "gpu"}}])
def test_gpu_scope_reaches_no_other_rank(narrow: dict[str, Mapping[str, object]]) -> None:
    sent, taken = narrow.get("sent"), narrow.get("taken")
    race = racy(message(sent=sent, taken=taken), "scopes")
    assert {race.first.rank, race.second.rank} == {0, 1}
    clean(message(sent=sent, taken=taken, ranks=(1, 1)))


def test_cta_scope_reaches_no_other_program() -> None:
    racy(message(sent={"SCOPE": "cta"}, ranks=(1, 1)), "scopes")
    racy(message(taken={"SCOPE": "cta"}, ranks=(1, 1)), "scopes")


def test_fences_make_relaxed_accesses_synchronise() -> None:
    sent = {"SEM": "relaxed", "LATE_FENCE": FENCE}
    clean(message(sent=sent))
    clean(message(consumer=kernels.poll, sent=sent, taken={"VOLATILE": True, "FENCE": "membar.sys"}))
    clean(message(consumer=kernels.poll, taken={"VOLATILE": True, "FENCE": "fence.sc.sys"}))


def test_volatile_polls_need_a_fence() -> None:
    race = racy(message(consumer=kernels.poll, taken={"VOLATILE": True}), "semantics")
    assert race.second.what.startswith("buffer[")


def test_a_fence_before_the_barrier_does_not_cover_the_other_threads() -> None:
    racy(message(sent={"SEM": "relaxed", "FENCE": FENCE}), "cta_barriers", "semantics")
    racy(message(sent={"SEM": "relaxed", "FENCE": FENCE, "BARRIER": False}), "cta_barriers")


def test_fences_have_a_scope() -> None:
    narrow = {"SEM": "relaxed", "LATE_FENCE": "fence.acq_rel.gpu"}
    racy(message(sent=narrow), "semantics", "scopes")
    clean(message(sent=narrow, ranks=(1, 1)))
    volatile = {"VOLATILE": True, "FENCE": "membar.gl"}
    racy(message(consumer=kernels.poll, taken=volatile), "semantics", "scopes")
    clean(message(consumer=kernels.poll, taken=volatile, ranks=(1, 1)))


def test_plain_accesses_of_the_signal_race_with_its_atomics() -> None:
    polled = racy(message(consumer=kernels.poll, taken={"VOLATILE": False}), "semantics")
    assert {polled.first.what, polled.second.what} == {"signals[1] of rank 1"}
    raised = racy(message(producer=kernels.push_plain), "semantics")
    assert Kind.ATOMIC in (raised.first.kind, raised.second.kind)


def test_initialisation_before_the_launch_is_no_race() -> None:
    def scenario(world: World) -> None:
        buffers, signals = symmetric(world, 64, 64)
        main, side = world.fabrics[0].main(), world.fabrics[0].stream("send")
        main.launch(kernels.fill, (1,), signals[0], 0)
        side.after(main)
        side.launch(kernels.push, (1,), buffers[0], signals[0], 5)
        main.launch(kernels.take, (1,), buffers[0], signals[0], 5, zeros())

    clean(scenario)


@pytest.mark.parametrize("barrier", [True, False])
def test_vector_acquires_need_a_cta_barrier(barrier: bool) -> None:
    def scenario(world: World) -> None:
        buffers, signals = symmetric(world, 64, 2)
        for part, fabric in enumerate(world.fabrics):
            half = buffers[1][32 * part :], signals[1][part:]
            fabric.stream("send").copy(half[0][:32], zeros(32))
            fabric.stream("send").copy(half[1][:1], torch.ones(1, dtype=INT))
        args = buffers[1], signals[1], 1, zeros()
        world.fabrics[1].main().launch(kernels.take_from_all, (1,), *args, COUNT=2, BARRIER=barrier)

    if barrier:
        clean(scenario)
    else:
        racy(scenario, "cta_barriers")


def counted(programs: int, **options: object) -> Scenario:
    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64 * programs, 2)
        kernel = kernels.count_and_notify
        count = words[0][1:]
        world.fabrics[0].main().launch(kernel, (programs,), buffers[1], count, words[1], **options)
        out = zeros(64 * programs)
        world.fabrics[1].main().launch(kernels.take_parts, (1,), buffers[1], words[1], out, PARTS=programs)

    return scenario


def test_the_last_of_a_count_speaks_for_all() -> None:
    """A release sequence: each addition continues it, and the last program has acquired the others' stores."""
    clean(counted(4, SEM="acq_rel"))
    racy(counted(4, SEM="release"), "semantics")
    racy(counted(4, SEM="acquire"), "semantics")


def test_a_count_that_acquires_has_no_cta_barrier_before_it() -> None:
    """The compiler puts one behind it only."""
    racy(counted(3, SEM="acq_rel", BARRIER=False), "cta_barriers")


def test_descriptor_stores_are_awaited_before_the_release() -> None:
    awaited = "cp.async.bulk.wait_group 0"
    clean(message(kernels.push_descriptor, sent={"AWAIT": awaited}))
    racy(message(kernels.push_descriptor, sent={"AWAIT": ""}), "async_completion")
    racy(message(kernels.push_descriptor, sent={"AWAIT": "cp.async.bulk.wait_group.read 0"}), "async_completion")
    racy(message(kernels.push_descriptor, sent={"AWAIT": "cp.async.bulk.wait_group 1"}), "async_completion")
    racy(message(kernels.push_descriptor, sent={"AWAIT": awaited, "BARRIER": False}), "cta_barriers")


def test_descriptor_loads_need_a_proxy_fence_behind_the_acquire() -> None:
    fence = "fence.proxy.async.global"
    clean(message(consumer=kernels.take_descriptor, taken={"FENCE": fence}))
    clean(message(consumer=kernels.take_descriptor, taken={"FENCE": "fence.proxy.async"}))
    racy(message(consumer=kernels.take_descriptor, taken={"FENCE": ""}), "proxy_fences")
    racy(message(consumer=kernels.take_descriptor, taken={"FENCE": "", "EARLY": fence}), "proxy_fences")


def test_kernels_of_a_stream_are_ordered_in_all_ways_of_access() -> None:
    def scenario(world: World) -> None:
        main, x = world.fabrics[0].main(), zeros()
        main.launch(kernels.fill_descriptor, (1,), x, 1)
        main.launch(kernels.read, (1,), x, zeros())
        main.launch(kernels.fill, (1,), x, 2)
        main.launch(kernels.take_descriptor, (1,), x, torch.ones(1, dtype=INT), 1, zeros(), FENCE="")
        main.copy(x, zeros())
        main.launch(kernels.use_scratch, (1,), x, zeros())

    clean(scenario)


@pytest.mark.parametrize("joined", [True, False])
def test_streams_are_ordered_by_events(joined: bool) -> None:
    def scenario(world: World) -> None:
        main, side, x = world.fabrics[0].main(), world.fabrics[0].stream("side"), zeros()
        main.launch(kernels.fill, (1,), x, 1)
        if joined:
            side.after(main)
        side.launch(kernels.read, (1,), x, zeros())

    if joined:
        clean(scenario)
    else:
        race = racy(scenario)
        assert {race.first.kernel, race.second.kernel} == {"fill", "read"}
        orders = {find(scenario, seed=seed).first.kernel for seed in range(8)}  # type: ignore[union-attr]
        assert orders == {"fill", "read"}, "both orders are found to be a race"


def test_programs_of_one_launch_are_not_ordered() -> None:
    def scenario(world: World) -> None:
        world.fabrics[0].main().launch(kernels.fill, (2,), zeros(), 1)

    race = racy(scenario)
    assert {touch.program for touch in both(race)} == {(0, 0, 0), (1, 0, 0)}


@pytest.mark.parametrize("waits", [True, False])
def test_a_buffer_is_written_again_only_when_it_was_read(waits: bool) -> None:
    def scenario(world: World) -> None:
        buffers, words = symmetric(world, 64, 2)
        main, there = world.fabrics[0].main(), (buffers[1], words[1])
        for call in (1, 2):
            if waits:
                main.launch(kernels.wait_and_push, (1,), *there, call, words[0][1:])
            else:
                main.launch(kernels.push, (1,), *there, call)
            args = *there, call, zeros(), words[0][1:]
            world.fabrics[1].main().launch(kernels.take_and_free, (1,), *args)

    if waits:
        clean(scenario)
        return
    # a consumer that comes when both values have been raised has synchronised with the second push: no race then
    races = [race for seed in range(6) if (race := find(scenario, seed=seed))]
    assert len(races) >= 3
    hints = {
        (first.kernel, second.kernel, race.same_call_hint)
        for race in races
        for first, second in [(race.first, race.second)]
    }
    assert ("take_and_free", "push", False) in hints or ("push", "take_and_free", False) in hints


def by_copies(orderly: bool, in_kernel: bool, data: int = 64) -> Scenario:
    """A copy engine pushes data, then copies a word behind it, or on a stream of its own."""

    def scenario(world: World) -> None:
        buffers, signals = symmetric(world, 64, 2)
        push = world.fabrics[0].stream("push")
        notify = push if orderly else world.fabrics[0].stream("notify")
        push.copy(buffers[1][:data], zeros(data))
        notify.copy(signals[1][:1], torch.ones(1, dtype=INT))
        main = world.fabrics[1].main()
        if in_kernel:
            main.launch(kernels.take, (1,), buffers[1], signals[1], 1, zeros())
        else:
            main.wait_at_least(signals[1][:1], 1)
            main.copy(zeros(data), buffers[1][:data])

    return scenario


@pytest.mark.parametrize("in_kernel", [True, False])
def test_copy_engines_notify_behind_their_data(in_kernel: bool) -> None:
    clean(by_copies(True, in_kernel))
    race = racy(by_copies(False, in_kernel))
    assert race.first.via is Via.COPY or race.second.via is Via.COPY


@pytest.mark.parametrize("waits", [True, False])
def test_stream_writes_release_and_stream_waits_acquire(waits: bool) -> None:
    def scenario(world: World) -> None:
        fabric = world.fabrics[0]
        (buffers, _), counts = symmetric(world, 64, 1), zeros(2)
        side, main, out = fabric.stream("side"), fabric.main(), zeros()
        side.copy(out, buffers[1])
        side.write(counts[1:], 3)
        if waits:
            main.wait_at_least(counts[1:], 2)
        main.launch(kernels.read, (1,), out, zeros())

    if waits:
        clean(scenario)
    else:
        racy(scenario)


def test_a_stream_write_is_acquired_by_a_running_kernel() -> None:
    def scenario(world: World) -> None:
        fabric = world.fabrics[0]
        (buffers, _), counts = symmetric(world, 64, 1), zeros(2)
        out = zeros()
        fabric.main().launch(kernels.take, (1,), out, counts, 1, zeros())
        fabric.stream("side").copy(out, buffers[1])
        fabric.stream("side").write(counts[:1], 1)

    clean(scenario)


def test_collectives_order_the_ranks() -> None:
    def scenario(world: World) -> None:
        buffers, _ = symmetric(world, 64, 1)
        for fabric in world.fabrics:
            main = fabric.main()
            main.launch(kernels.fill, (1,), buffers[1 - fabric.rank], 1)
            main.all_reduce(torch.ones(4))
            main.launch(kernels.read, (1,), buffers[fabric.rank], zeros())

    clean(scenario)


def test_library_operations_are_accesses_of_their_stream() -> None:
    def scenario(world: World) -> None:
        main, side = world.fabrics[0].main(), world.fabrics[0].stream("side")
        out = torch.zeros(8, 8)
        side.matmul(out, torch.ones(8, 8), torch.ones(8, 8))
        main.all_reduce(out)
        world.fabrics[1].main().all_reduce(torch.zeros(8, 8))

    assert {touch.via for touch in both(racy(scenario))} == {Via.LIBRARY}


def test_an_atomic_that_changes_nothing_releases_nothing() -> None:
    """The consumer cannot tell that the second producer came."""

    def scenario(world: World) -> None:
        buffers, signals = symmetric(world, 64, 1)
        for fabric in world.fabrics:
            fabric.main().launch(kernels.push, (1,), buffers[fabric.rank], signals[0], 1)
        side = world.fabrics[0].stream("side")
        side.wait_at_least(signals[0], 1)
        for buffer in buffers:
            side.copy(zeros(), buffer)

    assert racy(scenario).second.via in (Via.COPY, Via.PLAIN)


def test_a_race_crosses_processes() -> None:
    race = racy(message(sent={"BARRIER": False}), "cta_barriers")
    copy = pickle.loads(pickle.dumps(race))
    assert (copy.first, copy.second, str(copy)) == (race.first, race.second, str(race))
