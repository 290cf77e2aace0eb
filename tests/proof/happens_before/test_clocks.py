"""Clocks of many programs, which are kept as what is new in them, are those that are kept whole."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.operators import OPERATORS
from tilelink.proof.happens_before import clocks
from tilelink.proof.happens_before.events import Events
from tilelink.proof.happens_before.expand import expanded
from tilelink.proof.happens_before.lanes import by_call
from tilelink.proof.happens_before.ranks import rank_period
from tilelink.proof.happens_before.walk import Walk
from tilelink.schedule.instance import instantiated


def walked(name: str) -> Walk:
    operator = OPERATORS[name](4)
    schedule = instantiated(operator.schedule)
    tables, _ = by_call({table: entries.numpy() for table, entries in operator.tables().items()})
    period, shifts = rank_period(schedule)
    return Walk(Events(expanded(schedule, tables, 3, period, shifts))).walked()


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs", "queue"])
@pytest.mark.parametrize(("far", "recent"), [(3, 1), (1 << 30, 1), (1 << 30, 1 << 30)])
def test_kept_in_either_way(name: str, far: int, recent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = walked(name)
    monkeypatch.setattr(clocks, "LARGE", 0)
    monkeypatch.setattr(clocks, "FAR", far)
    monkeypatch.setattr(clocks, "RECENT", recent)
    changes = walked(name)
    assert not whole.clocks.large and changes.clocks.large
    assert np.array_equal(whole.clock_of, changes.clock_of)
    used = np.unique(whole.clock_of).tolist()
    assert len(used) > 10
    for one in (*used, *reversed(used)):
        assert np.array_equal(whole.clocks[one], changes.clocks[one])
