"""Counts of raises and waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilelink.ir.nodes import Kernel
from tilelink.report.facts import Facts
from tilelink.report.signals import words_of


def test_of_a_gather_chunks_are_raised_and_tiles_of_peers_wait(facts: Callable[[str], Facts]) -> None:
    of = facts("ag_gemm")
    exchange = of.schedule.exchange("x_full")
    (kernel,) = (one for one in of.schedule.launches if isinstance(one, Kernel))
    assert kernel.compute is not None
    ranks, tiles = of.schedule.num_ranks, kernel.compute.num_tiles
    counts = {(use.signal, use.raises): use.count for use in of.uses}
    assert counts["x_full_arrived", True] == (ranks - 1) * exchange.chunks
    assert counts["x_full_arrived", False] == tiles * (ranks - 1) // ranks
    assert counts["done", True] == ranks - 1
    (arrived,) = (signal for signal in of.steps.signals if signal.name == "x_full_arrived")
    assert words_of(of.steps, arrived) == ranks * exchange.chunks


def test_the_last_of_many_tiles_raises_for_all(facts: Callable[[str], Facts]) -> None:
    counts = {(use.signal, use.raises): use.count for use in facts("gemm_rs").uses}
    assert counts["y_parts_arrived", True] == 1  # 1,024 tiles count, the last one tells the peer
    assert counts["y_parts_arrived", False] == 1024  # own tiles
    assert counts["done", False] == 132  # every program, in a call behind the first


@pytest.mark.slow
def test_every_signal_has_both_ends(facts: Callable[[str], Facts]) -> None:
    for name in ("ag_gemm", "gemm_rs", "mlp", "gather", "attention"):
        of = facts(name)
        for signal in of.steps.signals:
            kinds = {use.raises for use in of.uses if use.signal == signal.name}
            assert kinds == {True, False}, (name, signal.name)
