"""Files written for torch symmetric memory and stock launches, on emulated ranks."""

from __future__ import annotations

import math
import pickle
import string
from typing import TYPE_CHECKING, Any

import pytest
import torch
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tests.compat import dialect_kernels as kernels
from tilelink.compat import dialects
from tilelink.compat.dialects import IllegalRendezvous, IllegalSignalTensor, IllegalView
from tilelink.compat.dialects.symm_mem import SymmMem
from tilelink.emulator import (
    Deadlock,
    IllegalLaunch,
    LateSetup,
    OutOfBounds,
    SymmetricMismatch,
    World,
)
from tilelink.emulator.errors import UnknownWait
from tilelink.emulator.policies import Newest, Oldest, StarveRank, policy_by_name
from tilelink.emulator.races import RaceDetector

if TYPE_CHECKING:
    from tilelink.emulator import Policy

INT = torch.int32


def symm_mems(num_ranks: int = 2, **options: Any) -> tuple[World, list[SymmMem]]:
    world = World(num_ranks, num_sms=4, **options)
    return world, [SymmMem(fabric) for fabric in world.fabrics]


def test_handles_know_all_ranks() -> None:
    _, symms = symm_mems(3)
    buffers = [symm.empty(4, 6, dtype=torch.float32, device="cuda") for symm in symms]
    handles = [symm.rendezvous(buffer[1:]) for symm, buffer in zip(symms, buffers, strict=True)]
    for rank, handle in enumerate(handles):
        assert (handle.rank, handle.world_size, handle.buffer_size) == (rank, 3, 96)
        assert handle.buffer_ptrs == [buffer.data_ptr() for buffer in buffers]
        assert handle.multicast_ptr == 0
        assert handle.get_remote_tensor(1, (4, 6), torch.float32).data_ptr() == buffers[1].data_ptr()
        view = handle.get_buffer(2, (3,), torch.float32, storage_offset=8)
        assert view.data_ptr() == buffers[2].data_ptr() + 32
        assert handle.get_signal_pad(1).data_ptr() == handle.signal_pad_ptrs[1]
        assert handle.get_signal_pad(1).dtype == torch.uint32
        assert handle.get_signal_pad(0, (2,), torch.int64, 3).data_ptr() == handle.signal_pad_ptrs[0] + 24
        assert int(handle.get_signal_pad(rank, dtype=INT).abs().sum()) == 0
    assert symms[0].rendezvous(buffers[0]) is handles[0]


def test_empty_memory_is_garbage_until_it_is_written() -> None:
    _, (first, second) = symm_mems()
    floats, words = first.empty(8, dtype=torch.bfloat16), first.empty(8, dtype=INT)
    assert all(map(math.isnan, floats.tolist()))
    assert 0 not in words.tolist()
    words.zero_()
    second.empty(8, dtype=torch.bfloat16)
    second.empty(8, dtype=INT)
    assert words.tolist() == [0] * 8  # host code of another rank comes later and changes nothing


def test_the_pointer_table_is_an_integer_argument() -> None:
    world, symms = symm_mems()
    outs = [torch.zeros(8, dtype=INT) for _ in symms]
    buffers = [symm.empty((8,), dtype=INT) for symm in symms]
    for symm, buffer, out in zip(symms, buffers, outs, strict=True):
        buffer.fill_(10 + symm.rank)
        handle = symm.rendezvous(buffer)
        assert isinstance(handle.buffer_ptrs_dev, int)
        with symm.launches():
            kernels.read_peer[(1,)](handle.buffer_ptrs_dev, out, 1 - symm.rank, N=8)
    world.run()
    assert [out.tolist() for out in outs] == [[11] * 8, [10] * 8]


def test_a_table_lasts_as_long_as_the_world() -> None:
    world, symms = symm_mems(1)
    out = torch.zeros(8, dtype=INT)
    symm = symms.pop()
    buffer = symm.empty(8, dtype=INT)
    buffer.fill_(3)
    with symm.launches():
        kernels.read_peer[(1,)](symm.rendezvous(buffer).buffer_ptrs_dev, out, 0, N=8)
    del symm
    garbage = [torch.full((1,), 7) for _ in range(100)]
    world.run()
    assert out.tolist() == [3] * 8 and len(garbage) == 100


def test_reading_behind_the_table_is_out_of_bounds() -> None:
    world, (symm, _) = symm_mems()
    handle = symm.rendezvous(symm.empty(8, dtype=INT))
    with symm.launches():
        kernels.read_peer[(1,)](handle.buffer_ptrs_dev, torch.zeros(8, dtype=INT), 2, N=8)
    with pytest.raises(OutOfBounds, match=r"behind the last one of .*_ptrs\[2\] of rank 0"):
        world.run()


def test_stock_launches_of_all_kinds() -> None:
    world, (symm, *_) = symm_mems(1)
    x, outs = torch.arange(12, dtype=INT), [torch.zeros(12, dtype=INT) for _ in range(4)]
    with symm.launches():
        kernels.add_one[lambda meta: (meta["count"] // meta["BLOCK"],)](x, outs[0], 12, BLOCK=4, num_warps=1)
        kernels.tuned[lambda meta: (-(-meta["count"] // meta["BLOCK"]),)](x, outs[1], 12)
        kernels.guessed[(1,)](x, outs[2], 8)
        kernels.add_one.warmup(x, outs[3], 12, BLOCK=4, grid=(1,))
    assert outs[0].tolist() == [0] * 12  # only enqueued
    world.run()
    plus_one = list(range(1, 13))
    assert [out.tolist() for out in outs] == [plus_one, plus_one, plus_one[:8] + [0] * 4, [0] * 12]


def test_outside_of_the_context_triton_is_as_it_was() -> None:
    before = JITFunction.run, Autotuner.run
    _, (symm, other) = symm_mems()
    with symm.launches():
        assert JITFunction.run is not before[0]
        with pytest.raises(IllegalLaunch), other.launches("side"):
            kernels.add_one[(1,)](torch.zeros(4), torch.zeros(4), 4, BLOCKS=4)
        assert other.current is other.fabric.main()
    assert (JITFunction.run, Autotuner.run) == before


def test_launches_and_operations_go_to_the_innermost_stream() -> None:
    world, (symm, _) = symm_mems()
    word, out = torch.zeros(2, dtype=torch.uint32), torch.zeros(4, dtype=INT)
    with symm.launches():
        kernels.wait_for_word[(1,)](word[1:])
        with symm.launches("side"):
            symm.copy(out, torch.ones(4, dtype=INT))
            symm.stream_write_value32(word, 1, 0xFFFFFFFF)
    world.run()
    assert out.tolist() == [1] * 4 and word.view(INT).tolist() == [0, -1]


def test_reports_name_the_line_of_host_code() -> None:
    world, (symm, _) = symm_mems()
    handle = symm.rendezvous(symm.empty(4))
    handle.barrier()
    with pytest.raises(Deadlock) as caught:
        world.run()
    assert "`handle.barrier()`" in str(caught.value)
    assert "signal_pad[1] of rank 0 (value 0)" in str(caught.value)


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_barriers_leave_the_signal_pads_as_they_were(num_ranks: int, seed: int) -> None:
    world, symms = symm_mems(num_ranks, seed=seed)
    handles = [symm.rendezvous(symm.empty(4)) for symm in symms]
    for handle in handles:
        for channel in (0, 1, 0, 0):
            handle.barrier(channel)
    world.run()
    assert all(int(handle.get_signal_pad(handle.rank, dtype=INT).abs().sum()) == 0 for handle in handles)


@pytest.mark.parametrize("policy", [Oldest(), Newest(), StarveRank(0), StarveRank(1)], ids=lambda policy: policy.text)
@pytest.mark.parametrize("channel", [0, 2])
def test_a_signal_follows_the_copy_before_it(policy: Policy, channel: int) -> None:
    world, symms = symm_mems(policy=policy)
    buffers = [symm.empty(4, dtype=INT) for symm in symms]
    first, second = (symm.rendezvous(buffer) for symm, buffer in zip(symms, buffers, strict=True))
    out = torch.zeros(4, dtype=INT)
    symms[0].copy(first.get_remote_tensor(1, (4,), INT), torch.full((4,), 3, dtype=INT))
    first.put_signal(1, channel)
    second.wait_signal(0, channel)
    symms[1].copy(out, buffers[1])
    world.run()
    assert out.tolist() == [3] * 4


def test_a_signal_on_another_channel_is_not_taken() -> None:
    world, symms = symm_mems()
    first, second = (symm.rendezvous(symm.empty(4)) for symm in symms)
    first.put_signal(1, channel=1)
    second.wait_signal(0, channel=0)
    with pytest.raises(Deadlock):
        world.run()


def test_memset32_sets_words_in_stream_order() -> None:
    world, (symm, _) = symm_mems()
    words = torch.zeros(4, dtype=torch.uint32)
    symm.memset32(words, 1, 9, 3)
    symm.stream_write_value32(words, 2, 7)
    assert words.view(INT).tolist() == [0] * 4
    world.run()
    assert words.view(INT).tolist() == [0, 9, 7, 9]


def test_a_stream_raises_the_word_of_a_peer_behind_what_it_has_put_there() -> None:
    """As copy engines push: data, then the signal; the peer's stream waits for it. No race, whoever comes first."""
    for policy in ("copies-late", "copies-early", "random:3"):
        world, (first, second) = symm_mems(policy=policy_by_name(policy), observers=[RaceDetector(2)])
        mine, theirs = (symm.empty(4, dtype=torch.float32) for symm in (first, second))
        here, there = first.rendezvous(mine), second.rendezvous(theirs)
        out = torch.zeros(4)
        first.copy(here.get_remote_tensor(1, (4,), torch.float32), torch.ones(4))
        first.stream_write_value32(here.get_signal_pad(1), 7, 5)
        second.current.wait_at_least(there.get_signal_pad(1).view(INT)[7:8], 5)
        second.copy(out, theirs)
        world.run()
        assert out.tolist() == [1.0] * 4


def test_a_stream_that_waits_for_the_word_of_a_peer_is_not_known() -> None:
    symm = one()
    pad = symm.rendezvous(symm.empty(8)).get_signal_pad(1)
    with pytest.raises(UnknownWait, match="memory of rank 1"):
        symm.current.wait_equal(pad.view(INT)[:1], 1)


def one(rank: int = 0) -> SymmMem:
    return symm_mems()[1][rank]


MISTAKES: dict[str, tuple[type[Exception], Any]] = {
    "a plain tensor": (IllegalRendezvous, lambda: one().rendezvous(torch.zeros(4))),
    "a view over the end": (IllegalView, lambda: made().get_buffer(1, (8,), torch.float32, 1)),
    "an unknown peer": (IllegalView, lambda: made().get_remote_tensor(2, (8,), torch.float32)),
    "a pad that is too small": (IllegalView, lambda: made().get_signal_pad(0, (2305,))),
    "an int32 signal": (IllegalSignalTensor, lambda: one().stream_write_value32(torch.zeros(2, dtype=INT), 0, 1)),
    "a word behind the end": (IllegalSignalTensor, lambda: one().memset32(words(), 1, 0, 2)),
    "a value of 33 bits": (IllegalSignalTensor, lambda: one().memset32(words(), 0, 1 << 32)),
    "different sizes": (SymmetricMismatch, lambda: [symm.empty(4 + symm.rank) for symm in symm_mems()[1]]),
    "an allocation beside work": (LateSetup, lambda: allocate_late()),
}


def words() -> torch.Tensor:
    return torch.zeros(2, dtype=torch.uint32)


def made() -> Any:
    symm = one()
    return symm.rendezvous(symm.empty(8, dtype=torch.float32))


def allocate_late() -> None:
    symm = one()
    symm.copy(torch.zeros(4), torch.ones(4))
    symm.empty(4)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_its_class(mistake: str) -> None:
    kind, make = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        make()
    assert "Legal" in str(caught.value)


@pytest.mark.parametrize("name", dialects.__all__)
def test_errors_of_the_dialects_keep_their_facts(name: str) -> None:
    kind = getattr(dialects, name)
    names = {field for _, field, _, _ in string.Formatter().parse(kind.template) if field}
    error = kind(**{field: f"<{field}>" for field in names})
    assert names and all(f"`{field}`" in str(kind.__doc__) and f"<{field}>" in str(error) for field in names)
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), copied.facts) == (kind, str(error), error.facts)
