"""Clean files get no finding; each planted mistake gets its rule, in its line, and nothing else."""

from __future__ import annotations

import pytest

from tests.dialect_api.seeds import NAMES, SEEDS, Seed, sample
from tilelink.dialect_api import Rule, Severity, Vendor, check_source


@pytest.mark.parametrize("name", NAMES)
def test_a_clean_file_has_no_finding(name: str) -> None:
    report = check_source(sample(name), name)
    assert report.findings == ()
    assert not report.refuted


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.name)
@pytest.mark.quick(24)
def test_a_planted_mistake_is_found(seed: Seed) -> None:
    report = check_source(seed.text(), seed.sample)
    assert [(found.rule, found.line) for found in report.findings] == [(seed.rule, seed.line())], report.lines()
    assert report.refuted == (seed.rule.severity is Severity.MISTAKE)


def test_every_rule_is_planted() -> None:
    assert len(NAMES) == 10
    assert {seed.rule for seed in SEEDS} == set(Rule)


def test_the_vendor_comes_from_imports() -> None:
    vendors = {name: check_source(sample(name)).vendor for name in NAMES}
    assert vendors.pop("amd_push") is Vendor.ROCSHMEM
    assert vendors.pop("mori_put") is Vendor.MORI
    assert set(vendors.values()) == {Vendor.NVIDIA}


def test_the_vendor_can_be_given() -> None:
    report = check_source(sample("queue"), vendor=Vendor.ROCSHMEM)
    assert {found.rule for found in report.findings} == {Rule.NOTIFY_ON_AMD}
    assert len(report.findings) == 2


def test_two_runs_say_the_same() -> None:
    text = SEEDS[0].text() + "\n" + "\n".join(seed.text() for seed in SEEDS[:4])
    assert check_source(text) == check_source(text)
