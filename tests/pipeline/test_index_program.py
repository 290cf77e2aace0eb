"""The index program: tables of a routing as a stable sort says, on one emulated GPU."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from lowering.device import routing
from tilelink.emulator import World
from tilelink.ir.routed import Routed

Tables = dict[str, torch.Tensor]


def sorted_rows(ids: torch.Tensor, experts: int, height: int, seed: int, none: bool, block: int = 32) -> Tables:
    """What the two launches write."""
    tokens, choices = ids.shape
    routed = Routed("r", "ids", tokens, choices, experts)
    most, programs, bins = routed.most_tiles(height), routed.programs, routed.bins
    shapes = {"counts": programs * bins, "wrong": 1, "rows": most * height, "tokens": most * height}
    shapes |= {"experts": most, "here": most, "count": 1}
    tables = {name: torch.full((size,), 77, dtype=torch.int32) for name, size in shapes.items()}
    tables["wrong"].zero_()
    world = World(1, num_sms=4, seed=seed)
    main, held = world.fabrics[0].main(), list(tables.values())
    both = {"NUM_ROWS": routed.rows, "NUM_EXPERTS": experts, "BINS": bins, "CHUNK": routed.chunk, "BLOCK": block}
    main.launch(routing.count_experts, (programs,), ids, *held[:2], 0, ALL_EXPERTS=experts, **both)
    more = {"CHOICES": choices, "NUM_COUNTS": programs, "COUNTS_BLOCK": 2, "TILE": height}
    more |= {"MOST_TILES": most, "TILES_BLOCK": 4, "NONE": int(none)}
    main.launch(routing.place_rows, (programs,), ids, held[0], *held[2:], 0, **both, **more)
    world.run()
    return tables


def check(ids: torch.Tensor, experts: int, height: int, seed: int = 0) -> None:
    for none in (True, False):
        check_tables(sorted_rows(ids, experts, height, seed, none), ids, experts, height, none)


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
def test_tables_are_a_stable_sort(kind: str, tokens: int, choices: int, experts: int, height: int) -> None:
    torch.manual_seed(tokens)
    check(ROUTINGS[kind](tokens, choices, experts).int(), experts, height)


def test_several_programs_count_and_place() -> None:
    torch.manual_seed(1)
    assert Routed("r", "ids", 300, 2, 5).programs == 5
    check(torch.randint(-1, 5, (300, 2)).int(), 5, 16)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_routings(seed: int) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tokens, choices, experts = rng.randrange(1, 200), rng.choice([1, 2, 4, 8]), rng.choice([1, 2, 8, 33, 100])
    kind = rng.choice(sorted(ROUTINGS))
    check(ROUTINGS[kind](tokens, choices, experts).int(), experts, rng.choice([16, 32, 64]), seed)
