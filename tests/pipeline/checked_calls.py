"""Calls of a schedule that is proved, on emulated ranks, for a test to compare with its own definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

import lowering
from tilelink.ir.schedule import Schedule
from tilelink.proof.verify import verify
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.run import run_emulated

OfRanks = tuple[Sequence[Mapping[str, torch.Tensor]], Sequence[Sequence[torch.Tensor]]]  # inputs, outputs


def checked_calls(schedule: Schedule, target: str, seed: int, calls: int) -> list[OfRanks]:
    """Of so many calls what each rank took and returned. Every third seed is also compared with the meaning of its spec."""
    proof = verify(schedule)
    assert proof.proved, proof.findings
    source = lowering.emit(schedule, target)
    if seed % 3 == 0:
        assert run_emulated(schedule, source, calls=2, seed=seed).equal
    run = EmulatedRun(schedule, source, seed)
    for _ in range(calls):
        run.call()
    run.finish()
    return list(run.calls)
