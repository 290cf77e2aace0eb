"""A sample of the mutants of shipped workloads: the verifier kills those that matter, as `tilelink mutate` reports."""

from __future__ import annotations

import json

import pytest

import topologies
from tests.pipeline.workloads import load
from tilelink.adversary.small import small_form
from tilelink.mutation.campaign import campaign
from tilelink.mutation.report import Fate

SUBJECTS = {
    "02_ag_gemm.py:ag_gemm": ({"M": 8192, "K": 4096, "N": 14336}, {"mover": "CommSms(8)", "transfer": "push"}),
    "03_gemm_rs.py:gemm_rs": (  # runs of warpgroups in turns take five times as long; test_turns.py leaves out their waits
        {"M": 8192, "K": 14336, "N": 4096},
        {"mover": "Fused()", "sum": "epilogue", "y.tile": "128x256x64/8w3s"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_mutants_that_matter_are_killed(name: str) -> None:
    sizes, pins = SUBJECTS[name]
    overlap, machine = load(name), topologies.load("h200-nvswitch", 2)
    schedule = overlap.plan_for(machine, sizes, "bf16", {"algorithm": "direct", "chunks": "2", **pins})
    found = campaign(small_form(overlap.spec, schedule, machine), sample=24, seed=3, workers=0)
    assert found.score >= 0.95, found.text()
    assert found.schedules.count(Fate.KILLED) >= 5 and found.sources.count(Fate.KILLED) >= 5
    assert not found.schedules.count(Fate.UNDECIDED) + found.sources.count(Fate.UNDECIDED)
    parts = json.loads(found.to_json())
    assert len(parts["schedules"]["outcomes"]) == len(parts["sources"]["outcomes"]) == 24
