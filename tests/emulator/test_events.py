"""The event stream: what a race detector needs to see, in the order in which it happens."""

from __future__ import annotations

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.emulator import kernels
from tilelink.emulator import Event, World
from tilelink.emulator.events import Access, Acquired, Barrier, Fence, Kind, Released, Scope, Semantic, Via


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)

    def accesses(self, name: str) -> list[Access]:
        """Those of the tasks whose name starts so."""
        found = [event for event in self.events if isinstance(event, Access)]
        return [event for event in found if event.task.name.startswith(name)]


def test_notify_and_wait_across_ranks() -> None:
    recorder = Recorder()
    world = World(2, observers=[recorder], seed=3)
    signals = [fabric.symmetric((2,), torch.int32) for fabric in world.fabrics]
    world.fabrics[0].main().launch(kernels.notify, (1,), signals[0].peers[1][1:2], 5)
    world.fabrics[1].main().launch(kernels.wait, (1,), signals[1].local[1:2], 5)
    world.run()
    (release,) = recorder.accesses("notify")
    assert (release.kind, release.via) == (Kind.ATOMIC, Via.ATOMIC)
    assert (release.semantic, release.scope, release.changed) == (Semantic.RELEASE, Scope.SYSTEM, True)
    assert release.addresses.tolist() == [signals[1].local.data_ptr() + 4]
    assert release.item_bytes == 4
    assert "tl.atomic_xchg" in release.place.text
    acquire = recorder.accesses("wait")[-1]
    assert (acquire.semantic, acquire.changed, acquire.task.rank) == (Semantic.ACQUIRE, False, 1)
    assert recorder.events.index(acquire) > recorder.events.index(release)
    own = [event for event in recorder.events if event.task == release.task]
    assert isinstance(own[own.index(release) - 1], Barrier)


def test_tokens_order_launches_kernels_and_streams() -> None:
    recorder = Recorder()
    world = World(1, observers=[recorder])
    main, side = world.fabrics[0].main(), world.fabrics[0].stream("side")
    out = torch.zeros(64, dtype=torch.int32)
    main.launch(kernels.fill, (1,), out, 3, 64, GUARD=False)
    side.after(main)
    side.launch(kernels.fill, (1,), out, 4, 64, GUARD=False)
    world.run()
    first, second = recorder.accesses("fill")
    assert happens_before(recorder.events, first, second)


def test_copies_and_stream_words() -> None:
    recorder = Recorder()
    world = World(2, observers=[recorder])
    buffers = [fabric.symmetric((8,), torch.int32) for fabric in world.fabrics]
    side = world.fabrics[0].stream("side")
    side.write(buffers[0].local[2:3], 9)
    side.copy(buffers[0].peers[1][0:4], buffers[0].local[0:4])
    world.fabrics[1].main().wait_at_least(buffers[1].local[2:3], 9)
    world.run()
    write, load, store = recorder.accesses("stream side")
    assert (write.via, write.kind, write.semantic) == (Via.STREAM, Kind.STORE, Semantic.RELEASE)
    assert (load.via, load.kind, load.item_bytes) == (Via.COPY, Kind.LOAD, 16)
    assert (store.via, store.kind, store.addresses[0]) == (Via.COPY, Kind.STORE, buffers[1].local.data_ptr())
    (wait,) = recorder.accesses("stream main")
    assert (wait.kind, wait.semantic) == (Kind.LOAD, Semantic.ACQUIRE)


def test_descriptor_accesses_and_fences() -> None:
    recorder = Recorder()
    world = World(1, observers=[recorder])
    x = torch.randn(16, 16)
    described = TensorDescriptor(x, [16, 16], [16, 1], [16, 8])
    main = world.fabrics[0].main()
    main.launch(kernels.descriptors, (1,), described, described, torch.zeros(16, 16), 0, SIDE=16)
    main.launch(kernels.known_asm, (1,), torch.zeros(1, dtype=torch.int32))
    world.run()
    vias = [(access.kind, access.via) for access in recorder.accesses("descriptors")]
    assert vias == [(Kind.LOAD, Via.DESCRIPTOR), (Kind.STORE, Via.DESCRIPTOR)] * 2
    fences = [event.text for event in recorder.events if isinstance(event, Fence)]
    assert fences == ["cp.async.bulk.wait_group 0", "fence.proxy.async.global"]


def test_a_store_into_two_buffers_is_an_access_to_each() -> None:
    """What lies between them is not touched, wherever they lie."""
    recorder = Recorder()
    world = World(2, observers=[recorder])
    buffers = [fabric.symmetric((8,), torch.int32) for fabric in world.fabrics]
    world.fabrics[0].main().launch(kernels.to_either, (1,), buffers[1].local, buffers[0].local, BLOCK=8)
    world.run()
    first, second = recorder.accesses("to_either")
    assert [(access.buffer.rank, access.addresses.size) for access in (first, second) if access.buffer] == [
        (1, 4),
        (0, 4),
    ]
    assert first.end - first.start == second.end - second.start == 7 * 4
    assert (buffers[1].local + buffers[0].local).tolist() == list(range(8))


def happens_before(events: list[Event], first: Access, second: Access) -> bool:
    """Whether tokens lead from the task of `first`, after it, to the task of `second`, before it."""
    reached = {first.task}
    tokens: set[object] = set()
    for event in events[events.index(first) : events.index(second)]:
        if isinstance(event, Released) and event.task in reached:
            tokens.add(event.token)
        elif isinstance(event, Acquired) and event.token in tokens:
            reached.add(event.task)
    return second.task in reached
