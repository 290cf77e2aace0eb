"""Specs with experts: what they mean, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tilelink
from tests.pipeline.expert_specs import SPECS, E, F, H, K, T, by_definition
from tilelink import Partial, Shard, Tensor
from tilelink.errors import (
    BadRouting,
    BadShape,
    IllegalSize,
    IntegerOperand,
    MixedDtypes,
    NotATensor,
    NotDivisible,
    RoutedPlacement,
    TileLinkError,
    UnknownDtype,
)
from tilelink.ir.placement import share
from tilelink.ir.routed import Routed
from tilelink.ir.spec import BoundSpec, bind
from tilelink.runtime.meaning import evaluate

SIZES = {"T": 12, "H": 8, "F": 20, "E": 6, "K": 3}


def bound(name: str, sizes: dict[str, int] | None = None, dtype: str = "bf16") -> BoundSpec:
    given = {size: number for size, number in SIZES.items() if size in SPECS[name].spec.symbols()}
    return bind(SPECS[name].spec, given | (sizes or {}), 2, dtype)


def drawn(spec: BoundSpec, seed: int) -> dict[str, torch.Tensor]:
    """Whole inputs; ids of all kinds, also such as are none."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for value in spec.inputs:
        if value.dtype == "int32":
            found[value.name] = torch.randint(-2, SIZES["E"] + 2, value.shape, generator=generator)
        else:
            found[value.name] = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    return found


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("seed", range(3))
def test_a_spec_means_what_its_definition_says(name: str, seed: int) -> None:
    spec = bound(name)
    inputs = drawn(spec, seed)
    found = evaluate(spec, inputs)[spec.outputs[0]]
    assert torch.allclose(found, by_definition(name, list(inputs.values()), SIZES["E"]), rtol=1e-12, atol=1e-12)


def test_rows_without_an_expert_do_not_count_whatever_they_hold() -> None:
    spec = bound("moe_rs")
    inputs = drawn(spec, 0)
    inputs["ids"][2, 1] = -1
    inputs["weights"][2, 1] = torch.nan
    assert not evaluate(spec, inputs)[spec.outputs[0]][2].isnan().any()


def test_placements_follow_those_of_the_weights() -> None:
    layer = bound("moe_layer")
    placements = {node.output.name: str(node.output.placement) for node in layer.nodes}
    assert "Partial()" in placements.values()
    assert layer.value("h").placement == Shard(1) and layer.value("h").shape == (36, 20)
    assert layer.value("routing").dtype == "int32"


@pytest.mark.parametrize(
    ("rows", "experts", "height"), [(1, 1, 16), (7, 8, 16), (100, 8, 16), (4096, 60, 128), (9, 8, 2)]
)
def test_no_routing_has_more_tiles_than_are_allowed_for(rows: int, experts: int, height: int) -> None:
    """Groups of one row more than a multiple of the height are the worst: all but one of them, as far as rows go."""
    groups, left, tiles = experts + 1, rows, 0
    for group in range(groups):
        mine = min(left, 1) if group < groups - 1 else left
        left -= mine
        tiles += -(-mine // height)
    assert Routed("r", "ids", rows, 1, experts).most_tiles(height) >= tiles
    assert Routed("r", "ids", rows, 1, experts).most_tiles(height) <= min(rows, rows // height + groups)


def _spec(body: Callable[..., object], inputs: dict[str, Tensor]) -> None:
    """Traces a function of these inputs."""
    names = ", ".join(inputs)
    scope: dict[str, object] = {"body": body}
    exec(f"def function({names}): return body({names})", scope)
    traced = scope["function"]
    traced.__annotations__ = dict(inputs)
    tilelink.overlap(traced)  # type: ignore[arg-type]


X, IDS, W = Tensor(T, H), Tensor(T, K, dtype="int32"), Tensor(E, H, F)
TOKENS, OWN_IDS = Tensor(T, H, placement=Shard(0)), Tensor(T, K, dtype="int32", placement=Shard(0))
OWN_WEIGHTS = Tensor(T, K, dtype="fp32", placement=Shard(0))


ROUTED: dict[str, tuple[type[TileLinkError], Callable[..., object], dict[str, Tensor]]] = {
    "ids of the dtype of plan": (BadRouting, lambda ids: tilelink.route(ids, E), {"ids": Tensor(T, K)}),
    "ids that are cut": (
        RoutedPlacement,
        lambda ids: tilelink.route(ids, E),
        {"ids": Tensor(T, K, dtype="int32", placement=Shard(1))},
    ),
    "ids of one dimension": (BadShape, lambda ids: tilelink.route(ids, E), {"ids": Tensor(T, dtype="int32")}),
    "rows of another placement than ids": (
        RoutedPlacement,
        lambda x, ids: tilelink.dispatch(x, tilelink.route(ids, E)),
        {"x": Tensor(T, H, placement=Shard(0)), "ids": IDS},
    ),
    "rows that stay where they are, by experts of ranks": (
        RoutedPlacement,
        lambda x, w, ids: tilelink.grouped_matmul(x, w, tilelink.route(ids, E)),
        {"x": X, "w": Tensor(E, H, F, placement=Shard(0)), "ids": Tensor(T, K, dtype="int32", placement=Shard(0))},
    ),
    "rows by experts that are returned": (
        RoutedPlacement,
        lambda x, ids: tilelink.dispatch(x, tilelink.route(ids, E)),
        {"x": Tensor(T, H, placement=Shard(0)), "ids": Tensor(T, K, dtype="int32", placement=Shard(0))},
    ),
    "no routing": (BadRouting, lambda x, w, ids: tilelink.grouped_matmul(x, w, ids), {"x": X, "w": W, "ids": IDS}),
    "a matrix for all experts": (
        BadShape,
        lambda x, w, ids: tilelink.grouped_matmul(x, w, tilelink.route(ids, E)),
        {"x": X, "w": Tensor(H, F), "ids": IDS},
    ),
    "matrices of other experts": (
        BadRouting,
        lambda x, w, ids: tilelink.grouped_matmul(x, w, tilelink.route(ids, 7)),
        {"x": X, "w": W, "ids": IDS},
    ),
    "other elements": (
        BadRouting,
        lambda x, w, ids: tilelink.grouped_matmul(x, w, tilelink.route(ids, E)),
        {"x": Tensor(T, F), "w": W, "ids": IDS},
    ),
    "rows of something else": (
        BadRouting,
        lambda x, w, ids: tilelink.grouped_matmul(x, w, tilelink.route(ids, E)),
        {"x": Tensor(F, H), "w": W, "ids": IDS},
    ),
    "rows that are cut": (
        RoutedPlacement,
        lambda x, w, ids: tilelink.grouped_matmul(x, w, tilelink.route(ids, E)),
        {"x": Tensor(T, H, placement=Shard(0)), "w": W, "ids": IDS},
    ),
    "weights of rows that are cut": (
        RoutedPlacement,
        lambda h, ids, v: tilelink.combine(h, tilelink.route(ids, E), v),
        {"h": Tensor(T * K, H), "ids": IDS, "v": Tensor(T, K, placement=Shard(0))},
    ),
    "a weight a token": (
        BadRouting,
        lambda h, ids, v: tilelink.combine(h, tilelink.route(ids, E), v),
        {"h": Tensor(T * K, H), "ids": IDS, "v": Tensor(T, 1)},
    ),
    "rows of tokens": (
        BadRouting,
        lambda h, ids, v: tilelink.combine(h, tilelink.route(ids, E), v),
        {"h": Tensor(T, H), "ids": IDS, "v": Tensor(T, K)},
    ),
    "integer weights": (
        BadRouting,
        lambda h, ids: tilelink.combine(h, tilelink.route(ids, E), ids),
        {"h": Tensor(T * K, H), "ids": IDS},
    ),
    "two dtypes": (
        MixedDtypes,
        lambda x, w, ids: tilelink.grouped_matmul(x, w, tilelink.route(ids, E)),
        {"x": X, "w": Tensor(E, H, F, dtype="fp16"), "ids": IDS},
    ),
    "sums of ids": (IntegerOperand, lambda ids: ids + ids, {"ids": IDS}),
    "gathered ids": (
        IntegerOperand,
        lambda ids: tilelink.all_gather(ids, dim=0),
        {"ids": Tensor(T, K, dtype="int32", placement=Shard(0))},
    ),
    "a routing that is added to": (NotATensor, lambda x, ids: x + tilelink.route(ids, E), {"x": X, "ids": IDS}),
    "three dimensions": (BadShape, lambda w: w * 2, {"w": W}),
    "summands of ids": (
        RoutedPlacement,
        lambda ids: tilelink.route(ids, E),
        {"ids": Tensor(T, K, dtype="int32", placement=Partial())},
    ),
}


def _case(name: str) -> tuple[Callable[..., object], dict[str, Tensor]]:
    _, body, inputs = ROUTED[name]
    return body, inputs


@pytest.mark.parametrize("name", ROUTED)
def test_what_cannot_be_routed_is_refused(name: str) -> None:
    kind, body, inputs = ROUTED[name]
    with pytest.raises(kind) as caught:
        _spec(body, inputs)
    assert type(caught.value) is kind and "test_routing.py:" in str(caught.value)


def test_each_refusal_says_what_is_legal() -> None:
    with pytest.raises(BadRouting, match="Declare it with dtype"):
        _spec(*_case("ids of the dtype of plan"))
    with pytest.raises(RoutedPlacement, match="on every rank"):
        _spec(*_case("ids that are cut"))
    with pytest.raises(IntegerOperand, match="ids of tilelink"):
        _spec(*_case("sums of ids"))


@pytest.mark.parametrize(("sizes", "kind"), [({"K": 33}, BadRouting), ({"E": 0}, IllegalSize)])
def test_sizes_that_no_routing_has(sizes: dict[str, int], kind: type[TileLinkError]) -> None:
    with pytest.raises(kind):
        bound("ag_moe", sizes)


@pytest.mark.parametrize(("experts", "most"), [(1, 1), (5, 3), (6, 3)])
def test_matrices_of_experts_may_be_shared_unevenly(experts: int, most: int) -> None:
    gate = bound("ep_layer", {"E": experts}).value("gate")
    assert (gate.shape, gate.local) == ((experts, 8, 20), (most, 8, 20))


@pytest.mark.parametrize(("name", "sizes", "tensor"), [("ep_layer", {"T": 13}, "x"), ("ag_moe", {"F": 21}, "w")])
def test_nothing_else_may_be(name: str, sizes: dict[str, int], tensor: str) -> None:
    """Neither rows, nor matrices that are cut themselves."""
    with pytest.raises(NotDivisible) as caught:
        bound(name, sizes | {"E": 5})
    assert caught.value.facts["tensor"] == tensor


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_share_as_torch_does(size: int, ranks: int) -> None:
    parts = [part.tolist() for part in torch.arange(size).chunk(ranks)]
    parts += [[] for _ in range(ranks - len(parts))]
    assert [list(share(size, ranks, rank)) for rank in range(ranks)] == parts


def test_nothing_is_computed_in_integers() -> None:
    with pytest.raises(UnknownDtype):
        bound("ag_moe", dtype="int32")


@pytest.mark.parametrize(
    ("rows", "experts", "height", "ranks"), [(8192, 8, 128, 2), (16384, 16, 64, 4), (1000, 8, 128, 2)]
)
def test_likely_own_tiles_are_those_of_drawn_routings(rows: int, experts: int, height: int, ranks: int) -> None:
    """Tiles of the tokens of one rank alone, of experts that have other tokens, too."""
    drawn = torch.Generator().manual_seed(1)
    own = torch.stack(
        [
            torch.bincount(torch.randint(experts, (rows // ranks,), generator=drawn), minlength=experts)
            for _ in range(200)
        ]
    )
    routed = Routed("r", "ids", rows, 1, experts)
    found = (own // height).sum(1).double().mean().item()
    assert abs(routed.likely_own_tiles(height, ranks) - found) <= max(1, 0.1 * found)
    assert abs(routed.likely_apart(height, ranks) - (own >= height).double().mean().item()) < 0.1


@pytest.mark.parametrize(
    ("rows", "experts", "height", "ranks"),
    [(128, 128, 16, 2), (16, 128, 16, 2), (128, 64, 128, 8), (2048, 128, 16, 2), (8192, 8, 128, 2), (1024, 8, 64, 1)],
)
def test_likely_tiles_are_those_of_the_busiest_rank_in_three_calls_of_four(
    rows: int, experts: int, height: int, ranks: int
) -> None:
    drawn = torch.Generator().manual_seed(1)
    counts = torch.stack(
        [torch.bincount(torch.randint(experts, (rows,), generator=drawn), minlength=experts) for _ in range(600)]
    ).view(600, ranks, -1)
    routed = Routed("r", "ids", rows, 1, experts // ranks, ranks)

    def close(found: float, drawn_of_ranks: torch.Tensor) -> bool:
        wanted = drawn_of_ranks.sum(2).max(1).values.double().quantile(0.75).item()
        return abs(found - wanted) <= max(1.0, 0.04 * wanted)

    assert close(routed.likely_tiles(height), -(-counts // height))
    assert close(routed.likely_rows, counts)
    assert close(routed.likely_share * experts / ranks, (counts > 0).long())
