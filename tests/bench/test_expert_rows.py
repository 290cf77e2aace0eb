"""Rows of operators with experts: names, sizes, routings, and what must move."""

from __future__ import annotations

import pytest

from tilelink.bench.errors import (
    MoreChoicesThanExperts,
    RoutingWithoutExperts,
    RowNotDivisible,
    UnknownExpertRow,
    UnknownRouting,
)
from tilelink.bench.ledger import expert_facts
from tilelink.bench.problem import input_shapes
from tilelink.bench.routings import DRAWINGS, Routing, parse_routings
from tilelink.bench.rows import WITH_EXPERTS, Operator, Row, select

AG_MOE, MOE_RS, EP_LAYER = WITH_EXPERTS


def one(operator: Operator, name: str, routing: Routing = Routing.UNIFORM, ranks: int = 4) -> Row:
    (row,) = select([operator], [name], "bf16", ranks, [routing])
    return row


def test_models_and_sizes() -> None:
    model = one(EP_LAYER, "qwen3-30b-a3b-m512")
    assert model.sizes == {"T": 512, "H": 2048, "F": 768, "E": 128, "K": 8}
    assert one(EP_LAYER, "512x2048x768x128x8").sizes == model.sizes
    assert one(AG_MOE, "mixtral-8x7b").sizes == {"T": 8192, "H": 4096, "F": 14336, "E": 8, "K": 2}
    assert one(MOE_RS, "qwen1.5-moe-m8192").name == "qwen1.5-moe"


def test_a_row_comes_with_each_routing_that_is_named() -> None:
    rows = select([AG_MOE, Operator.MLP], ["quick"], "bf16", 2, parse_routings(["zipf, hot4", "zipf"]))
    assert [row.key for row in rows] == [
        "ag_moe qwen3-30b-a3b-m256 zipf bf16",
        "ag_moe qwen3-30b-a3b-m256 hot4 bf16",
        "mlp llama3-8b bf16",
    ]
    assert len({row.planned_as for row in rows}) == 2
    assert [row.routed.routing for row in select([AG_MOE], ["quick"], "bf16", 2)] == [Routing.UNIFORM]


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_share_the_default_rows(ranks: int) -> None:
    rows = select(WITH_EXPERTS, [], "bf16", ranks)
    assert len(rows) == 14
    assert len(select([EP_LAYER], ["mixtral-8x7b-sweep"], "bf16", ranks)) == 11


def test_flops_of_the_mean_rank() -> None:
    assert one(AG_MOE, "512x64x32x16x2").flops(4) == 2 * 512 * 2 * 64 * 32 / 4
    assert one(EP_LAYER, "512x64x32x16x2").flops(4) == 3 * one(MOE_RS, "512x64x32x16x2").flops(4)


@pytest.mark.parametrize("routing", Routing, ids=lambda routing: routing.value)
def test_bytes_into_the_busiest_rank_by_definition(routing: Routing) -> None:
    """A token's row goes once to each other rank that has one of its experts, and a sum comes back from there."""
    row, ranks = one(EP_LAYER, "32x64x32x16x3", routing), 4
    assert one(AG_MOE, "32x64x32x16x3").bytes_in(ranks) == 24 * 64 * 2
    found = []
    for number in range(DRAWINGS):
        into = [0] * ranks
        for home in range(ranks):
            for token in row.ids(number, home, ranks).tolist():
                for other in {expert // 4 for expert in token} - {home}:
                    into[other] += 1
                    into[home] += 1
        found.append(max(into))
    assert row.bytes_in(ranks) == min(found) * 64 * 2


def test_results_tell_the_busiest_of_all_drawings() -> None:
    row, ranks = one(EP_LAYER, "64x64x32x16x2", Routing.HOT7), 4
    counts = [[0] * 16 for _ in range(DRAWINGS)]
    for number in range(DRAWINGS):
        for home in range(ranks):
            for token in row.ids(number, home, ranks).tolist():
                for expert in token:
                    counts[number][expert] += 1
    facts = expert_facts(row, ranks)
    assert facts is not None
    assert facts.busiest_expert_rows == max(max(each) for each in counts)
    assert facts.busiest_rank_share == pytest.approx(max(sum(each[:4]) for each in counts) / 128, abs=1e-4)
    assert (facts.experts, facts.choices, facts.routing) == (16, 2, "hot7")


def test_hot_experts_make_their_rank_the_busiest() -> None:
    """16 of 128 experts are hot, all on the first of 4 ranks, which has 16 others: with hot7 it gets (16 * 7 + 16) of
    (16 * 7 + 112) assignments, if a token has one expert."""
    shares = {routing: one(EP_LAYER, "4096x64x32x128x1", routing).busiest(4).rank_share for routing in Routing}
    assert shares[Routing.HOT7] == pytest.approx(128 / 224, abs=0.03)
    assert shares[Routing.HOT4] == pytest.approx(80 / 176, abs=0.03)
    assert shares[Routing.UNIFORM] == pytest.approx(0.25, abs=0.03)
    assert shares[Routing.UNIFORM] < shares[Routing.ZIPF]


def test_inputs_of_ranks() -> None:
    assert input_shapes(one(AG_MOE, "32x64x48x8x2"), 4) == [(8, 64), (32, 2), (8, 64, 12)]
    assert input_shapes(one(MOE_RS, "32x64x48x8x2"), 4) == [(64, 12), (32, 2), (32, 2), (8, 12, 64)]
    experts = [(2, 64, 48), (2, 64, 48), (2, 48, 64)]
    assert input_shapes(one(EP_LAYER, "32x64x48x8x2"), 4) == [(8, 64), (8, 2), (8, 2), *experts]


@pytest.mark.parametrize("name", ["llama3-8b", "512x64x32", "512x64x32x8x0", "quen3-30b-a3b", "mixtral-8x7b-kmajor"])
def test_unknown_rows(name: str) -> None:
    with pytest.raises(UnknownExpertRow) as caught:
        one(EP_LAYER, name)
    assert caught.value.facts["name"] == name
    assert "qwen3-30b-a3b" in str(caught.value)


def test_rows_that_cannot_be() -> None:
    for operator, name, what in (
        (AG_MOE, "30x64x32x8x2", "tokens = 30"),
        (MOE_RS, "32x64x30x8x2", "width of an expert = 30"),
        (EP_LAYER, "32x64x32x6x2", "experts = 6"),
    ):
        with pytest.raises(RowNotDivisible) as caught:
            one(operator, name)
        assert caught.value.facts["what"] == what
    with pytest.raises(MoreChoicesThanExperts) as many:
        one(AG_MOE, "32x64x32x8x9")
    assert (many.value.facts["choices"], many.value.facts["experts"]) == (9, 8)


def test_routings_that_cannot_be() -> None:
    with pytest.raises(UnknownRouting) as unknown:
        parse_routings(["uniform,zipff"])
    assert "Did you mean 'zipf'?" in str(unknown.value)
    with pytest.raises(RoutingWithoutExperts) as without:
        select([Operator.MLP], [], "bf16", 2, [Routing.ZIPF])
    assert without.value.facts == {
        "routing": "zipf",
        "operators": "mlp",
        "legal": "ag_moe, moe_rs, ep_layer",
    }
