"""Orders as indices, and as kernels spell these, say what the orders of the IR say: position by position, for every rank."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

import lowering
from lowering.embed import defined
from lowering.steps.constants import Constants
from lowering.steps.indices import Scope, Spelling
from tilelink.elaborate.positions import TILE, lets, peer_and_chunk, rank_at
from tilelink.ir.nodes import Axis, ComputeRole
from tilelink.ir.order import ChunkOrder, Nest, RankOrder, TileOrder
from tilelink.schedule.index import Ints, evaluate
from tilelink.schedule.roles import MeshAxis, Schedule
from tilelink.schedule.steps import Let

NESTS = st.sampled_from(list(Nest))


def named(let: Let, env: dict[str, int]) -> dict[str, int | Ints]:
    found: dict[str, int | Ints] = dict(env)
    for name, index in let:
        found[name] = evaluate(index, found)
    return found


class Word(int):
    """An integer of a kernel, where // and % round towards zero."""

    def __floordiv__(self, other: int) -> Word:
        return Word(abs(int(self)) // int(other) * (1 if int(self) >= 0 else -1))

    def __mod__(self, other: int) -> Word:
        return self - self // other * other

    def __add__(self, other: int) -> Word:
        return Word(int(self) + int(other))

    def __sub__(self, other: int) -> Word:
        return Word(int(self) - int(other))

    def __rsub__(self, other: int) -> Word:
        return Word(int(other) - int(self))

    def __mul__(self, other: int) -> Word:
        return Word(int(self) * int(other))

    __radd__, __rmul__ = __add__, __mul__


def _device() -> dict[str, Any]:
    """What the text of indices calls, as plain Python."""
    space: dict[str, Any] = {
        "triton": SimpleNamespace(jit=lambda function: function),
        "tl": SimpleNamespace(minimum=lambda a, b: Word(min(a, b)), maximum=lambda a, b: Word(max(a, b))),
    }
    helpers = defined((Path(str(lowering.__file__)).parent / "device" / "tiles.py").read_text(encoding="utf-8"))
    for name in ("floor_mod", "floor_div"):
        exec(helpers[name], space)
    return space


DEVICE = _device()


class Printed:
    """The names of `let` as a kernel computes them, one of `programs`, at `count` positions."""

    def __init__(self, let: Let, num_ranks: int, count: int, programs: int = 1) -> None:
        schedule = Schedule("orders", (MeshAxis("ranks", num_ranks),), (), (), ())
        spell = Spelling(Scope(schedule, programs=programs), Constants(frozenset()))
        with spell.scope.inside("tile", count):
            self.lines = [(name, spell(index)) for name, index in spell.scope.bind(let)]
        self.numbers = {name: Word(one.value) for name, one in spell.constants.found.items()}

    def at(self, **env: int) -> dict[str, int]:
        found: dict[str, int] = {name: Word(value) for name, value in env.items()}
        for name, text in self.lines:
            found[name] = eval(text, {**DEVICE, **self.numbers, **found})
        return found


@st.composite
def rank_orders(draw: st.DrawFn) -> RankOrder:
    size, halves, nodes = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    node = size * halves
    way = draw(st.integers(0, 1)), draw(st.sampled_from([1, -1]))
    return RankOrder(node * nodes, node, *way, size if draw(st.booleans()) else 0)


@given(rank_orders(), st.data())
def test_ranks(order: RankOrder, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, order.num_ranks - 1))
    found = [evaluate(rank_at(order, position), {"rank": rank}) for position in range(order.num_ranks)]
    assert tuple(found) == order.sequence(rank)


@given(rank_orders())
def test_printed_ranks(order: RankOrder) -> None:
    printed = Printed((("peer", rank_at(order, TILE)),), order.num_ranks, order.num_ranks)
    for rank in range(order.num_ranks):
        found = [printed.at(rank=rank, tile=position)["peer"] for position in range(order.num_ranks)]
        assert tuple(found) == order.sequence(rank)


@given(rank_orders(), NESTS, st.integers(1, 4), st.booleans(), st.data())
def test_movers(ranks: RankOrder, nest: Nest, chunks: int, streams: bool, data: st.DataObject) -> None:
    assume(ranks.first == 1 and ranks.num_ranks > 1)
    order, rank = ChunkOrder(ranks, nest), data.draw(st.integers(0, ranks.num_ranks - 1))
    count = (ranks.num_ranks - 1) * chunks
    let = peer_and_chunk(order, chunks, streams=streams)
    found = [named(let, {"tile": tile, "rank": rank}) for tile in range(count)]
    printed = Printed(let, ranks.num_ranks, count)
    assert found == [printed.at(tile=tile, rank=rank) for tile in range(count)]
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
    printed = Printed(let, order.ranks.num_ranks, role.num_tiles)
    for tile, (place, row, column) in enumerate(positions):
        found = named(let, {"tile": tile, "rank": rank})
        assert found == printed.at(tile=tile, rank=rank)
        assert (found["m_place"], found["m"], found["n"]) == (place, row * 4, column % minor.tiles * 8)
        if major.segments > 1:
            assert found["m_segment"] == order.ranks.at(rank, place)
        if minor.segments > 1:
            assert found["n_segment"] == order.minor_ranks.at(rank, column // minor.tiles)


@given(rank_orders(), st.integers(1, 4), st.integers(1, 6), st.data())
def test_shifted_movers(ranks: RankOrder, chunks: int, programs: int, data: st.DataObject) -> None:
    """Each program goes to its peers for every chunk, in the order of its own first peer."""
    assume(ranks.first == 1 and ranks.num_ranks > 1)
    peers, rank = ranks.num_ranks - 1, data.draw(st.integers(0, ranks.num_ranks - 1))
    let = peer_and_chunk(ChunkOrder(ranks, Nest.CHUNK_MAJOR), chunks, shifted=True)
    printed = Printed(let, ranks.num_ranks, peers * chunks, programs)
    others = ranks.sequence(rank)[:peers]
    for program in range(programs):
        found = [printed.at(tile=tile, rank=rank, program=program) for tile in range(peers * chunks)]
        pairs = [(one["peer"], one["chunk"]) for one in found]
        turned = [others[(step + program) % peers] for step in range(peers)]
        assert pairs == [(peer, chunk) for chunk in range(chunks) for peer in turned]
