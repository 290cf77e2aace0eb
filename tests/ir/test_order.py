"""Orders are permutations. `tests/elaborate/test_positions.py` holds what steps print of them against them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelink.ir.order import ChunkOrder, Die, Nest, RankOrder, TileOrder


@st.composite
def rank_orders(draw: st.DrawFn) -> RankOrder:
    size, halves, nodes = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    node = size * halves
    way = draw(st.integers(0, 1)), draw(st.sampled_from([1, -1]))
    return RankOrder(node * nodes, node, *way, size if draw(st.booleans()) else 0)


@given(rank_orders())
def test_ranks_are_a_permutation(order: RankOrder) -> None:
    for rank in range(order.num_ranks):
        sequence = order.sequence(rank)
        assert sorted(sequence) == list(range(order.num_ranks))
        assert sequence[0 if order.first == 0 else -1] == rank  # own first or own last
        nodes = [peer // order.ranks_per_node for peer in sequence]
        assert nodes == sorted(nodes, key=nodes.index)  # whole nodes, one after the other
        halves = [peer // (order.ranks_per_half or order.ranks_per_node) for peer in sequence]
        assert halves == sorted(halves, key=halves.index)


@given(rank_orders())
def test_one_step_is_a_permutation_of_all_ranks(order: RankOrder) -> None:
    """Every rank sends to one and receives from one in each step: no port is used twice."""
    for position in range(order.num_ranks):
        assert len({order.at(rank, position) for rank in range(order.num_ranks)}) == order.num_ranks


@given(rank_orders(), st.sampled_from(Nest), st.integers(1, 5))
def test_chunks_are_a_permutation(ranks: RankOrder, nest: Nest, chunks: int) -> None:
    for rank in range(ranks.num_ranks):
        sequence = ChunkOrder(ranks, nest).sequence(rank, chunks)
        peers = [peer for peer in range(ranks.num_ranks) if peer != rank]
        assert sorted(sequence) == [(peer, chunk) for peer in peers for chunk in range(chunks)]
        assert [peer for peer, chunk in sequence if chunk == 0] == [p for p in ranks.sequence(rank) if p != rank]
        for peer in peers:
            assert [chunk for p, chunk in sequence if p == peer] == list(range(chunks))
        outer = [step[0 if nest is Nest.RANK_MAJOR else 1] for step in sequence]
        assert outer == sorted(outer, key=outer.index)


@st.composite
def tile_orders(draw: st.DrawFn) -> tuple[TileOrder, int, int, int]:
    """An order with the numbers of major tiles of a segment, minor tiles, segments."""
    segments = draw(st.integers(1, 5))
    ranks = RankOrder(segments, segments, draw(st.integers(0, 1)))
    group = draw(st.integers(1, 6))
    order = TileOrder("m", "n", ranks, ranks, draw(st.sampled_from(Nest)), group)
    return order, draw(st.integers(1, 9)), draw(st.integers(1, 5)), segments


@given(tile_orders())
def test_tiles_are_a_permutation(case: tuple[TileOrder, int, int, int]) -> None:
    order, major, minor, segments = case
    sequence = list(order.sequence(major, minor, segments))
    assert sorted(sequence) == [(s, m, n) for s in range(segments) for m in range(major) for n in range(minor)]
    groups = [(tile // order.group, segment) for segment, tile, _ in sequence]
    if order.nest is Nest.RANK_MAJOR:
        groups = [(segment, group) for group, segment in groups]
    assert groups == sorted(groups)  # a group is done before the next one starts


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_own_tiles_one_round_late(segments: int, groups: int, group: int, minor: int) -> None:
    """Each group of the last segment comes after the next group of all others, and everything comes once."""
    ranks = RankOrder(segments, segments, 1)
    order = TileOrder("m", "n", ranks, ranks, Nest.CHUNK_MAJOR, group, late=True)
    sequence = list(order.sequence(groups * group, minor, segments))
    assert sorted(sequence) == [(s, m, n) for s in range(segments) for m in range(groups * group) for n in range(minor)]
    last = segments - 1
    for number in range(groups):
        first = min(i for i, (s, m, _) in enumerate(sequence) if s == last and m // group == number)
        others = [i for i, (s, m, _) in enumerate(sequence) if s != last and m // group <= number + 1]
        assert first > max(others)


@given(st.integers(1, 64), st.integers(1, 12))
def test_dies(programs: int, dies: int) -> None:
    die = Die(dies)
    places = [die.at(program, programs) for program in range(programs)]
    assert sorted(places) == list(range(programs))
    even = programs // dies * dies
    for program in range(even):  # program i is launched on die i mod dies; a die gets consecutive places
        assert places[program] // (even // dies) == program % dies


@pytest.mark.parametrize(
    ("order", "rank", "sequence"),
    [
        (RankOrder(4, 4, 0), 2, (2, 3, 0, 1)),
        (RankOrder(4, 4, 1), 2, (3, 0, 1, 2)),
        (RankOrder(4, 4, 1, -1), 2, (1, 0, 3, 2)),
        (RankOrder(8, 4, 0), 5, (5, 6, 7, 4, 1, 2, 3, 0)),  # own node first
        (RankOrder(8, 4, 1), 5, (2, 3, 0, 1, 6, 7, 4, 5)),  # own node last
        (RankOrder(8, 4, 0, 1, 2), 5, (5, 4, 7, 6, 1, 0, 3, 2)),  # own half first
        (RankOrder(8, 4, 1, -1, 2), 5, (2, 3, 0, 1, 6, 7, 4, 5)),  # own half last
    ],
)
def test_examples(order: RankOrder, rank: int, sequence: tuple[int, ...]) -> None:
    assert order.sequence(rank) == sequence
