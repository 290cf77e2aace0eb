"""Medians, percentiles, the slowest rank, geometric means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelink.measuring.samples import geomean, max_over_ranks, percentile, spread

TIMES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=30)


def test_percentiles_lie_between_order_statistics() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([0.0, 10.0], 10) == 1.0
    assert percentile([7.0], 90) == 7.0
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


@given(TIMES, st.floats(0, 100), st.floats(0, 100))
def test_percentiles_grow_and_stay_inside(samples: list[float], a: float, b: float) -> None:
    low, high = sorted((a, b))
    slack = 1e-9 * max(samples)
    assert min(samples) <= percentile(samples, low) <= percentile(samples, high) + slack <= max(samples) + 2 * slack


def test_a_round_with_many_samples_counts_once() -> None:
    found = spread([[1.0], [2.0], [9.0] * 50])
    assert found.median_us == 2.0
    assert found.p90_us == 9.0


def test_the_slowest_rank_of_each_sample() -> None:
    assert max_over_ranks([[[1.0, 5.0], [3.0]], [[2.0, 4.0], [1.0]]]) == [[2.0, 5.0], [3.0]]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        max_over_ranks([[[1.0, 2.0]], [[1.0]]])


def test_geometric_mean() -> None:
    assert geomean([2.0, 8.0]) == pytest.approx(4.0)
    assert geomean([]) is None
