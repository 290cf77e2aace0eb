"""Drawn routings: experts of a token differ, and are as likely as their skew says."""

from __future__ import annotations

import pytest
import torch

from lab.routings import SKEWS, busiest, drawn, likelihoods


@pytest.mark.parametrize("skew", SKEWS)
def test_experts_of_a_token_differ(skew: str) -> None:
    ids = drawn(skew, 300, 16, 4, seed=1)
    assert ids.dtype == torch.int32
    assert all(len(set(token)) == 4 and set(token) <= set(range(16)) for token in ids.tolist())
    assert torch.equal(ids, drawn(skew, 300, 16, 4, seed=1))
    assert not torch.equal(ids, drawn(skew, 300, 16, 4, seed=2))


@pytest.mark.parametrize("skew", SKEWS)
def test_experts_are_as_likely_as_the_skew_says(skew: str) -> None:
    wanted = likelihoods(skew, 16)
    found = drawn(skew, 20_000, 16, 1, seed=3).flatten().bincount(minlength=16) / 20_000
    torch.testing.assert_close(found, wanted / wanted.sum(), atol=0.01, rtol=0)


def test_hot_experts_are_an_eighth_of_all_and_at_least_one() -> None:
    assert likelihoods("hot4", 16).tolist() == [4.0] * 2 + [1.0] * 14
    assert likelihoods("hot7", 5).tolist() == [7.0] + [1.0] * 4
    with pytest.raises(ValueError, match="no skew"):
        likelihoods("cold", 8)


def test_the_busiest() -> None:
    counts = torch.tensor([1, 2, 6, 1])
    assert busiest(counts, 2, of_ranks=True) == (0.7, 6)
    assert busiest(counts, 2, of_ranks=False) == (0.5, 6)
