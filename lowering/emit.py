"""Planned schedule -> one standalone file, printed from its steps: header, helpers, kernels, host class, self-check."""

from __future__ import annotations

from lowering.steps.planned import lower_planned
from lowering.targets import TARGETS, dialect
from tilelink.ir.schedule import Schedule


def emit(schedule: Schedule, target: str = "triton") -> str:
    """Source text of `schedule`. The file imports torch and the target's compiler only.

    Raises UnknownTarget, and TargetNotForGpu.
    """
    return lower_planned(schedule, target)


def caveat(schedule: Schedule, target: str = "triton") -> str:
    """What a user must know of the host code of `emit(schedule, target)`, empty where it runs on GPUs. Raises UnknownTarget."""
    return dialect(target, schedule.machine.arch).caveat


__all__ = ["TARGETS", "caveat", "emit"]
