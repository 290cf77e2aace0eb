"""The index program of rows that go to places: tables as a loop over the ids says, on one emulated GPU for each rank."""

from __future__ import annotations

import random

import pytest
import torch

from lowering.device import places
from tests.pipeline.test_index_program import ROUTINGS
from tilelink.emulator import World
from tilelink.ir.routed import Placed, Routed
from tilelink.schedule.tables import placed_rows, sorted_rows

Tables = dict[str, torch.Tensor]


def of_ranks(tokens: int, choices: int, experts: int, ranks: int, height: int) -> Placed:
    return Placed("x", Routed("r", "ids", tokens, choices, experts).on_ranks(ranks), height)


def made(ids: torch.Tensor, one: Placed, rank: int, chunk: int, seed: int = 0) -> Tables:
    """What the launches write of a rank."""
    chunks = -(-one.entries // chunk)
    shapes = {
        "counts": (one.ranks * chunks, one.bins),
        "listed": (one.ranks, one.entries),
        "placed": (one.ranks, one.entries),
        "here": (one.ranks, one.pieces),
    }
    tables = {name: torch.full(shape, 77, dtype=torch.int32) for name, shape in shapes.items()}
    world = World(1, num_sms=4, seed=seed)
    main, every = world.fabrics[0].main(), one.routed.every
    both = {"OWN_ROWS": one.entries, "NUM_EXPERTS": every, "BINS": one.bins, "CHUNK": chunk}
    main.launch(places.count_choices, (chunks, one.ranks), ids, tables["counts"], **both)
    more = {"CHOICES": one.routed.choices, "SHARE": one.routed.experts, "NUM_RANKS": one.ranks, "TILE": one.height}
    more |= {"PIECE": one.piece, "CHUNKS": chunks, "COUNTS_BLOCK": 2}
    more |= {
        "RANKS_BLOCK": 1 << (one.ranks - 1).bit_length(),
        "PIECES_BLOCK": 1 << (-(-one.pieces // chunks) - 1).bit_length(),
    }
    main.launch(places.list_places, (chunks,), ids, *tables.values(), rank, **both, **more)
    world.run()
    return tables


def check(ids: torch.Tensor, one: Placed, chunk: int | None = None) -> None:
    """Against the definition on every rank; and against the tables by which ranks find rows, of which each place is one."""
    chunk, taken = chunk or one.chunk, [set[int]() for _ in range(one.ranks)]
    routed = one.routed
    shares = [range(p * routed.experts, min((p + 1) * routed.experts, routed.every)) for p in range(one.ranks)]
    rows = [sorted_rows(ids.numpy(), own, one.height, 0, of_all=False)[0] for own in shares]
    for rank in range(one.ranks):
        found = made(ids, one, rank, chunk, seed=rank)
        own = range(rank * one.tokens, (rank + 1) * one.tokens)
        experts, shape = (routed.experts, routed.every), (one.ranks, one.pieces)
        wanted = placed_rows(ids.numpy(), own, experts, one.height, shape)
        for name, entries in zip(("listed", "placed", "here"), wanted, strict=True):
            assert all(found[name][place] == entry for place, entry in entries.items()), name
        for peer in range(one.ranks):
            for piece in range(one.pieces):
                for entry in range(piece * one.piece, piece * one.piece + int(found["here"][peer, piece])):
                    place = int(found["placed"][peer, entry])
                    assert place not in taken[peer], "no place is two ranks'"
                    taken[peer].add(place)
                    assert rows[peer][place,] // routed.choices == own.start + int(found["listed"][peer, entry])
    assert [len(each) for each in taken] == [len(each) for each in rows], "all rows go to their ranks"


CASES = [(2, 1, 1, 2, 16), (24, 3, 7, 3, 16), (32, 2, 6, 4, 8), (8, 32, 40, 2, 4), (60, 3, 4, 2, 64)]


@pytest.mark.quick(6)
@pytest.mark.parametrize("kind", ROUTINGS)
@pytest.mark.parametrize(("tokens", "choices", "experts", "ranks", "height"), CASES)
@pytest.mark.parametrize("chunk", [None, 16])
def test_rows_go_where_their_ranks_find_them(
    kind: str, tokens: int, choices: int, experts: int, ranks: int, height: int, chunk: int | None
) -> None:
    torch.manual_seed(tokens)
    one = of_ranks(tokens, choices, experts, ranks, height)
    check(ROUTINGS[kind](tokens, choices, experts).int(), one, chunk)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_routings(seed: int) -> None:
    """Also tokens that choose an expert twice, and ids that are no experts."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    ranks = rng.choice([2, 3, 4, 8])
    tokens, choices, experts = ranks * rng.randrange(1, 20), rng.choice([1, 2, 3, 4, 8, 9, 32]), rng.randrange(1, 40)
    ids = torch.randint(-2, rng.choice([1, experts, experts + 3]), (tokens, choices)).int()
    one = of_ranks(tokens, choices, experts, ranks, rng.choice([16, 32, 64, 128]))
    check(ids, one, rng.choice([None, 16, 64]))


@pytest.mark.parametrize("choices", [1, 2, 3, 5, 8, 10, 32])
@pytest.mark.parametrize("tokens", [1, 6, 16, 100, 4096])
def test_lists_are_whole_pieces(choices: int, tokens: int) -> None:
    one = of_ranks(4 * tokens, choices, 32, 4, 64)
    assert one.pieces * one.piece == one.entries == tokens * choices and one.piece <= max(16, choices)
    assert one.chunk & (one.chunk - 1) == 0 and one.chunks * one.chunk >= one.entries
