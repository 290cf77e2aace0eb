"""Tiles with rows of several ranks, whose sums a launch of its own or the library scatters: rows of another rank are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

import topologies
from tests.pipeline.operators import GEMM_RS
from tests.proof.planted import Change, refuted
from tilelink.ir.schedule import Schedule as Planned
from tilelink.proof.verify import verify
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.steps import Load, Store

ROWS = 7  # of a part; two parts and a bit are a tile


def planned(algorithm: str = "ll") -> Planned:
    pins = {"algorithm": algorithm, "compute": "triton", "tile": "16x32x16/4w2s", "tail": "whole"}
    return GEMM_RS.plan_for(topologies.load("laptop-switch", 3), {"M": 3 * ROWS, "K": 48, "N": 64}, "bf16", pins)


def taken(name: str, first: Number, rows: int = ROWS) -> Change:
    """Another beginning, or fewer rows, of what is loaded as `name`."""

    def change(step: Load) -> Load:
        (_, col), (_, cols) = step.region.start, step.region.extent
        return replace(step, region=replace(step.region, start=(first, col), extent=(rows, cols)))

    return lambda step: (change(step),) if isinstance(step, Load) and step.result == name else (step,)


def stored(rows: int) -> Change:
    """The rows of a tile are stored so many further down."""

    def change(step: Store) -> Store:
        row, col = step.region.start
        return replace(step, region=replace(step.region, start=(row + rows, col)))

    return lambda step: (change(step),) if isinstance(step, Store) and step.region.buffer == "y_staged" else (step,)


peer = Index("peer")
BUGS: dict[str, Change] = {
    "a peer gets the own part": taken("own", rank * ROWS),
    "a peer gets that of the next one": taken("own", (peer + 1) % 3 * ROWS),
    "a part begins a row late": taken("own", peer * ROWS + 1),
    "a row of a part stays behind": taken("own", peer * ROWS, ROWS - 1),
    "the own summand is that of rank 0": taken("summand", 0),
    "the own summand begins a row early": taken("summand", rank * ROWS - 1),
    "rows are stored a row down": stored(1),
    "rows are stored a part down": stored(ROWS),
}


@pytest.mark.parametrize("algorithm", ["ll", "lamport", "library"])
def test_schedules_are_proved(algorithm: str) -> None:
    schedule = planned(algorithm)
    assert schedule.buffer("y_staged").shape == (3 * ROWS, 64)
    assert verify(schedule).proved


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    assert refuted(planned(), BUGS[bug])
