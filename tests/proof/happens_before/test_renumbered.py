"""Programs with other numbers are the same, and rounds that tell nobody come in any order; the referee never disagrees."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import topologies
from tests.pipeline.rail_specs import SPECS
from tests.proof.happens_before.test_against_referee import agree
from tests.schedule.mutants import mutants
from tests.schedule.operators import OUT, SYM, ranks
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.enums import Protocol
from tilelink.proof.happens_before.check import checked, ordered
from tilelink.proof.happens_before.ranks import rank_turns
from tilelink.proof.happens_before.renumbered import renumbered
from tilelink.schedule.index import Index, Number, call, evaluate, rank
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import For, If, Load, Step, Store, Wait
from tilelink.schedule.walk import all_steps, mapped, with_bodies

SIZE, ROWS, HIGH = 3, 4, 2  # rows of a rank, and of a tile
EVERY, ALL = SIZE * ROWS, SIZE * ROWS // HIGH  # rows, and tiles
tile, m, peer, step = Index("tile"), Index("m"), Index("peer"), Index("step")
GROUPED = tile % 2 * SIZE + tile // 2  # rows of all parts before the next ones


def schedule(
    order: Number = GROUPED, *, programs: int = ALL, adds: bool = True, turned: bool = False, high: int = HIGH
) -> Schedule:
    """Tiles in one order on all ranks: tile `order` goes to the rank that has its rows, in packets. The same tile `adds` the rows
    of all ranks, part by part, or a launch behind does. `turned`: it leaves out the part of the next rank, not the own one.
    `high`: rows of a tile."""
    row = m - rank * ROWS  # outside of the own rows it is nothing
    put = Store("t", Region("parts", (call % 2, rank, m - peer * ROWS, 0), (1, 1, high, 1), peer))
    make: tuple[Step, ...] = (
        Load("t", Region("x", (m, 0), (high, 1))),
        For("step", SIZE - 1, (put,), (("peer", (rank + 1 + step) % SIZE),)),
    )
    own = (rank + 1) % SIZE if turned else rank
    take = Load("p", Region("parts", (call % 2, peer, row, 0), (1, 1, high, 1)))
    add: tuple[Step, ...] = (
        For("peer", SIZE, (If(peer, own, (), (take,)),)),
        Store("t", Region("out", (row, 0), (high, 1))),
    )
    let = (("m", order * high),)
    tiles = Role("tiles", Sms(programs), (Phase(EVERY // high, (*make, *add) if adds else make, let),))
    launches = [Launch("main", (tiles,))]
    if not adds:
        launches.append(Launch("main", (Role("adds", Sms(programs), (Phase(EVERY // high, add, let),)),)))
    buffers = (
        Buffer("x", Memory.INPUT, (SIZE * ROWS, 1), "float16"),
        Buffer("parts", SYM, (2, SIZE, ROWS, 1), "float16", protocol=Protocol.LAMPORT),
        Buffer("out", OUT, (ROWS, 1), "float16"),
    )
    return Schedule("rows", ranks(SIZE), buffers, (), tuple(launches))


@pytest.mark.parametrize("high", [HIGH, EVERY])
@pytest.mark.parametrize("adds", [True, False])
def test_one_rank_stands_for_all(adds: bool, high: int) -> None:
    """Of tiles of two rows, and of one tile with the rows of all ranks."""
    one = schedule(GROUPED if high == HIGH else 0, adds=adds, high=high)
    assert rank_turns(one).period == SIZE
    assert agree("itself", one, {})
    outcome = checked(one)
    assert outcome.proved and outcome.rank_period == 1


def test_positions_that_wait_stay_in_their_programs() -> None:
    """They might wait for each other, which programs of their own would not."""
    few = schedule(programs=2)
    assert all(one.launches[0].roles[0].engine == Sms(2) for one in renumbered(few))
    assert agree("few", few, {})


@pytest.mark.parametrize("beside", [Wait("came", (peer,), call), Load("q", Region("x", (peer, 0), (1, 1)))], ids=str)
def test_rounds_that_need_others_keep_their_order(beside: Step) -> None:
    """What is awaited in one round another one may rely on, in the order in which they come."""
    one = schedule()
    changed = with_bodies(
        one, lambda body: mapped(body, lambda step: (beside, step) if isinstance(step, If) else (step,))
    )
    for other, variable in ((one, "turn of peer"), (changed, "peer")):
        (found, *_) = renumbered(other)
        loops = [step.variable for step in all_steps(found) if isinstance(step, For)]
        assert loops == ["step", variable]


def test_all_positions_are_there() -> None:
    """Of each rank, another order of the same tiles."""
    (found, *_) = renumbered(schedule())
    (phase,) = found.launches[0].roles[0].phases
    for number in range(SIZE):
        ((_, index),) = phase.let
        rows = np.asarray(evaluate(index, {"tile": np.arange(ALL), "rank": number})).tolist()
        assert sorted(rows) == list(range(0, SIZE * ROWS, HIGH)) and rows[0] == number * ROWS


@pytest.mark.parametrize("order", [tile * 2 % ALL, tile // 2 * 2, tile % 4, tile * 5 % ALL], ids=str)
def test_tiles_twice_or_never(order: Number) -> None:
    agree("order", schedule(order), {})


def test_sums_in_packets_of_tiles() -> None:
    """What the planner makes of few rows, and mistakes in it."""
    pins = {"algorithm": "lamport-tiles", "compute": "triton", "tile": "16x32x32/4w2s"}
    sizes, topology = {"M": 64, "K": 64, "N": 64}, topologies.load("laptop-switch", 4)
    steps = instantiated(elaborated(SPECS["gemm_rs"].plan_for(topology, sizes, "fp32", pins)))
    outcome = ordered(steps)
    assert outcome.proved and outcome.rank_period == 1
    for what, mutant in random.Random("sums").sample(list(mutants(steps)), 40):
        found, every = ordered(mutant), ordered(mutant, symmetric=False)
        assert found.proved == every.proved, what


ORDERS = [GROUPED, tile, ALL - 1 - tile, (tile + rank * 2) % ALL, tile * 5 % ALL, tile // 2 * 2]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(ORDERS),
    st.sampled_from([1, 2, ALL, ALL + 1]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, HIGH, ROWS, EVERY]),
    st.integers(0, 10**6),
)
def test_the_referee_agrees(order: Number, programs: int, adds: bool, turned: bool, high: int, seed: int) -> None:
    one = schedule(order, programs=programs, adds=adds, turned=turned, high=high)
    agree("itself", one, {})
    for what, mutant in random.Random(seed).sample(list(mutants(one)), 3):
        agree(what, mutant, {})
