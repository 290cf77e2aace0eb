"""Files that tilelink emits for stock Triton share rules with the dialect, barriers and residency, and keep them."""

from __future__ import annotations

import re
from functools import cache

import pytest

import lowering
import topologies
from tests.pipeline.workloads import load
from tilelink.dialect_api import Rule, check_source

SIZES = {"M": 1024, "K": 512, "N": 1024}
NAMES = ("02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs", "04_gemm_ar.py:gemm_ar")
MOVERS = ("Fused()", "CommSms(4)", "CopyEngine()")


@cache
def emitted(name: str, mover: str) -> str:
    pins = {"compute": "triton", "mover": mover}
    return lowering.emit(load(name).plan_for(topologies.load("laptop-switch", 4), SIZES, "bf16", pins))


@pytest.mark.parametrize("mover", ["Fused()", *(pytest.param(one, marks=pytest.mark.slow) for one in MOVERS[1:])])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(1)
def test_no_finding(name: str, mover: str) -> None:
    assert check_source(emitted(name, mover)).findings == ()


def test_a_helper_without_its_barrier() -> None:
    text = emitted(NAMES[1], MOVERS[0])
    helper = "    program_barrier()\n    return tl.atomic_add(count, 1"
    assert helper in text
    found = check_source(text.replace(helper, helper.replace("program_barrier()", "pass")))
    assert {finding.rule for finding in found.findings} == {Rule.NO_BARRIER_BEFORE_RAISE}


def test_a_machine_with_fewer_sms() -> None:
    text = emitted(NAMES[0], MOVERS[2])
    fewer, count = re.subn(r"^    NUM_SMS = .*$", "    NUM_SMS = 2", text, flags=re.MULTILINE)
    assert count == 1
    found = check_source(fewer)
    assert {finding.rule for finding in found.findings} == {Rule.NOT_RESIDENT}
