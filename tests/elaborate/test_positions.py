"""Orders as indices say what the orders of the IR say: position by position, for every rank."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tilelink.elaborate.positions import TILE, lets, peer_and_chunk, rank_at
from tilelink.ir.nodes import Axis, ComputeRole
from tilelink.ir.order import ChunkOrder, Nest, RankOrder, TileOrder
from tilelink.schedule.index import Ints, evaluate
from tilelink.schedule.steps import Let

NESTS = st.sampled_from(list(Nest))


def named(let: Let, env: dict[str, int]) -> dict[str, int | Ints]:
    found: dict[str, int | Ints] = dict(env)
    for name, index in let:
        found[name] = evaluate(index, found)
    return found


@st.composite
def rank_orders(draw: st.DrawFn) -> RankOrder:
    size, nodes = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    return RankOrder(size * nodes, size, draw(st.integers(0, 1)), draw(st.sampled_from([1, -1])))


@given(rank_orders(), st.data())
def test_ranks(order: RankOrder, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, order.num_ranks - 1))
    found = [evaluate(rank_at(order, position), {"rank": rank}) for position in range(order.num_ranks)]
    assert tuple(found) == order.sequence(rank)


@given(rank_orders(), NESTS, st.integers(1, 4), st.booleans(), st.data())
def test_movers(ranks: RankOrder, nest: Nest, chunks: int, streams: bool, data: st.DataObject) -> None:
    assume(ranks.first == 1 and ranks.num_ranks > 1)
    order, rank = ChunkOrder(ranks, nest), data.draw(st.integers(0, ranks.num_ranks - 1))
    count = (ranks.num_ranks - 1) * chunks
    let = peer_and_chunk(order, chunks, streams=streams)
    found = [named(let, {"tile": tile, "rank": rank}) for tile in range(count)]
    pairs = [(one["peer"], one["chunk"]) for one in found]
    if not streams:
        assert tuple(pairs) == order.sequence(rank, chunks)
        return
    for stream in range(ranks.num_ranks - 1):  # each has one peer, whose chunks come in order
        mine = pairs[stream :: ranks.num_ranks - 1]
        assert [chunk for _, chunk in mine] == list(range(chunks)) and len({peer for peer, _ in mine}) == 1
    assert sorted(pairs) == sorted(order.sequence(rank, chunks))


@st.composite
def roles(draw: st.DrawFn) -> ComputeRole:
    ranks = draw(rank_orders())
    late = draw(st.booleans())
    group = draw(st.integers(1, 4))
    tiles = draw(st.integers(1, 3)) * group if late else draw(st.integers(1, 9))
    nest = Nest.CHUNK_MAJOR if late else draw(NESTS)
    segments = draw(st.sampled_from([1, ranks.num_ranks]))
    assume(segments > 1 or not late)
    major = Axis("m", tiles * 4 - draw(st.integers(0, 3)), segments, 4, reduction=False)
    minor = Axis("n", draw(st.integers(1, 20)), draw(st.sampled_from([1, ranks.num_ranks])), 8, reduction=False)
    order = TileOrder("m", "n", ranks, ranks, nest, group, late)
    return ComputeRole("y", 1, (major, minor), order, prefetch=False, body=())


@given(roles(), st.data())
def test_tiles(role: ComputeRole, data: st.DataObject) -> None:
    order, (major, minor) = role.order, role.axes
    rank = data.draw(st.integers(0, order.ranks.num_ranks - 1))
    let = lets(role, TILE)
    positions = order.sequence(major.tiles, minor.segments * minor.tiles, major.segments)
    for tile, (place, row, column) in enumerate(positions):
        found = named(let, {"tile": tile, "rank": rank})
        assert (found["m_place"], found["m"], found["n"]) == (place, row * 4, column % minor.tiles * 8)
        if major.segments > 1:
            assert found["m_segment"] == order.ranks.at(rank, place)
        if minor.segments > 1:
            assert found["n_segment"] == order.minor_ranks.at(rank, column // minor.tiles)
