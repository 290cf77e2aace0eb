"""Clocks of ranks, brought to one: what is claimed of them holds, and the kernel that asks for them runs."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tilelink.emulator import World
from tilelink.profiling.clocks import Offset, ask, drifted, offset_of
from tilelink.profiling.ranks import Seen, on_one_clock
from tilelink.profiling.stamps import Moment, Site, Stamped
from tilelink.runtime.aot import RecordedLaunch, compile_launch

WAYS = st.integers(100, 50_000)  # ns


@given(st.integers(-(10**12), 10**12), st.lists(st.tuples(st.integers(1, 10**9), WAYS, WAYS), min_size=1, max_size=20))
def test_the_other_clock_is_where_it_is_said_to_be(ahead: int, rounds: list[tuple[int, int, int]]) -> None:
    """Whatever each way takes, and however uneven both are."""
    at, asked, answered = 10**13, [], []
    for wait, there, back in rounds:
        at += wait
        asked.append((at, at + there + back))
        answered.append(at + there + ahead)
        at += there + back
    found = offset_of(asked, answered)
    assert found is not None and abs(found.ahead - ahead) <= found.within
    assert found.within == min(there + back for _, there, back in rounds) / 2


def test_rounds_without_an_answer_say_nothing() -> None:
    assert offset_of([(0, 0), (5, 0)], [0, 7]) is None
    assert offset_of([(5, 9), (20, 40)], [0, 31]) == Offset(1.0, 10.0)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(0, 50), st.integers(0, 50))
def test_a_clock_that_drifts_is_within(before: int, behind: int, within: int, later: int) -> None:
    found = drifted(Offset(before, within), Offset(behind, later))
    for true in (before - within, before + within, behind - later, behind + later, (before + behind) / 2):
        assert abs(true - found.ahead) <= found.within


def test_spans_of_ranks_begin_where_they_do() -> None:
    """Rank 1 begins 3 us after rank 0, by a clock that is a second ahead."""
    marked = Stamped("", (Site(Moment.BEGUN, "kernel", "", 0, 1), Site(Moment.ROLE, "kernel", "tiles", 1, 1)), 2, 1)
    words = [[[5_000], [9_000]], [[1_000_008_000], [1_000_010_000]]]
    found, within = on_one_clock([Seen(one, [], 0.0) for one in words], marked, [Offset(0.0, 0.0), Offset(1e9, 400.0)])
    assert [(one.start_us, one.end_us) for rank in found for one in rank] == [(0.0, 4.0), (3.0, 5.0)]
    assert within == 400.0


def asked(world: World, rounds: int, polls: int, absent: bool = False) -> list[torch.Tensor]:
    times = [torch.zeros(rounds, 2, dtype=torch.int64) for _ in world.fabrics]
    made = [fabric.symmetric((2,), torch.int32) for fabric in world.fabrics]
    for first in (0, rounds):  # twice: words go on
        for fabric in world.fabrics:
            words, peer = made[fabric.rank], 1 - fabric.rank
            if absent and fabric.rank == 1:
                continue
            pointers = words.pointers + 4 * fabric.rank
            arguments = words.local[peer:], pointers, peer, first, rounds, times[fabric.rank], polls
            fabric.main().launch(ask, (1,), *arguments, ASKS=fabric.rank == 0, num_warps=1)
        world.run()
    return times


@pytest.mark.parametrize("seed", range(3))
def test_ranks_tell_their_time(seed: int) -> None:
    mine, theirs = asked(World(2, num_sms=1, seed=seed), 5, 100_000)
    for (a, b), (t, _) in zip(mine.tolist(), theirs.tolist(), strict=True):
        assert 0 < a <= t <= b  # emulated ranks have one clock


def test_a_rank_that_does_not_answer_leaves_nothing() -> None:
    mine, theirs = asked(World(2, num_sms=1), 3, 20, absent=True)
    assert offset_of([(a, b) for a, b in mine.tolist()], [t for t, _ in theirs.tolist()]) is None


@pytest.mark.parametrize("asks", [True, False])
def test_it_compiles(asks: bool) -> None:
    words, times = (
        torch.empty(2, dtype=torch.int32, device="meta"),
        torch.empty(64, 2, dtype=torch.int64, device="meta"),
    )
    pointers = torch.empty(2, dtype=torch.int64, device="meta")
    launch = RecordedLaunch(ask, (1,), (words, pointers, 1, 0, 64, times, 4096), {"ASKS": asks, "num_warps": 1})
    ptx = compile_launch(launch, "sm_90").asm["ptx"]
    assert ptx.count("%globaltimer") == 1 + asks and "atom.global.sys.release.exch.b32" in ptx
