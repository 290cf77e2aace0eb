"""Positions that may come in any order: what makes them so, one condition after the other; the referee never disagrees."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.happens_before.test_against_referee import agree
from tests.schedule.mutants import mutants
from tests.schedule.operators import OUT, SYM, finish, finished, ranks
from tilelink.proof.happens_before.any_order import AnyOrder, merged
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.ranks import alone, rank_turns
from tilelink.proof.happens_before.rows import Kind
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Buffer, Memory, Region, Signal
from tilelink.schedule.roles import Launch, Phase, Pipelining, Plain, Prefetch, Role, Schedule, Sms, Who
from tilelink.schedule.steps import For, Load, Notify, Store, Wait

SIZE, ROWS = 3, 4  # ranks, and rows of a part, of which each rank gathers all
ALL, TILES = SIZE * ROWS, SIZE * ROWS // 2
tile, segment, step, program = Index("tile"), Index("segment"), Index("step"), Index("program")
PEER = (rank + 1 + step) % SIZE


@dataclass(frozen=True)
class Local:
    """A kernel between others. `stored`: where a position writes; `loaded`: the buffer it reads; `told`: when peers are, who read
    all that it has made."""

    stored: Number = tile * 2
    loaded: str = "y"
    count: int = TILES
    at: Number = rank
    told: str = ""
    every: bool = False
    roles: int = 1
    stream: str = "main"
    pipelining: Pipelining = field(default_factory=Plain)

    def launch(self) -> Launch:
        store = Store("t", Region("z", (self.stored,), (2,), self.at))
        load = Load("t", Region(self.loaded, (tile * 2 % ALL,), (2,)))
        there = (For("step", SIZE - 1, (Notify("made", (rank,), PEER, call),)),)
        last = (For("step", SIZE - 1, (Notify("made", (rank,), PEER, call, 2),)),)
        after = {
            "by both": (Phase(1, last, every=True),),
            "behind all": (Phase(1, there, who=Who.LAST),),
            "by the first": (Phase(1, there, who=Who.FIRST),),
        }.get(self.told, ())
        phase = Phase(self.count, (load, store), every=self.every, pipelining=self.pipelining)
        idle = Role("idle", Sms(1), (Phase(1, (Load("t", Region("y", (0,), (1,))),)),))
        return Launch(self.stream, (Role("local", Sms(2), (phase, *after)), idle)[: self.roles])


def schedule(local: Local) -> Schedule:
    """y is gathered in the order of ranks; `local` makes z of it, which the rank reads as a whole, as do peers that are told."""
    put = (
        Load("t", Region("x", (0,), (ROWS,))),
        Store("t", Region("y", (rank * ROWS,), (ROWS,), segment)),
        Notify("came", (rank,), segment, call),
    )
    order = (("segment", (rank + tile) % SIZE),)
    take = (Wait("came", (segment,), call, ("y",)), Load("t", Region("y", (segment * ROWS,), (ROWS,))))
    roles = (
        Role("send", Sms(1), (finished(SIZE), Phase(SIZE, put, order))),
        Role("take", Sms(1), (Phase(SIZE, take, order),)),
    )
    pulled = (Wait("made", (PEER,), call, ("z",)), Load("t", Region("z", (0,), (ALL,), PEER)))
    whole = (Load("t", Region("z", (0,), (ALL,))), Store("t", Region("out", (0,), (ALL,))))
    read = (*whole, *((For("step", SIZE - 1, pulled),) if local.told else ()))
    last = Launch("main", (Role("read", Sms(1), (Phase(1, read), finish(SIZE))),))
    shared = local.told or local.at != rank
    buffers = (
        Buffer("x", Memory.INPUT, (ROWS,), "float16"),
        Buffer("y", SYM, (ALL,), "float16"),
        Buffer("z", SYM if shared else Memory.LOCAL, (ALL,), "float16"),
        Buffer("out", OUT, (ALL,), "float16"),
    )
    signals = (Signal("done", (1,)), Signal("came", (SIZE,)), Signal("made", (SIZE,)))
    return Schedule("local", ranks(SIZE), buffers, signals, (Launch("main", roles), local.launch(), last))


RIGHT = {
    "as it is": Local(),
    "backwards": Local(ALL - 2 - tile * 2),
    "each its own place, the same on all ranks": Local((tile * 2 + 2) % ALL),
    "prefetched": Local(pipelining=Prefetch()),
    "peers are told behind all": Local(told="behind all"),
}
OTHERWISE = {
    "peers are told by programs": Local(told="by both"),
    "of other roles": Local(roles=2),
    "by each program": Local(every=True),
    "two in one place": Local(tile // 2 * 4),
    "one behind the other": Local(tile),
    "they read what they write": Local(loaded="z"),
    "at a neighbour": Local(at=(rank + 1) % SIZE),
    "another place in another call": Local((tile * 2 + call * 2) % ALL),
}


def free(given: Schedule) -> bool:
    return AnyOrder(given).launch(given.launches[1], SIZE)


@pytest.mark.parametrize("name", RIGHT)
def test_in_any_order(name: str) -> None:
    given = schedule(RIGHT[name])
    assert free(given)
    assert agree(name, given, {})


def test_ranks_are_alike_although_tiles_begin_with_the_same_rows() -> None:
    """y turns with ranks, since it is gathered, and z may stand still; where z turns, tiles must."""
    given = schedule(Local())
    assert rank_turns(given).period == 1
    outcome = checked(given)
    assert outcome.proved and outcome.rank_period == 1
    for other in (Local(told="by both"), Local(roles=2), Local(every=True)):
        assert rank_turns(schedule(other)).period == SIZE


@pytest.mark.parametrize("name", OTHERWISE)
def test_not_in_any_order(name: str) -> None:
    given = schedule(OTHERWISE[name])
    assert not free(given)
    agree(name, given, {})


def test_who_does_not_wait_for_all_programs_is_refuted() -> None:
    """The first program tells peers that z is there, of which the other one makes half."""
    assert not agree("told too early", schedule(Local(told="by the first")), {})
    assert not agree("beside", schedule(Local(stream="beside")), {})


@pytest.mark.parametrize("name", RIGHT)
def test_one_access_stands_for_all(name: str) -> None:
    given = schedule(RIGHT[name])
    plan = expanded(given, {}, 2, alone(given))
    stored = [one for one in plan.rows if one.name == "z" and one.kind is Kind.WRITE]
    assert sum(map(len, stored)) == TILES * SIZE * 2
    (one,) = (one for one in merged(plan, AnyOrder(given)).rows if one.name == "z" and one.kind is Kind.WRITE)
    assert len(one) == SIZE * 2 and set(zip(one.start[0].tolist(), one.stop[0].tolist(), strict=True)) == {(0, ALL)}


@settings(max_examples=60)
@given(
    st.sampled_from([tile * 2, tile, ALL - 2 - tile * 2, (tile + rank) * 2 % ALL, tile // 2 * 4, program * 2 + tile]),
    st.sampled_from(["y", "z"]),
    st.integers(TILES - 1, TILES + 1),
    st.sampled_from([rank, (rank + 1) % SIZE]),
    st.sampled_from(["", "by both", "behind all", "by the first"]),
    st.booleans(),
    st.integers(1, 2),
    st.sampled_from(["main", "beside"]),
    st.integers(0, 10**6),
)
def test_the_referee_agrees(
    stored: Number,
    loaded: str,
    count: int,
    at: Number,
    told: str,
    every: bool,
    roles: int,
    stream: str,
    seed: int,
) -> None:
    given = schedule(Local(stored, loaded, count, at, told, every, roles, stream))
    agree("itself", given, {})
    for what, mutant in random.Random(seed).sample(list(mutants(given)), 3):
        agree(what, mutant, {})
