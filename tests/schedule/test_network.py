"""Emitted kernels over two levels on emulated ranks, where programs of their own carry out puts, and are late as they like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proof.happens_before.test_flights import BUGS, planted
from tests.schedule.judged import emulated, judged, printed_module
from tests.schedule.network_operators import OPERATORS
from tilelink.proof.happens_before.flights import with_flights
from tilelink.schedule.network import TRANSPORTS

SMS = 24  # room for the programs that carry out puts
# what a value, a race or a program that never ends shows in a few runs; the others are found by the proof alone
SHOWN = {
    "no fence between data and signal": "race",
    "one signal for two puts": "race",
    "a weak signal trusted for an earlier put": "race",
    "the wrong rail": "race",
    "a source that is used again early": "race",
    "a landing place used a call early": "race",
    "an order of nodes in which they wait for each other": "deadlock",
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.quick(1)
def test_whenever_puts_land_the_results_are_right(name: str, transport: str) -> None:
    operator = OPERATORS[name](2, 2, TRANSPORTS[transport])
    assert judged(replace(operator, schedule=with_flights(operator.schedule)), range(6), SMS) == "right"


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("mesh", [(2, 2), (3, 2), (2, 3), (4, 2)], ids=str)
def test_as_stores_between_nodes_that_are_none(name: str, mesh: tuple[int, int]) -> None:
    operator = OPERATORS[name](*mesh, TRANSPORTS["NVSHMEM put_signal_nbi"])
    module = printed_module(operator.schedule)
    assert not any(emulated(operator, module, seed) for seed in (0, 1, 5, 7))


@pytest.mark.parametrize("bug", SHOWN)
@pytest.mark.quick(2)
def test_mistakes_show_on_emulated_ranks(bug: str) -> None:
    operator, changed = planted(bug)
    assert bug in BUGS
    assert judged(replace(operator, schedule=with_flights(changed)), range(12), SMS) == SHOWN[bug]
