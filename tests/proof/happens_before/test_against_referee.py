"""The fast proof and the slow referee, written from the definition, agree on mutants; so do symmetry and enumeration."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.happens_before.referee import refutes
from tests.proof.happens_before.small import NAMES, Tables, pipelined, small
from tests.schedule.mutants import mutants, mutated
from tilelink.proof.happens_before.check import check, ordered
from tilelink.schedule.roles import PingPong, Prefetch, Schedule


def agree(name: str, schedule: Schedule, tables: Tables) -> bool:
    """Whether it is proved. Raises AssertionError if the three do not agree."""
    slow = refutes(schedule, tables, 3)
    # of moves between boxes of different shapes, which are refuted by their looks, order says nothing to the referee either
    fast = ordered(schedule, tables, 3).refutation
    every = ordered(schedule, tables, 3, symmetric=False).refutation
    assert bool(slow) == (fast is not None) == (every is not None), f"{name}: {slow} | {fast} | {every}"
    return not slow


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", NAMES)
def test_some_mutants_of_each_operator(name: str) -> None:
    schedule, tables = small(name)
    found = random.Random(name).sample(list(mutants(schedule)), 6)
    assert agree("itself", schedule, tables)
    for what, mutant in found:
        agree(what, mutant, tables)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_mutants_of_each_operator(name: str) -> None:
    schedule, tables = small(name)
    found = list(mutants(schedule))
    random.Random(name).shuffle(found)
    proved = [agree(what, mutant, tables) for what, mutant in found[: 40 if name == "moe_grouped" else 80]]
    assert 0.05 < sum(proved) / len(proved) < 0.6  # of other names, extents, rounds of loops over inputs, ...


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from([one for one in NAMES if one != "moe_grouped"]),
    st.integers(2, 3),
    st.integers(0, 10**6),
    st.integers(2, 3),
)
def test_random_changes(name: str, size: int, seed: int, changes: int) -> None:
    schedule, tables = small(name, size)
    what, mutant = mutated(schedule, random.Random(seed), changes)
    agree(what, mutant, tables)


@pytest.mark.slow
@settings(max_examples=500)
@given(st.sampled_from([one for one in NAMES if one != "moe_grouped"]), st.integers(0, 10**6), st.integers(1, 3))
def test_what_is_proved_for_any_number_of_calls_holds_in_seven(name: str, seed: int, changes: int) -> None:
    schedule, tables = small(name, 2)
    what, mutant = mutated(schedule, random.Random(seed), changes)
    if check(mutant, tables) is None:
        assert check(mutant, tables, 7) is None, what


@pytest.mark.quick(3)
@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_prefetched_phases(name: str, defer: bool) -> None:
    schedule, tables = small(name, 2)
    for one in pipelined(schedule, Prefetch(defer)):
        agree("prefetched", one, tables)
        for what, mutant in random.Random(name).sample(list(mutants(one)), 2):
            agree(what, mutant, tables)


@pytest.mark.quick(3)
@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_proved_in_ping_pong_holds_with_any_number_of_places(name: str, places: int) -> None:
    schedule, tables = small(name, 2)
    for one in pipelined(schedule, PingPong(4, places)):
        assert check(one, tables, 3) is None
        assert not refutes(one, tables, 3)
        for what, mutant in random.Random(name).sample(list(mutants(one)), 2):
            fast, slow = check(mutant, tables, 3), refutes(mutant, tables, 3)
            assert fast is not None or not slow, f"{what}: {slow}"
