"""Loops that nothing synchronises become one box where they are exactly that, and regions are boxes of cells of a grid."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilelink.proof.happens_before.loops import widened
from tilelink.proof.happens_before.regions import cells_of, grid_of
from tilelink.schedule.index import Index, Number, evaluate, least
from tilelink.schedule.instance import instantiated
from tilelink.schedule.memory import Buffer, Dim, Memory, Region
from tilelink.schedule.roles import Launch, MeshAxis, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import For, If, Load, Notify, Step, Store
from tilelink.schedule.walk import all_steps

k, m = Index("k"), Index("m")
BUFFERS = (Buffer("a", Memory.LOCAL, (64, 64), "float32"), Buffer("b", Memory.LOCAL, (64, 64), "float32"))


def schedule(*body: Step, dims: tuple[Dim, ...] = ()) -> Schedule:
    roles = (Role("r", Sms(1), (Phase(1, body, (("m", 3),)),)),)
    return Schedule("loop", (MeshAxis("ranks", 1),), BUFFERS, (), (Launch("main", roles),), dims)


def region(*start: Number, extent: tuple[Number, ...] = (4, 4), buffer: str = "a") -> Region:
    return Region(buffer, start, extent)


def elements(step: Step, env: dict[str, int]) -> set[tuple[int, ...]]:
    """What the loads in a step touch, element by element."""
    match step:
        case For(variable, count, body):
            rounds = int(evaluate(count, env))
            return {one for n in range(rounds) for inner in body for one in elements(inner, {**env, variable: n})}
        case Load(_, found):
            ends = [
                range(int(evaluate(a, env)), int(evaluate(a, env)) + int(evaluate(b, env)))
                for a, b in zip(found.start, found.extent, strict=True)
            ]
            return set(product(*ends))
    return set()


def test_a_loop_over_k_is_a_band() -> None:
    loop = For("k", 8, (Load("x", region(m * 4, k * 4)), Load("y", region(k * 4, 0, buffer="b"))))
    found = [step for step in all_steps(widened(schedule(loop))) if isinstance(step, Load)]
    assert [one.region for one in found] == [
        region(m * 4, 0, extent=(4, 32)),
        region(0, 0, extent=(32, 4), buffer="b"),
    ]
    assert not any(isinstance(step, For) for step in all_steps(widened(schedule(loop))))


def test_sizes_with_names_are_numbers() -> None:
    dims = (Dim("TILES", 8), Dim("BLOCK_K", 4))
    loop = For("k", Index("TILES"), (Load("x", region(0, k * Index("BLOCK_K"), extent=(4, Index("BLOCK_K")))),))
    (found,) = all_steps(widened(instantiated(schedule(loop, dims=dims))))
    assert isinstance(found, Load) and found.region == region(0, 0, extent=(4, 32))


def test_what_is_no_box_or_synchronises_stays_a_loop() -> None:
    for loop in (
        For("k", 8, (Load("x", region(0, k * 5)),)),  # gaps
        For("k", 8, (Load("x", region(k * 4, k * 4)),)),  # a diagonal
        For("k", 8, (Load("x", region(0, k % 2 * 4)),)),
        For(
            "k", 8, (Load("x", region(0, k * 4)), Store("x", region(0, k * 4 + 4)))
        ),  # what one round stores, the next loads
        For("k", 8, (Load("x", region(0, k * 4)), Notify("word", (0,), 0))),
        For("k", 8, (If(k, 0, (Load("x", region(0, k * 4)),)),)),
    ):
        one = schedule(loop)
        assert widened(one) == one


@given(st.integers(-6, 6), st.integers(1, 5), st.integers(0, 5), st.integers(0, 1), st.integers(-3, 9))
def test_a_box_is_exactly_what_the_rounds_touch(by: int, extent: int, count: int, dim: int, first: int) -> None:
    start: list[Number] = [m, m]
    start[dim] = k * by + first
    loop = For("k", Index("rounds"), (Load("x", region(*start, extent=(extent, extent))),))
    new = widened(schedule(loop)).launches[0].roles[0].phases[0].body
    env = {"m": 3, "rounds": count}
    assert {one for step in new for one in elements(step, env)} == elements(loop, env)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 6), st.integers(-3, 9), st.integers(-2, 40))
def test_a_last_round_that_ends_where_a_tensor_does(by: int, extent: int, count: int, first: int, end: int) -> None:
    there = least(extent, end - (k * by + first))
    loop = For("k", Index("rounds"), (Load("x", region(m, k * by + first, extent=(4, there))),))
    new = widened(schedule(loop)).launches[0].roles[0].phases[0].body
    assert isinstance(new[0], For) is (by > extent)
    env = {"m": 3, "rounds": count}
    assert {one for step in new for one in elements(step, env)} == elements(loop, env)


def test_a_ragged_loop_over_two_million_rounds_is_one_access() -> None:
    loop = For("k", 2**21, (Load("x", region(m, k * 64, extent=(4, least(64, 2**27 - 8 - k * 64)))),))
    (found,) = all_steps(widened(schedule(loop)))
    assert isinstance(found, Load)


@given(
    st.lists(st.tuples(*(st.tuples(st.integers(0, 9), st.integers(1, 6)) for _ in range(3))), min_size=1, max_size=8)
)
def test_cells_of_two_boxes_meet_where_the_boxes_do(boxes: list[tuple[tuple[int, int], ...]]) -> None:
    starts = [np.array([box[d][0] for box in boxes]) for d in range(3)]
    stops = [start + np.array([box[d][1] for box in boxes]) for d, start in enumerate(starts)]
    grid = grid_of(starts, stops)
    box, cell = cells_of(grid, starts, stops)
    for number in range(len(boxes)):
        covered = set()
        for one in cell[box == number].tolist():
            covered |= set(product(*(range(a, b) for a, b in grid.box(one))))
        ends = [range(int(a[number]), int(b[number])) for a, b in zip(starts, stops, strict=True)]
        assert covered == set(product(*ends))


def test_an_unrolled_loop_is_the_same_loop() -> None:
    loop = For("k", 8, (Load("x", region(0, k * 4)),))
    assert widened(schedule(replace(loop, unrolled=True))) == widened(schedule(loop))
