"""Emitted kernels over two levels on emulated ranks, where programs of their own carry out puts, and are late as they like."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proof.happens_before.test_flights import BUGS, planted
from tests.schedule.judged import emulated, judged, printed_module
from tests.schedule.network_operators import OPERATORS
from tests.schedule.operators import Operator
from tests.schedule.test_interpreter import differs
from tilelink.mutation.nodes import mutants
from tilelink.mutation.runner import drawn
from tilelink.proof.happens_before.check import checked
from tilelink.proof.happens_before.flights import FLIGHTS, with_flights
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


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("transport", ["NVSHMEM put_signal", "NVSHMEM put_signal_nbi", "GIN put, strong signal"])
def test_mutants_that_are_proved_run_right(name: str, transport: str) -> None:
    """Whatever one change makes of the steps: what the proof accepts, and late puts give the right values, has no race either."""
    operator = OPERATORS[name](2, 2, TRANSPORTS[transport])
    proved, refuted = 0, 0
    for mutant in drawn(tuple(mutants(operator.schedule)), 60, seed=len(name) + len(transport)):
        if checked(mutant.schedule).refutation is not None:
            refuted += 1
            continue
        flights = replace(operator, schedule=with_flights(mutant.schedule))
        outcome = _judged(flights)
        proved += outcome == "right"
        assert outcome in ("right", "not run"), f"{mutant.operator} {mutant.site}: {outcome}"
    assert proved > 3 and refuted > 20


def _judged(flights: Operator) -> str:
    """How what carries out puts runs, if the values are right whenever puts land."""
    try:
        if any(differs(flights, flights.schedule, 2, seed, FLIGHTS) for seed in range(2)):
            return "not run"
        return judged(flights, range(5), SMS)
    except Exception:  # another shape than that of the inputs, or no text
        return "not run"
