"""Mistakes in what a report page is made of, one class each."""

from __future__ import annotations

from topologies.errors import UserError


class NotAMeasurement(UserError):
    """Facts: path, reason."""

    template = (
        "--measured {path} holds no measured call: {reason}.\n"
        "Legal: JSON of `benchmarks/timeline.py --json`, or of the format tilelink-spans 1, which docs/command_line.md describes."
    )


class OtherMeasured(UserError):
    """Facts: path, planned, held."""

    template = (
        "--measured {path} has no call of the schedule that is planned, {planned}: times of another one would stand beside its "
        "spans.\nIt holds {held}. Legal: plan with the sizes, ranks and pins that were measured, or measure this schedule."
    )
