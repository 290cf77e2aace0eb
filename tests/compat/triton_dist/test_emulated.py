"""Hand-written kernels of the dialect on emulated ranks: right ones, and what is refuted of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.compat.triton_dist.shimmed import COUNT, dialect, on_all, symmetric, world
from tilelink.compat.dialects import IllegalShmemArgument, NotSymmetric
from tilelink.compat.dialects.simt import PerThreadCode
from tilelink.emulator import Deadlock, Race

RANKS = [2, 3, 4]


def full(value: float) -> torch.Tensor:
    return torch.full((COUNT,), float(value))


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("op", ["set", "add"])
@pytest.mark.parametrize("scope", ["intra_node", "inter_node"])
def test_push_and_notify(num_ranks: int, op: str, scope: str) -> None:
    for seed in range(3):
        emulated = world(num_ranks, seed, races=True)

        def host(group: Any) -> torch.Tensor:
            data, signal, out = symmetric(COUNT), symmetric(1, dtype=torch.int64), torch.zeros(COUNT)
            dialect().push_and_notify[(1,)](data, signal, out, group.rank(), N=COUNT, OP=op, SCOPE=scope)
            return out

        outs = on_all(emulated, host)
        emulated.run()
        assert all(torch.equal(out, full(2 * ((rank - 1) % num_ranks))) for rank, out in enumerate(outs))


def one_push(kernel: str, seed: int = 0, **constants: Any) -> list[torch.Tensor]:
    """A right push on two ranks under the race detector."""
    emulated = world(2, seed, races=True)

    def host(_: Any) -> torch.Tensor:
        data, signal, out = symmetric(COUNT), symmetric(1, dtype=torch.int64), torch.zeros(COUNT)
        getattr(dialect(), kernel)[(1,)](data, signal, out, N=COUNT, **constants)
        return out

    outs = on_all(emulated, host)
    emulated.run()
    return outs


def test_a_notify_without_barrier_is_a_race() -> None:
    for seed in range(3):
        with pytest.raises(Race, match=r"dl\.symm_at"):
            one_push("push_without_barrier", seed)


@pytest.mark.parametrize("consume", [1, 2])  # by consume_token, by __syncthreads
def test_a_wait_orders_what_took_its_token(consume: int) -> None:
    outs = one_push("push_with", SCOPE="sys", SEMANTIC="acquire", CONSUME=consume)
    assert all(torch.equal(out, full(1)) for out in outs)


@pytest.mark.parametrize(
    ("scope", "semantic", "consume"), [("sys", "acquire", 0), ("sys", "relaxed", 1), ("gpu", "acquire", 1)]
)
def test_without_token_or_strength_the_load_is_a_race(scope: str, semantic: str, consume: int) -> None:
    with pytest.raises(Race):
        one_push("push_with", SCOPE=scope, SEMANTIC=semantic, CONSUME=consume)


@pytest.mark.parametrize("num_ranks", RANKS)
def test_all_gather_waits_for_several_words(num_ranks: int) -> None:
    for seed in range(2):
        emulated = world(num_ranks, seed, races=True)
        shards = [torch.randn(COUNT) for _ in range(num_ranks)]

        def host(group: Any, shards: list[torch.Tensor] = shards) -> torch.Tensor:
            gathered = symmetric(group.size() * COUNT)
            signals, out = symmetric(group.size(), dtype=torch.int64), torch.zeros(group.size() * COUNT)
            dialect().all_gather_push[(group.size() + 1,)](
                shards[group.rank()], gathered, signals, out, N=COUNT, NUM_RANKS=group.size()
            )
            return out

        outs = on_all(emulated, host)
        emulated.run()
        assert all(torch.equal(out, torch.cat(shards)) for out in outs)


def passed(value: int, seed: int) -> None:
    emulated = world(2, seed)

    def host(_: Any) -> None:
        dialect().wait_for_passed[(2,)](symmetric(1, dtype=torch.int64), VALUE=value)

    on_all(emulated, host)
    emulated.run()


def test_a_value_that_is_passed_is_waited_for_in_vain() -> None:
    hangs = 0
    for seed in range(12):
        try:
            passed(1, seed)
        except Deadlock as deadlock:
            hangs += 1
            assert "(value 2) == 1" in str(deadlock)
        passed(2, seed)
    assert hangs


def test_libshmem() -> None:
    for seed in range(3):
        emulated = world(3, seed, races=True)

        def host(group: Any) -> torch.Tensor:
            x, landing = symmetric(COUNT), symmetric(COUNT)
            x.fill_(group.rank())
            signal, out = symmetric(1, dtype=torch.int64), torch.zeros(2 * COUNT)
            dialect().ring_put[(1,)](x, landing, signal, out, 5, N=COUNT)
            return out

        outs = on_all(emulated, host)
        emulated.run()
        for rank, out in enumerate(outs):
            assert torch.equal(out, torch.cat([full((rank - 1) % 3), full((rank + 1) % 3)]))


def test_collectives() -> None:
    emulated = world(3, races=True)

    def host(group: Any) -> torch.Tensor:
        x, gathered = symmetric(COUNT), symmetric(3 * COUNT)
        x.fill_(group.rank() + 1)
        out = torch.zeros(3 * COUNT)
        dialect().collectives[(1,)](x, gathered, out, N=COUNT, NUM_RANKS=3)
        return out

    outs = on_all(emulated, host)
    emulated.run()
    assert all(torch.equal(out, torch.cat([full(3), full(2), full(3)])) for out in outs)


def by_words(kernel: str, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    emulated = world(2, seed, races=True)

    def host(_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        data, flags, out = symmetric(COUNT), symmetric(4, dtype=torch.int32), torch.zeros(COUNT)
        getattr(dialect(), kernel)[(1,)](data, flags, out, N=COUNT)
        return out, flags

    results = on_all(emulated, host)
    emulated.run()
    return [out for out, _ in results], [flags for _, flags in results]


def test_words_by_one_thread() -> None:
    for seed in range(3):
        outs, flags = by_words("words_by_one_thread", seed)
        assert all(torch.equal(out, full(7)) for out in outs)
        assert all(words.tolist() == [1, 2, 5, 4] for words in flags)


def test_what_one_thread_acquires_the_others_have_not() -> None:
    with pytest.raises(Race):
        by_words("spin_of_one_thread_without_barrier", 0)


@pytest.mark.parametrize(
    ("kernel", "reason"), [("add_by_all_threads", "all threads"), ("thread_arithmetic", "more than `== k`")]
)
def test_per_thread_code_is_refused(kernel: str, reason: str) -> None:
    emulated = world(1)
    on_all(emulated, lambda _: getattr(dialect(), kernel)[(1,)](symmetric(4, dtype=torch.int32)))
    with pytest.raises(PerThreadCode, match=reason):
        emulated.run()


def test_programs_of_one_rank() -> None:
    for seed in range(3):
        emulated = world(1, seed, races=True)

        def host(_: Any) -> torch.Tensor:
            data, count, out = symmetric(3 * COUNT), symmetric(1, dtype=torch.int32), torch.zeros(3 * COUNT)
            dialect().arrive_and_wait[(4,)](data, count, out, N=COUNT)
            return out

        (out,) = on_all(emulated, host)
        emulated.run()
        assert torch.equal(out, torch.cat([full(0), full(1), full(2)]))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_barriers_of_grid_and_ranks(num_ranks: int) -> None:
    for seed in range(2):
        emulated = world(num_ranks, seed, races=True)

        def host(group: Any) -> torch.Tensor:
            data, out = symmetric(2 * COUNT), torch.zeros(2 * COUNT)
            words, flags = symmetric(16, dtype=torch.int32), symmetric(16, dtype=torch.int32)
            for call in range(2):
                dialect().grid_and_rank_barriers[(2,)](
                    data, words, flags, out, group.rank(), group.size(), call + 1, N=COUNT
                )
                dialect().nvshmem_barrier_all_on_stream()
            return out

        outs = on_all(emulated, host)
        emulated.run()
        assert all(torch.equal(out, full((rank + 1) % num_ranks).repeat(2)) for rank, out in enumerate(outs))


def handshake(value: int, seed: int) -> list[torch.Tensor]:
    emulated = world(2, seed, races=True)
    operators = on_all(emulated, lambda group: dialect().StreamHandshake(group, value))
    outs = on_all(emulated, lambda group: operators[group.rank()]())
    emulated.run()
    return outs


@pytest.mark.parametrize("seed", [0, 1])
def test_a_stream_waits_for_an_equal_word(seed: int) -> None:
    assert all(torch.equal(out, full(3)) for out in handshake(2, seed))


def test_a_stream_that_waits_for_a_passed_value_hangs() -> None:
    with pytest.raises(Deadlock, match=r"\(value 2\) == 1"):
        handshake(1, 0)


def test_arguments_are_checked() -> None:
    emulated = world(2)

    def host(_: Any) -> None:
        narrow, out = symmetric(1, dtype=torch.int32), torch.zeros(COUNT)
        dialect().push_with[(1,)](symmetric(COUNT), narrow, out, N=COUNT, SCOPE="sys", SEMANTIC="acquire", CONSUME=1)

    on_all(emulated, host)
    with pytest.raises(IllegalShmemArgument, match="int64 or uint64"):
        emulated.run()


def test_a_local_tensor_has_no_peers() -> None:
    emulated = world(2)

    def host(_: Any) -> None:
        out = torch.zeros(COUNT)
        dialect().push_without_barrier[(1,)](torch.zeros(COUNT), symmetric(1, dtype=torch.int64), out, N=COUNT)

    on_all(emulated, host)
    with pytest.raises(NotSymmetric):
        emulated.run()
