"""Drawn routings: experts of a token differ, and are as likely as their routing says."""

from __future__ import annotations

import pytest
import torch

from tilelink.bench.routings import Routing, busiest, drawn, likelihoods


@pytest.mark.parametrize("routing", Routing, ids=lambda one: one.value)
def test_experts_of_a_token_differ(routing: Routing) -> None:
    ids = drawn(routing, 300, 16, 4, seed=1)
    assert ids.dtype == torch.int32
    assert all(len(set(token)) == 4 and set(token) <= set(range(16)) for token in ids.tolist())
    assert torch.equal(ids, drawn(routing, 300, 16, 4, seed=1))
    assert not torch.equal(ids, drawn(routing, 300, 16, 4, seed=2))


@pytest.mark.parametrize("routing", Routing, ids=lambda one: one.value)
def test_experts_are_as_likely_as_the_routing_says(routing: Routing) -> None:
    wanted = likelihoods(routing, 16)
    found = drawn(routing, 20_000, 16, 1, seed=3).flatten().bincount(minlength=16) / 20_000
    torch.testing.assert_close(found, wanted / wanted.sum(), atol=0.01, rtol=0)


def test_hot_experts_are_an_eighth_of_all_and_at_least_one() -> None:
    assert likelihoods(Routing.HOT4, 16).tolist() == [4.0] * 2 + [1.0] * 14
    assert likelihoods(Routing.HOT7, 5).tolist() == [7.0] + [1.0] * 4


def test_the_busiest() -> None:
    counts = torch.tensor([1, 2, 6, 1])
    assert busiest(counts, 2, of_ranks=True) == (0.7, 6)
    assert busiest(counts, 2, of_ranks=False) == (0.5, 6)
