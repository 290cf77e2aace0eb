"""Limits of a call: of flops, of the link, of memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilelink.planner.library_cost import library_matmul
from tilelink.report.facts import Facts


def test_of_a_gather_and_a_matmul(facts: Callable[[str], Facts]) -> None:
    of = facts("ag_gemm")
    limits, ranks = of.limits, of.schedule.num_ranks
    m, k, n = 8192, 4096, 14336
    assert limits.flops == 2 * m * k * n / ranks
    assert limits.peak_us == pytest.approx(limits.flops / of.topology.gpu.tflops("bf16") / 1e6)
    assert limits.alone_us == library_matmul(of.topology, m, n // ranks, k, "bf16").total_us
    assert limits.bytes_in == 2 * m * k * (ranks - 1) / ranks == dict(limits.sent)["x_full"]
    assert limits.links_us == pytest.approx(limits.bytes_in / of.topology.slowest_link_gb_per_s / 1e3)
    assert limits.least_us == max(limits.alone_us, limits.links_us)
    assert limits.memory_bytes == 2 * (m * k // ranks + k * n // ranks + m * n // ranks)


def test_without_a_matmul(facts: Callable[[str], Facts]) -> None:
    limits = facts("gather").limits
    assert limits.flops == limits.alone_us == 0 and limits.least_us == limits.links_us > 0


@pytest.mark.slow
def test_what_the_library_does_not_compute(facts: Callable[[str], Facts]) -> None:
    limits = facts("experts").limits
    assert not limits.by_library and limits.alone_us >= limits.memory_us > 0
    assert facts("attention").limits.by_library and facts("attention").limits.work == "attention"


@pytest.mark.slow
def test_over_nodes_each_level_has_its_time(facts: Callable[[str], Facts]) -> None:
    levels = {level.level for level in facts("nodes").limits.levels}
    assert levels == {level.name for level in facts("nodes").topology.levels}
