"""Numbers that know their names are the numbers, and spell what they are."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilelink.schedule.index import OPERATORS, Index, Number, evaluate, replaced, rounded_up, spelled, value_of
from tilelink.schedule.known import Known, known, origin

SIZES = {"A": 7, "B": 12, "C": 1, "D": 128}
A, B, C, D = (Known(value, Index(name)) for name, value in SIZES.items())
NUMBERS = st.sampled_from([A, B, C, D, 0, 1, 2, 5])


@dataclass
class Drawn:
    """A number and what it is in plain arithmetic."""

    number: int
    plain: int


@st.composite
def expressions(draw: st.DrawFn) -> Drawn:
    number = draw(NUMBERS)
    found = Drawn(number, int(number))
    for _ in range(draw(st.integers(0, 5))):
        op, other = draw(st.sampled_from(["+", "-", "*", "//", "%", "neg", "up"])), draw(NUMBERS)
        if op == "neg":
            found = Drawn(-found.number, -found.plain)
        elif op == "up" and other > 0:
            found = Drawn(-(-found.number // other), -(-found.plain // int(other)))
        elif op in OPERATORS and (op not in ("//", "%") or other > 0):
            turned = draw(st.booleans()) and op in "+-*"
            sides = (other, found.number) if turned else (found.number, other)
            found = Drawn(OPERATORS[op](*sides), OPERATORS[op](*map(int, sides)))
    return found


@given(expressions())
def test_values_and_names_agree(drawn: Drawn) -> None:
    assert drawn.number == drawn.plain and hash(drawn.number) == hash(drawn.plain)
    assert value_of(origin(drawn.number), SIZES) == drawn.plain


@given(expressions(), st.integers(-50, 50))
def test_indices_of_known_numbers_are_those_of_numbers(drawn: Drawn, m: int) -> None:
    index: Number = (Index("m") * drawn.number + drawn.number) % 1000
    found = evaluate(index, {"m": m})
    assert found == (m * drawn.plain + drawn.plain) % 1000
    assert evaluate(origin(index), {"m": m} | SIZES) == found
    plain = replaced(origin(index), cast("dict[str, Number]", SIZES))
    assert plain == (Index("m") * drawn.plain + drawn.plain) % 1000


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (-(-D // B), "(D + B - 1) // B"),
        (rounded_up(D, B), "(D + B - 1) // B"),
        (A * B // B, "A"),
        (B // B, "1"),
        (A - 1 + 1, "A"),
        (A + B - A, "B"),
        (2 * A - A, "A"),
        (C * 1 + 0, "C"),
        ((A - 1) - 2 * (A - 1), "1 - A"),
    ],
)
def test_sums_are_short(number: int, text: str) -> None:
    assert spelled(origin(number)) == text


def test_a_named_one_is_no_neutral_element() -> None:
    """An edited file may have another number there."""
    assert str(Index("m") % C) == "m % 1" and spelled(origin(Index("m") % C)) == "m % C"
    assert Index("m") % 1 == 0


def test_it_can_be_sent_elsewhere() -> None:
    again = pickle.loads(pickle.dumps(A))
    assert again == A and isinstance(again, Known) and again.index == A.index
    assert not isinstance(known(3, 3), Known)
