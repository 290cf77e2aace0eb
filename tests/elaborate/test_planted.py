"""Planned schedules as steps: right ones are proved, and planted mistakes of order are refuted by their order alone."""

from __future__ import annotations

import pytest

from tests.proof.test_refuted import CASES, planned
from tilelink.elaborate.schedule import elaborated
from tilelink.ir.schedule import Schedule
from tilelink.proof.happens_before.check import Outcome, checked

# what is no mistake of order: words that only grow need no such care; rules and contents find it (`tilelink/proof`)
_GROWS = "words of steps are never set back"
_COMPUTED = "what is computed or masked, not when"
_LOCAL = "order inside of a program, which a pass of the lowering puts in"
_FITS = "whether programs fit, and which links carry atomics"
OTHERS = {
    "the next epoch twice": _GROWS,
    "a part of another axis": _COMPUTED,
    "another function": _COMPUTED,
    "a matmul in a loop that runs elsewhere": _COMPUTED,
    "a result stored through a descriptor": _LOCAL,
    "a signalled tile stored through a descriptor": _LOCAL,
    "more programs than SMs": _FITS,
    "a tile that signals over a link without atomics": _FITS,
}
ORDER = [name for name in CASES if name not in OTHERS]


def proof(schedule: Schedule) -> Outcome:
    return checked(elaborated(schedule))


@pytest.mark.parametrize("case", sorted({base for base, _, _ in CASES.values()}), ids=" ".join)
@pytest.mark.quick(4)
def test_right_ones_are_proved(case: tuple[str, ...]) -> None:
    assert proof(planned(*case)).refutation is None


@pytest.mark.parametrize("name", ORDER)
@pytest.mark.quick(12)
def test_mistakes_of_order_are_refuted(name: str) -> None:
    base, change, _ = CASES[name]
    found = proof(change(planned(*base))).refutation
    assert found is not None and str(found)


def test_what_others_find_is_told() -> None:
    assert set(OTHERS) <= set(CASES)
    assert len(ORDER) > len(OTHERS)
