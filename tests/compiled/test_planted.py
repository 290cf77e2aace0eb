"""What the compiler makes of sources from which a guard of their order is taken, and of those that have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import lowering
from tests.compiled.planted import ENGINE, GATHER, OVERTAKEN, PLANTED, checked, planned
from tests.pipeline.workloads import load
from tilelink.adversary.verdict import VerdictKind
from tilelink.errors import IdlePin
from tilelink.ir.nodes import Kernel
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.verify_command import Verification

_QUICK = ("one stage of the loop over tiles", "fence behind a wait")
GUARDS = [pytest.param(name, marks=[] if name in _QUICK else [pytest.mark.slow]) for name in PLANTED]


@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.slow
def test_a_guard_that_is_missing_is_found(name: str) -> None:
    planted = PLANTED[name]
    schedule = planted.schedule()
    source = lowering.emit(schedule)
    kept = checked(schedule, source, ahead=planted.ahead)
    assert not kept.findings and not kept.unknown and kept.events > 100, kept.lines()
    without = planted.without(source)
    assert without != source
    found = checked(schedule, without, ahead=planted.ahead)
    assert any(planted.rule in one.rule for one in found.findings), found.lines()
    assert str(BugClass.COMPILED_ORDER) in found.lines()[0]
    verification = Verification(None, None, None, found)
    assert verification.kind is VerdictKind.REFUTED and planted.rule in verification.to_json()


@pytest.mark.slow
def test_amd_keeps_loads_behind_waits() -> None:
    schedule = load(GATHER).plan("mi300x-full-mesh", 4, M=8192, K=64, N=14336, pin={"mover": "CommSms(16)"})
    source = lowering.emit(schedule)
    assert not checked(schedule, source, "gfx942").findings
    found = checked(schedule, source.replace(", num_stages=1", ""), "gfx942").findings
    assert any(OVERTAKEN in one.rule for one in found)


@pytest.mark.parametrize("depth", [64, 128])
def test_tiles_that_wait_are_prefetched_over_several_steps_only(depth: int) -> None:
    schedule = planned(GATHER, {"M": 8192, "K": depth, "N": 8192}, **ENGINE, tile="256x128x64/8w3s", prefetch="yes")
    (kernel,) = [one for one in schedule.launches if getattr(one, "compute", None) is not None]
    assert kernel.compute.prefetch is (depth > 64)  # type: ignore[union-attr]


def test_an_illegal_prefetch_is_refuted() -> None:
    schedule = planned(GATHER, {"M": 8192, "K": 64, "N": 8192}, **ENGINE, tile="256x128x64/8w3s", prefetch="yes")
    launches = tuple(
        replace(one, compute=replace(one.compute, prefetch=True))
        if isinstance(one, Kernel) and one.compute is not None
        else one
        for one in schedule.launches
    )
    findings = verify(replace(schedule, launches=launches)).findings
    assert BugClass.COMPILED_ORDER in {finding.bug for finding in findings}
    with pytest.raises(IdlePin):
        planned(GATHER, {"M": 8192, "K": 64, "N": 8192}, **ENGINE, tile="256x128x64/8w3s", prefetch="yes", count="late")
