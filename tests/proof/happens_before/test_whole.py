"""Loads of all of a buffer stand for loads of parts of it, where that makes ranks alike; the referee never disagrees."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.happens_before.test_against_referee import agree
from tests.schedule.mutants import mutants
from tests.schedule.operators import OUT, SYM, finish, finished, ranks
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.ranks import rank_turns
from tilelink.proof.happens_before.refuted import Wrong
from tilelink.proof.happens_before.whole import with_whole_loads
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Buffer, Memory, Region, Signal
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import For, If, Load, Notify, Store, Wait

SIZE, ROWS = 3, 4
ALL = SIZE * ROWS
tile, segment, step = Index("tile"), Index("segment"), Index("step")
PEER = (rank + 1 + step) % SIZE


def schedule(first: Number = tile, *, rows: int = ALL, inside: bool = False, beside: bool = False) -> Schedule:
    """Each rank gathers all ids, its own ones first. Then tiles, in one order on all ranks, load row `first` of them, and tell
    peers what they have made. `rows`: of ids, of which as many are written as there are; `inside`: loads are in a loop and a
    branch; `beside`: the ids come while tiles are loaded."""
    put = (
        Load("t", Region("x", (0,), (ROWS,))),
        Store("t", Region("y", (rank * ROWS,), (ROWS,), segment)),
        Notify("came", (rank,), segment, call),
    )
    order = (("segment", (rank + tile) % SIZE),)
    part = Region("y", (segment * ROWS,), (ROWS,))
    take = (Wait("came", (segment,), call, ("y",)), Load("t", part), Store("t", Region("ids", part.start, (ROWS,))))
    gather = Launch(
        "main",
        (
            Role("send", Sms(1), (finished(SIZE), Phase(SIZE, put, order))),
            Role("take", Sms(1), (Phase(SIZE, take, order),)),
        ),
    )
    load: tuple[Load | For, ...] = (Load("t", Region("ids", (first,), (1,))),)
    if inside:
        load = (For("step", 1, (If(step, 0, load),)),)
    tell = For("step", SIZE - 1, (Notify("made", (rank, tile), PEER, call),))
    make = (*load, Store("t", Region("z", (tile,), (1,))), tell)
    pulled = (Wait("made", (PEER, tile), call, ("z",)), Load("t", Region("z", (tile,), (1,), PEER)))
    tiles = Role("tiles", Sms(2), (Phase(ALL, make), Phase(ALL, (For("step", SIZE - 1, pulled),)), finish(SIZE)))
    whole = (Load("t", Region("z", (0,), (ALL,))), Store("t", Region("out", (0,), (ALL,))))
    buffers = (
        Buffer("x", Memory.INPUT, (ROWS,), "float16"),
        Buffer("y", SYM, (ALL,), "float16"),
        Buffer("ids", Memory.LOCAL, (rows,), "float16"),
        Buffer("z", SYM, (ALL,), "float16"),
        Buffer("out", OUT, (ALL,), "float16"),
    )
    signals = (Signal("done", (1,)), Signal("came", (SIZE,)), Signal("made", (SIZE, ALL)))
    last = Launch("main", (Role("read", Sms(1), (Phase(1, whole),)),))
    launches = (gather, Launch("beside" if beside else "main", (tiles,)), last)
    return Schedule("ids", ranks(SIZE), buffers, signals, launches)


@pytest.mark.parametrize("inside", [False, True])
def test_one_rank_stands_for_all(inside: bool) -> None:
    given = schedule(inside=inside)
    assert rank_turns(given).period == SIZE
    assert agree("itself", given, {})
    outcome = checked(given)
    assert outcome.proved and outcome.rank_period == 1


@pytest.mark.parametrize("inside", [False, True])
def test_loads_are_in_bounds_on_each_rank(inside: bool) -> None:
    """Rank 0 loads what there is, others one or two rows behind it."""
    over = schedule(tile + rank, inside=inside)
    whole = with_whole_loads(over)
    assert whole is not None and rank_turns(whole.schedule).period == 1
    refuted = checked(over).refutation
    assert refuted is not None and refuted.wrong is Wrong.OUTSIDE
    assert not agree("over", over, {})


def test_rows_that_nobody_writes_and_nobody_loads() -> None:
    """Loads of all of them would find nothing: each rank is looked at as it is."""
    roomy = schedule(rows=ALL + 3)
    outcome = checked(roomy)
    assert outcome.proved and outcome.rank_period == SIZE
    assert agree("roomy", roomy, {})


def test_what_is_written_meanwhile() -> None:
    assert not agree("beside", schedule(beside=True), {})


@settings(max_examples=40)
@given(
    st.sampled_from([tile, ALL - 1 - tile, (tile + rank) % ALL, tile + rank, 0]),
    st.sampled_from([ALL, ALL + 2]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_the_referee_agrees(first: Number, rows: int, inside: bool, beside: bool, seed: int) -> None:
    given = schedule(first, rows=rows, inside=inside, beside=beside)
    agree("itself", given, {})
    for what, mutant in random.Random(seed).sample(list(mutants(given)), 3):
        agree(what, mutant, {})
