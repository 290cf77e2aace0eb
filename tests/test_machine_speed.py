"""Limits of time grow with the machine's slowness, and still fail for work that takes several times as long."""

from __future__ import annotations

import time

import pytest

from tests import machine_speed
from tests.machine_speed import SLOWEST, limit, within


def burn(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


def test_work_over_the_limit_fails() -> None:
    with pytest.raises(AssertionError, match="of CPU time"), within(0.01):
        burn(0.01 * SLOWEST + 0.01)


def test_work_under_the_limit_passes() -> None:
    with within(0.1):
        burn(0.05)


def test_sleep_is_no_work() -> None:
    with within(0.02):
        time.sleep(0.02 * SLOWEST + 0.05)


@pytest.mark.parametrize(("slow", "most"), [(0.5, 1.0), (3.0, 3.0), (100.0, SLOWEST)])
def test_limits_grow_with_the_machine_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, slow: float, most: float) -> None:
    monkeypatch.setattr(machine_speed, "_AT_FIRST", slow)
    monkeypatch.setattr(machine_speed, "slowness", lambda: slow)
    assert limit(1.0) == most
