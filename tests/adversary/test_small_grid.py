"""Whatever `plan` gives for plain specs, `verify` has a small form to run: it keeps the launches, the movers and the steps."""

from __future__ import annotations

import pytest

import lowering
import topologies
from tests.adversary.test_small import kinds
from tests.planner.grid import Cell, columns, gathered_columns, gathered_weights, sampled_cells
from tilelink.adversary.small import small_form
from tilelink.adversary.subject import of_schedule
from tilelink.adversary.trials import Scenario, Trial, run_trial
from tilelink.ir.schedule import Schedule

SAME = {"M": 4096, "K": 4096, "N": 4096}  # sizes that no value tells apart
OTHER = {"M": 2048, "K": 4096, "N": 1024}


def cell(operator: object, machine: str, ranks: int, m: int, k: int, n: int) -> Cell:
    return Cell(operator, {"M": m, "K": k, "N": n}, topologies.load(machine, ranks))  # type: ignore[arg-type]


# (cell, pins): warpgroups in turns whose parts lie along columns; halves along columns and along rows
KNOWN = [
    (cell(columns, "h200-nvswitch", 4, 4096, 14336, 8192), {"matmul_out.tile": "128x128x64/4w5s2g"}),
    (cell(columns, "a100-nvswitch", 2, 1024, 3072, 2048), {}),
    (cell(gathered_weights, "a100-nvswitch", 2, 512, 4096, 28672), {}),
    (cell(gathered_columns, "a100-nvswitch", 2, 4096, 4096, 4096), {}),
]


def check_form(cell: Cell, pins: dict[str, str] | None = None) -> tuple[Schedule, Schedule]:
    schedule = cell.spec.plan_for(cell.topology, cell.sizes, "bf16", pins)
    small = small_form(cell.spec.spec, schedule, cell.topology)
    assert [type(launch) for launch in small.launches] == [type(launch) for launch in schedule.launches]
    assert list(map(kinds, small.exchanges)) == list(map(kinds, schedule.exchanges))
    for one, other in zip(small.kernels(), schedule.kernels(), strict=True):
        assert one.compute is not None and other.compute is not None
        assert (one.compute.warpgroups, bool(one.compute.halved)) == (
            other.compute.warpgroups,
            bool(other.compute.halved),
        )
    return schedule, small


@pytest.mark.parametrize(("cell", "pins"), KNOWN, ids=["columns in turns", "columns", "weights", "gathered columns"])
@pytest.mark.slow
def test_turns_and_halves(cell: Cell, pins: dict[str, str]) -> None:
    _, small = check_form(cell, pins)
    outcome = run_trial(of_schedule(small, lowering.emit(small)), Trial(Scenario.CALLS, "producers-last", 0, calls=2))
    assert outcome.error is None, f"{small}\n{outcome.error}"


def test_sizes_are_known_by_their_names() -> None:
    """Rows of w are gathered, and rows of x are not, whatever their numbers: what is no rows of an exchange stays small."""
    machine = topologies.load("laptop-switch", 4)
    pins = {"mover": "CopyEngine()", "transfer": "push", "chunks": "1", "tail": "whole", "compute": "triton"}
    plans = [gathered_weights.plan_for(machine, sizes, "bf16", pins) for sizes in (SAME, OTHER)]
    same, other = (small_form(gathered_weights.spec, schedule, machine) for schedule in plans)
    assert same.spec.sizes == other.spec.sizes


@pytest.mark.slow
@pytest.mark.parametrize("block", range(4))
def test_sampled_cells(block: int) -> None:
    """`benchmarks/small_forms.py` goes through the whole grid."""
    for one in sampled_cells(12, seed=block):
        check_form(one)
