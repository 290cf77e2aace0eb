"""Stamped sources, on emulated ranks: the same results, and spans that account for the whole life of every program."""

from __future__ import annotations

import itertools

import pytest
import torch

import lowering
from tests.mutation.subjects import subject
from tilelink.emulator import World
from tilelink.ir.schedule import Schedule
from tilelink.profiling.stamps import Moment, Stamped, stamped
from tilelink.profiling.timeline import Doing, Span, shares, spans
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs
from tilelink.runtime.run import run_emulated

LABELS = (
    "gather, copy engine push",
    "gather, SMs push, halves",
    "scatter, SMs push, epilogue",
    "all-reduce, joined",
    "MLP",
)


BY_HAND = """
import torch
import triton
import triton.language as tl


@triton.jit
def y_tiles(y_ptr, program):
    for tile in tl.range(program, 3, 2, flatten=True):
        wait_count(y_ptr, 1)
        tl.store(y_ptr + tile, tile)


@triton.jit
def y_kernel(y_ptr):
    program = tl.program_id(0)
    y_tiles(y_ptr, program)


class Op:
    def __init__(self, fabric):
        self.fabric = fabric

    def enqueue(self, main, y):
        main.launch(y_kernel, (2,), y, num_warps=4)
"""


def call(schedule: Schedule, marked: Stamped) -> list[list[Span]]:
    """Spans of each rank, in steps of the emulation, of one call."""
    build = operator_class(load_source(marked.source, schedule.name))
    machine = schedule.machine
    world = World(machine.num_ranks, num_sms=machine.num_sms, seed=1, lazy_loading=True)
    operators = [build(fabric) for fabric in world.fabrics]
    for operator, parts in zip(operators, make_inputs(schedule.spec, 1), strict=True):
        operator(*parts.values())
    world.run()
    words = [operator.stamps.view(marked.slots, marked.programs) for operator in operators]
    return [spans((1000 * one).tolist(), marked.sites) for one in words]  # a step counts as one us


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_results_stay_equal(label: str) -> None:
    schedule = subject(label)
    marked = stamped(lowering.emit(schedule))
    assert run_emulated(schedule, marked.source, calls=2).equal


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.quick(1)
def test_every_tile_and_all_of_the_time_is_accounted_for(label: str) -> None:
    schedule = subject(label)
    marked = stamped(lowering.emit(schedule))
    roles = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    tiles = sum(role.whole + 2 * role.halved for role in roles)
    ends = sum(kernel.programs for kernel in schedule.kernels() if not kernel.joined)
    for found in call(schedule, marked):
        by_program: dict[str, list[Span]] = {}
        for span in found:
            by_program.setdefault(span.lane, []).append(span)
        for mine in by_program.values():
            assert all(one.end_us == other.start_us for one, other in itertools.pairwise(mine))
        sites = [site for site in marked.sites if site.moment is Moment.TILE]
        assert sum(site.turns for site in sites) * marked.programs >= tiles
        assert sum(span.doing is Doing.END for span in found) == ends
        total = sum(share.mean_us * share.programs for share in shares(found))
        assert total == pytest.approx(sum(span.us for span in found), rel=0.02)


def test_the_number_of_tiles() -> None:
    """A loop has as many turns as the program with the most tiles; what the library computes has none."""
    schedule = subject("gather, library matmul")
    assert not [site for site in stamped(lowering.emit(schedule)).sites if site.moment is Moment.TILE]
    schedule = subject("gather, SMs push, halves")
    marked = stamped(lowering.emit(schedule))
    (role,) = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    words = [site.turns for site in marked.sites if site.moment is Moment.TILE and site.function == "out_tiles"]
    assert words == [-(-role.whole // role.programs), -(-2 * role.halved // role.programs)]


def test_a_wait_is_no_tile() -> None:
    """Told apart by what is waited for."""
    schedule = subject("gather, copy engine push")
    for found in call(schedule, stamped(lowering.emit(schedule))):
        waits = [span for span in found if span.doing is Doing.WAIT]
        assert waits
        assert all("wait_until" in span.where for span in waits)
        assert not [span for span in found if span.doing is Doing.TILE and "wait" in span.where]


def test_spans_by_hand() -> None:
    """Two programs, one of which never gets a second tile."""
    marked = stamped(BY_HAND)
    assert (marked.slots, marked.programs) == (9, 2)
    assert "main.launch(y_kernel, (2,), y, self.stamps, num_warps=4)" in marked.source
    at = {site.moment: site.first for site in marked.sites}
    stamps = torch.zeros(9, 2, dtype=torch.int64)
    times = {  # slot -> ns of each program
        at[Moment.BEGUN]: (5000, 6000),
        at[Moment.REACHED]: (5100, 6000),
        at[Moment.AWAITED]: (7000, 7000),
        at[Moment.TILE]: (8000, 8500),
        at[Moment.REACHED] + 1: (8100, 0),
        at[Moment.AWAITED] + 1: (8200, 0),
        at[Moment.TILE] + 1: (9000, 0),
        at[Moment.ROLE]: (9000, 8500),
        at[Moment.CLOSED]: (9500, 9000),
    }
    for slot, row in times.items():
        stamps[slot] = torch.tensor(row)
    found = spans(stamps.tolist(), marked.sites)
    mine = [(span.doing.value, span.start_us, span.end_us) for span in found if span.lane == "program 0"]
    assert mine == [
        ("tile", 0.0, 0.1),
        ("wait", 0.1, 2.0),
        ("tile", 2.0, 3.0),
        ("tile", 3.0, 3.1),
        ("wait", 3.1, 3.2),
        ("tile", 3.2, 4.0),
        ("tile", 4.0, 4.0),
        ("end", 4.0, 4.5),
    ]
    by = {(share.doing, share.where): share for share in shares(found)}
    waited = by["wait", "y_tiles: wait_count(y_ptr, 1)"]
    assert (waited.programs, waited.mean_us, waited.longest_us) == (2, 1.5, 2.0)
    assert (by["tile", "y_tiles"].mean_us, by["end", "y_kernel"].last_end_us) == (1.8, 4.5)
