"""The index program: tables of a routing as a stable sort says, on one emulated GPU."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from lowering.device import own_rows, routing
from lowering.steps.routing import blocks
from tilelink.emulator import World
from tilelink.ir.routed import Routed
from tilelink.schedule.tables import sorted_rows as by_definition

Tables = dict[str, torch.Tensor]


def sorted_rows(ids: torch.Tensor, experts: int, height: int, seed: int, none: bool, chunk: int) -> Tables:
    """What the launches write."""
    tokens, choices = ids.shape
    routed = Routed("r", "ids", tokens, choices, experts)
    most, bins = routed.most_tiles(height), routed.bins
    programs = -(-routed.rows // chunk)
    shapes = {"counts": programs * bins, "wrong": 1, "rows": most * height, "tokens": most * height}
    shapes |= {"experts": most, "here": most, "count": 1}
    tables = {name: torch.full((size,), 77, dtype=torch.int32) for name, size in shapes.items()}
    tables["wrong"].zero_()
    world = World(1, num_sms=4, seed=seed)
    main, held = world.fabrics[0].main(), list(tables.values())
    both = {"NUM_ROWS": routed.rows, "NUM_EXPERTS": experts, "ALL_EXPERTS": experts, "BINS": bins, "CHUNK": chunk}
    if programs > 1:
        main.launch(routing.count_experts, (programs,), ids, *held[:2], 0, **both)
    more = {"CHOICES": choices, "NUM_COUNTS": programs, "COUNTS_BLOCK": 2, "TILE": height}
    more |= {"MOST_TILES": most, "TILES_BLOCK": 4, "NONE": int(none)}
    main.launch(routing.place_rows, (programs + min(most, 3),), ids, *held, 0, **both, **more)
    world.run()
    return tables


def own_rows_first(
    ids: torch.Tensor, experts: int, height: int, seed: int, none: bool, chunk: int, own: range, first: int = 0
) -> dict[str, torch.Tensor]:
    """What the launches write that put rows of `own` tokens first, for `experts` from `first` on."""
    tokens, choices = ids.shape
    routed = Routed("r", "ids", tokens, choices, experts)
    most, bins, programs = routed.most_tiles(height), routed.bins, -(-routed.rows // chunk)
    shapes = {"counts": 2 * programs * bins, "wrong": 1, "rows": most * height, "tokens": most * height}
    shapes |= {"experts": most, "here": most, "count": 1, "own": 1}
    tables = {name: torch.full((size,), 77, dtype=torch.int32) for name, size in shapes.items()}
    tables["wrong"].zero_()
    world = World(1, num_sms=4, seed=seed)
    main, held, firsts = world.fabrics[0].main(), list(tables.values()), (first, own.start * choices)
    both = {"NUM_ROWS": routed.rows, "NUM_EXPERTS": experts, "ALL_EXPERTS": experts, "BINS": bins, "CHUNK": chunk}
    both["OWN_ROWS"] = len(own) * choices
    if programs > 1:
        main.launch(own_rows.count_own_experts, (programs,), ids, *held[:2], *firsts, **both)
    more = {"CHOICES": choices, "NUM_COUNTS": programs, "COUNTS_BLOCK": 2, "TILE": height}
    more |= {"MOST_TILES": most, "TILES_BLOCK": 4, "NONE": int(none)}
    main.launch(own_rows.place_own_rows, (programs + min(most, 3),), ids, *held, *firsts, **both, **more)
    world.run()
    return tables


def check_own(
    ids: torch.Tensor, experts: int, height: int, own: range, chunk: int | None = None, first: int = 0
) -> None:
    """Against the definition, and of own tiles what the law says."""
    chunk = chunk or 1 << (ids.numel() - 1).bit_length()
    for none in (True, False):
        found = own_rows_first(ids, experts, height, 0, none, chunk, own, first)
        most = len(found["here"])
        wanted = by_definition(ids.numpy(), range(first, first + experts), height, most, of_all=none, first=own)
        for name, entries in zip(("rows", "tokens", "experts", "here", "count", "own"), wanted, strict=True):
            assert all(found[name][place] == entry for place, entry in entries.items()), name
        for tile in range(int(found["own"])):
            rows = int(found["here"][tile])
            assert rows and all(
                token in own for token in found["tokens"][tile * height : tile * height + rows].tolist()
            )
        outside = (ids < -1) | (ids >= experts)
        assert found["experts"].min() >= 0 and found["experts"].max() <= experts and found["wrong"] == outside.sum()
        plain = sorted_rows(ids - first, experts, height, 0, none, chunk)
        assert found["count"] == plain["count"], "there are as many tiles"


def check(ids: torch.Tensor, experts: int, height: int, seed: int = 0, chunk: int | None = None) -> None:
    """`chunk`: ids of a program, by default of the only one."""
    chunk = chunk or 1 << (ids.numel() - 1).bit_length()
    for none in (True, False):
        check_tables(sorted_rows(ids, experts, height, seed, none, chunk), ids, experts, height, none)


def check_tables(found: Tables, ids: torch.Tensor, experts: int, height: int, none: bool) -> None:
    """`none`: rows that no expert takes have tiles, too."""
    given = ids.flatten()
    key = torch.where((given >= 0) & (given < experts), given, experts)
    order = torch.argsort(key, stable=True)
    tiles = []
    for expert in range(experts + none):
        mine = order[key[order] == expert]
        tiles += [(expert, mine[first : first + height]) for first in range(0, len(mine), height)]
    assert found["count"].item() == len(tiles)
    for number, (expert, rows) in enumerate(tiles):
        begin = number * height
        assert found["experts"][number] == expert and found["here"][number] == len(rows)
        assert found["rows"][begin : begin + len(rows)].tolist() == rows.tolist()
        assert found["tokens"][begin : begin + len(rows)].tolist() == (rows // ids.shape[1]).tolist()
    assert not found["here"][len(tiles) :].any()
    assert found["experts"].min() >= 0 and found["experts"].max() <= experts
    assert found["wrong"].item() == ((given < -1) | (given >= experts)).sum()


ROUTINGS: dict[str, Callable[[int, int, int], torch.Tensor]] = {
    "spread": lambda t, k, e: torch.randint(0, e, (t, k)),
    "some missing": lambda t, k, e: torch.randint(-1, e, (t, k)),
    "all at the first": lambda t, k, e: torch.zeros(t, k),
    "all at the last": lambda t, k, e: torch.full((t, k), e - 1),
    "none": lambda t, k, e: torch.full((t, k), -1),
    "each at every one in turn": lambda t, k, e: torch.arange(t * k).view(t, k) % e,
    "no experts at all": lambda t, k, e: torch.randint(-3, 3 * e, (t, k)),
    "far outside": lambda t, k, e: torch.full((t, k), 2**31 - 1),
}


@pytest.mark.quick(6)
@pytest.mark.parametrize("kind", ROUTINGS)
@pytest.mark.parametrize(("tokens", "choices", "experts", "height"), [(1, 1, 1, 16), (40, 3, 7, 16), (9, 32, 60, 4)])
@pytest.mark.parametrize("chunk", [None, 32])
def test_tables_are_a_stable_sort(
    kind: str, tokens: int, choices: int, experts: int, height: int, chunk: int | None
) -> None:
    torch.manual_seed(tokens)
    check(ROUTINGS[kind](tokens, choices, experts).int(), experts, height, chunk=chunk)


@pytest.mark.quick(6)
@pytest.mark.parametrize("kind", ROUTINGS)
@pytest.mark.parametrize(("tokens", "choices", "experts", "height"), [(2, 1, 1, 16), (42, 3, 3, 4), (42, 3, 3, 16)])
@pytest.mark.parametrize("chunk", [None, 32])
def test_rows_of_own_tokens_come_first(
    kind: str, tokens: int, choices: int, experts: int, height: int, chunk: int | None
) -> None:
    torch.manual_seed(tokens)
    ids = ROUTINGS[kind](tokens, choices, experts).int()
    half = tokens // 2
    check_own(ids, experts, height, range(half), chunk)
    check_own(ids, experts, height, range(half, tokens), chunk, first=-(experts // 3))


def test_all_tokens_or_none_may_be_own() -> None:
    torch.manual_seed(1)
    for own in (range(40), range(0), range(7, 8)):
        check_own(torch.randint(-1, 4, (40, 2)).int(), 4, 4, own, chunk=32)


@pytest.mark.parametrize(
    ("rows", "chunk", "programs"),
    [(1, 128, 1), (1024, 1024, 1), (1025, 512, 3), (65536, 1024, 64), (100_000, 2048, 49), (1 << 20, 2048, 512)],
)
def test_chunks_grow_before_programs_do(rows: int, chunk: int, programs: int) -> None:
    routed = Routed("r", "ids", rows, 1, 5)
    assert (routed.chunk, routed.programs) == (chunk, programs)


@pytest.mark.parametrize("rows", [1, 130, 1025, 70_000, 1 << 20])
@pytest.mark.parametrize("experts", [1, 60, 128, 1000])
def test_blocks_are_powers_of_two_that_registers_hold(rows: int, experts: int) -> None:
    routed = Routed("r", "ids", rows, 1, experts)
    cut = blocks(routed.programs, routed.chunk, routed.bins, routed.most_tiles(16))
    for size in (routed.chunk, routed.bins, cut.warps, cut.counts, cut.tiles):
        assert size > 0 and size & (size - 1) == 0
    assert max(cut.counts, cut.tiles) * routed.bins <= 64 * 32 * cut.warps and routed.chunk <= 8 * 32 * cut.warps
    assert 0 < cut.tile_programs <= routed.most_tiles(16)


@pytest.mark.slow
def test_chunks_as_they_are_cut_for_many_ids() -> None:
    torch.manual_seed(1)
    chunk = Routed("r", "ids", 1500, 2, 5).chunk
    check(torch.randint(-2, 6, (1500, 2)).int(), 5, 16, chunk=chunk)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_routings(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tokens, choices, experts = rng.randrange(1, 200), rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 8, 33, 100])
    kind = rng.choice(sorted(ROUTINGS))
    check(
        ROUTINGS[kind](tokens, choices, experts).int(),
        experts,
        rng.choice([16, 32, 64]),
        seed,
        rng.choice([None, 16, 64]),
    )
    first, last = sorted(rng.choices(range(tokens + 1), k=2))
    height, chunk = rng.choice([4, 16, 32]), rng.choice([None, 16, 64])
    check_own(ROUTINGS[kind](tokens, choices, experts).int(), experts, height, range(first, last), chunk)
