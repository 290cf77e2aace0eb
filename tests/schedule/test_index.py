"""Indices are what Python computes, in one environment or in many at once, and ranges hold them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelink.schedule.index import Index, NoSuchEntry, Number, evaluate, greatest, least, names_in, replaced, spelled
from tilelink.schedule.ranges import Range, range_of, truncation_is_floor

NAMES = ("a", "b", "c")


def _combined(inner: st.SearchStrategy[Number]) -> st.SearchStrategy[Number]:
    def make(op: str, left: Number, right: Number, by: int) -> Number:
        left, right = (Index(one) if isinstance(one, str) else one for one in (left, right))
        match op:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * by
            case "//":
                return left // by
            case "%":
                return left % by
            case "min":
                return least(left, right)
        return greatest(left, right)

    return st.builds(make, st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]), inner, inner, st.integers(1, 9))


INDICES = st.recursive(st.one_of(st.integers(-9, 9), st.sampled_from(NAMES).map(Index)), _combined, max_leaves=12)
VALUES = st.fixed_dictionaries({name: st.integers(-20, 20) for name in NAMES})


@given(INDICES, VALUES)
def test_text_is_python_and_has_the_value(index: Number, env: dict[str, int]) -> None:
    assert evaluate(index, env) == eval(spelled(index), {"__builtins__": {"min": min, "max": max}}, env)


@given(INDICES, st.lists(VALUES, min_size=1, max_size=5))
def test_many_environments_at_once(index: Number, envs: list[dict[str, int]]) -> None:
    arrays = {name: np.array([env[name] for env in envs]) for name in NAMES}
    found = np.broadcast_to(evaluate(index, arrays), (len(envs),))
    assert found.tolist() == [evaluate(index, env) for env in envs]


@given(INDICES, VALUES, VALUES)
def test_a_range_holds_every_value(index: Number, env: dict[str, int], other: dict[str, int]) -> None:
    ranges = {name: Range(min(env[name], other[name]), max(env[name], other[name])) for name in NAMES}
    found = range_of(index, ranges)
    assert found.low <= evaluate(index, env) <= found.high
    for one in [index] if isinstance(index, Index) and index.op in ("//", "%") else []:
        left, right = (int(evaluate(x, env)) for x in one.args)
        if truncation_is_floor(one, ranges):
            truncated = int(left / right) if one.op == "//" else left - right * int(left / right)
            assert truncated == evaluate(one, env)


@given(INDICES, INDICES, VALUES)
def test_a_replaced_name_has_the_value_of_what_replaces_it(index: Number, inner: Number, env: dict[str, int]) -> None:
    value = int(evaluate(inner, env))
    found = replaced(index, {"a": inner})
    assert evaluate(found, env) == evaluate(index, {**env, "a": value})
    assert "a" not in names_in(found) or "a" in names_in(inner)


def test_what_is_neutral_is_not_printed() -> None:
    m = Index("m")
    assert [spelled(one) for one in (0 + m, m + 0, m * 1, 1 * m, m // 1, m - 0)] == ["m"] * 6
    assert (m * 0, m % 1, m - m) == (0, 0, 0)
    assert spelled((m + 1) * 2 - (m - (m - 1))) == "(m + 1) * 2 - (m - (m - 1))"


def test_tables_are_looked_up_for_all_at_once_and_have_no_other_entries() -> None:
    table = np.array([[1, 2], [3, -1]])
    a, b = np.array([0, 1]), np.array([1, 0])
    assert np.array_equal(evaluate(Index("t", (Index("a"), Index("b"))), {"a": a, "b": b}, {"t": table}), [2, 3])
    assert evaluate(Index("t", (0, Index("t", (0, 0)))), {}, {"t": table}) == 2
    for place in ((1, 1), (2, 0), (0, -1)):
        with pytest.raises(NoSuchEntry) as caught:
            evaluate(Index("t", place), {}, {"t": table})
        assert caught.value.table == "t" and caught.value.place == place
