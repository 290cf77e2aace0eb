"""The fused loop over experts under Triton's interpreter, next to its definition. A process of its own runs this file."""

from __future__ import annotations

import torch

from tilelink.bench.fused_experts import Index, Tile, indexed, products, token_sums

T, K, E, H, F = 13, 3, 5, 32, 48
_TILES = (
    Tile(16, 16, 16, 4, 2),
    Tile(16, 32, 32, 4, 2),
    Tile(16, 32, 64, 4, 2),
    Tile(32, 64, 16, 4, 2, described=True, group=2),
    Tile(16, 32, 64, 4, 2, described=True),
)


def routings() -> dict[str, torch.Tensor]:
    """Ids of experts, of which -1 and such that are too large are none."""
    drawn = torch.randint(0, E, (T, K), generator=torch.Generator().manual_seed(1))
    some, empty = drawn.clone(), drawn.clone()
    some[::3, 1], some[1::4, 0] = -1, E + 2
    empty[empty == 2] = 4
    one = torch.full((T, K), 3)
    many = torch.randint(-1, E, (431, K), generator=torch.Generator().manual_seed(2))
    found = {"duplicates": drawn, "no experts": some, "an empty expert": empty, "one expert": one}
    found |= {"nothing": torch.full((T, K), -1), "one token": drawn[:1], "several parts": many}
    return {name: ids.int() for name, ids in found.items()}


def check_index(ids: torch.Tensor, first: int, experts: int, tile_rows: int) -> Index:
    """Assignments in the order of experts, and tiles that end with their expert."""
    flat = ids.flatten().tolist()
    index = indexed(ids, first, experts, tile_rows)
    here = sorted((one - first, a) for a, one in enumerate(flat) if first <= one < first + experts)
    assert index.order[: len(here)].tolist() == [a for _, a in here]
    wanted = []
    for expert in range(experts):
        places = [place for place, (one, _) in enumerate(here) if one == expert]
        wanted += [(expert, place, places[-1] + 1) for place in places[::tile_rows]]
    number = int(index.number)
    assert number <= index.most_tiles
    assert list(zip(*index.table[:, :number].tolist(), strict=True)) == wanted
    return index


def check(ids: torch.Tensor, first: int, experts: int, tile: Tile, dtype: torch.dtype = torch.float32) -> None:
    tokens, generator = len(ids), torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    def near(found: torch.Tensor, wanted: torch.Tensor) -> None:
        error = 1e-3 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(found.float(), wanted, atol=error * float(wanted.abs().max()), rtol=error)

    x, gate, up = (drawn(*shape).to(dtype) for shape in ((tokens, H), (experts, H, F), (experts, H, F)))
    down, weights = drawn(experts, F, H).to(dtype), drawn(tokens, K)
    index = check_index(ids, first, experts, tile.rows)
    local = ids.flatten() - first
    here = (local >= 0) & (local < experts)

    def by_definition(rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.stack(
            [row.float() @ w[int(one)].float() for row, one in zip(rows[here], local[here], strict=True)]
        )

    h = products(x, gate, index, tile, up=up)
    y = products(h, down, index, tile)
    if here.any():
        rows = x.repeat_interleave(K, 0)
        g = by_definition(rows, gate)
        near(products(x, gate, index, tile)[here], g)
        near(h[here], torch.nn.functional.silu(g) * by_definition(rows, up))
        wanted = by_definition(h, down)
        near(y[here], wanted)
        near(products(h, down, index, tile, weights=weights)[here], wanted * weights.flatten()[here, None])
    y[~here] = 0
    sums = (y.view(tokens, K, H).float() * weights[:, :, None]).sum(1)
    y[~here] = torch.nan  # what no program has written may be anything
    found = token_sums(y, ids, weights, first, experts).float()
    if here.any():
        near(found, sums)
    else:
        assert not found.any()


def main() -> None:
    for number, (name, ids) in enumerate(routings().items()):
        check(ids, 0, E, _TILES[number % len(_TILES)])
        check(ids, 2, 2, _TILES[(number + 2) % len(_TILES)])
        print(name, "is right", flush=True)
    for tile in _TILES:
        check(routings()["no experts"], 1, 3, tile, torch.float16)  # the interpreter cannot multiply bf16
    wide = torch.randint(-1, 250, (3000, 3), generator=torch.Generator().manual_seed(4)).int()
    check_index(wide, 3, 240, 16)  # where a program of the index has several chunks
    print("all")


if __name__ == "__main__":
    main()
