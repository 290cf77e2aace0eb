"""Tiles that leave for peers in pieces, while another warpgroup multiplies."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import lowering
import topologies
from tests.pipeline.feature import STORES
from tests.pipeline.features import TURNS_RAGGED, WIDE_TILE
from tests.pipeline.test_pool import Running
from tests.pipeline.test_turns import (
    CASES,
    PLAIN,
    TILE,
    in_turns,
    machine,
    outputs,
    planned,
    refuted,
)
from tilelink.adversary.small import small_form
from tilelink.bench.operators import declaration
from tilelink.bench.rows import Operator
from tilelink.emulator import World
from tilelink.emulator.errors import Race
from tilelink.emulator.races import RaceDetector
from tilelink.ir.nodes import Kernel, Launch
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import Access, IfOwn, Place, Step, Store, in_pieces
from tilelink.ir.walk import flat
from tilelink.proof.verify import verify
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

BY_STORES = [name for name in CASES if name.startswith("sums by stores")]
FULL = {"M": 8192, "N": 4096, "K": 11008}
SENT = "flush_stores()"
LEFT = "        tma.store_wait(0)  # the piece has left the SM\n"
FENCE, MEET = "    fence_async_shared()\n", "    gl.thread_barrier()\n"
KNOWN = "    gl.thread_barrier()  # the sending thread has waited for its stores; the others wait for that thread\n"
LINES = {  # what stands in the source, and what a mistake would be
    "a piece that has left": (LEFT, ""),
    "others know that it has": (KNOWN, ""),
    "a fence": (FENCE + MEET, MEET),
    "a barrier behind it": (FENCE + MEET, FENCE),
    "a fence before the barrier": (FENCE + MEET, MEET + FENCE),
}


def stores(schedule: Schedule) -> list[Store]:
    return [step for step in flat(in_turns(schedule).body) if isinstance(step, Store)]


@cache
def reduced(pins: tuple[tuple[str, str], ...] = (), dtype: str = "bf16", *, ragged: bool = False) -> Schedule:
    given = {"mover": "Fused()", "transfer": "push", "algorithm": "direct", "out.sum": "epilogue", "y.tile": WIDE_TILE}
    declared = declaration(Operator.GEMM_RS, False)
    return declared.plan_for(machine(), TURNS_RAGGED if ragged else PLAIN, dtype, {**given, **dict(pins)})


@pytest.mark.parametrize("name", BY_STORES)
def test_parts_and_sums_leave_in_pieces(name: str) -> None:
    schedule = planned(name)
    assert [(in_pieces(store), store.place) for store in stores(schedule)] == [
        (True, Place.EVERY_PEER),
        (True, Place.PEER),
    ]
    assert "store out_part -> out[rank, m : " in str(schedule) and "]@peer by descriptor, paced" in str(schedule)
    branch = in_turns(schedule).body[-1]
    assert isinstance(branch, IfOwn)
    assert branch.slices == 2  # of 64 columns, which have the 128 bytes of a row of a piece


def test_tiles_and_movers_that_are_good_together_only_are_found() -> None:
    """On H100 tiles in turns are slower with copies than other loops are, and stores of parts with other loops."""
    machine = topologies.load("h100-nvswitch", 2)
    declared, pins = declaration(Operator.GEMM_RS, False), {"y_parts.mover": "Fused()", "tile": "128x128x64/4w5s2g"}
    planned, pinned = (declared.plan_for(machine, FULL, "bf16", given) for given in ({}, pins))
    assert any(map(in_pieces, stores(pinned)))
    assert planned.predicted_us <= pinned.predicted_us


@pytest.mark.slow
def test_the_bits_are_those_of_other_stores() -> None:
    pins = {"mover": "CopyEngine()", "algorithm": "direct", "out.sum": "epilogue", "y.tile": WIDE_TILE}
    copied = declaration(Operator.GEMM_RS, False).plan_for(machine(), PLAIN, "bf16", pins)
    assert not any(map(in_pieces, stores(copied)))
    ours, theirs = (outputs(lowering.emit(schedule), schedule) for schedule in (reduced(), copied))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_where_they_cannot_tiles_are_stored_at_once() -> None:
    """Columns that tiles do not divide, sums of one slice, shared memory that the ring fills."""
    assert not any(map(in_pieces, stores(reduced(ragged=True))))
    pins = {**STORES, "algorithm": "in-place", "out_part.sum": "epilogue", "y.tile": TILE}
    narrow = declaration(Operator.GEMM_AR, False).plan_for(machine(), PLAIN, "bf16", pins)
    assert [(in_pieces(store), store.place) for store in stores(narrow)] == [
        (False, Place.EVERY_PEER),
        (True, Place.PEER),
    ]
    h200 = topologies.load("h200-nvswitch", 4)
    pins = {"mover": "Fused()", "transfer": "push", "y.tile": "128x128x64/4w6s2g"}
    assert not any(map(in_pieces, stores(declaration(Operator.GEMM_RS, False).plan_for(h200, FULL, "bf16", pins))))


@pytest.mark.slow
def test_descriptors_of_a_pool_are_no_results() -> None:
    """A place whose descriptors the operator holds is free all the same: results lie in it, and are not copied out."""
    running = Running(planned("sums by stores into pools"))
    for number in range(3):
        results = running.call(number)
        assert [pool.place_of(out) for pool, out in zip(running.pools, results, strict=True)] == [0] * len(results)
        assert running.pools[0].give(running.world.fabrics[0].main(), results[0]) is results[0]
        del results
    running.world.run()


def edited(schedule: Schedule, change: dict[str, Any]) -> Schedule:
    """The schedule with `change`d stores of pieces, or a changed role."""

    def step(one: Step) -> Step:
        if isinstance(one, IfOwn):
            return replace(one, own=tuple(map(step, one.own)), others=tuple(map(step, one.others)))
        return replace(one, place=change["place"]) if in_pieces(one) and "place" in change else one

    def launch(one: Launch) -> Launch:
        if not isinstance(one, Kernel) or one.compute is None:
            return one
        fields = {name: value for name, value in change.items() if name == "warpgroups"}
        return replace(one, compute=replace(one.compute, body=tuple(map(step, one.compute.body)), **fields))

    return replace(schedule, launches=tuple(map(launch, schedule.launches)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"warpgroups": 1}, "while another group multiplies"),
        ({"place": Place.HERE}, "its write need not be over"),
    ],
)
def test_what_pieces_count_on_is_proved(change: dict[str, Any], reason: str) -> None:
    schedule = planned("sums by stores")
    assert verify(schedule).proved
    assert any(reason in finding.fact for finding in verify(edited(schedule, change)).findings)


def test_stores_through_whole_descriptors_are_still_refuted() -> None:
    """They are complete later than the release that tells of them."""
    role = in_turns(reduced())
    branch = role.body[-1]
    assert isinstance(branch, IfOwn)
    others = tuple(
        replace(step, operand=replace(step.operand, access=Access.DESCRIPTOR)) if isinstance(step, Store) else step
        for step in branch.others
    )
    body = (*role.body[:-1], replace(branch, others=others))
    launches = tuple(
        replace(one, compute=replace(one.compute, body=body))
        if isinstance(one, Kernel) and one.compute == role
        else one
        for one in reduced().launches
    )
    assert not verify(replace(reduced(), launches=launches)).proved


@pytest.mark.slow
@pytest.mark.parametrize("what", LINES)
def test_without_a_wait_some_run_is_wrong(what: str) -> None:
    schedule, (line, mistake) = planned("sums by stores", 2), LINES[what]
    source = lowering.emit(schedule)
    assert line in source
    assert not refuted(source, schedule)
    assert refuted(source.replace(line, mistake), schedule)


def races(source: str, schedule: Schedule) -> bool:
    """Whether a run of two calls, the second of which writes what the first one has, has accesses without an order."""
    ranks = schedule.num_ranks
    world = World(ranks, num_sms=schedule.machine.num_sms, seed=1, observers=[RaceDetector(ranks)])
    build = operator_class(load_source(source, "races"))
    operators = [build(fabric) for fabric in world.fabrics]
    inputs = make_inputs(schedule.spec, 1)
    for operator, given in zip(2 * operators, 2 * inputs, strict=True):
        operator(*given.values())
    try:
        world.run()
    except Race:
        return True
    return False


@pytest.mark.slow
def test_a_count_without_a_barrier() -> None:
    """The thread that has sent has waited for its pieces, and another one counts."""
    schedule = planned("parts by stores", 2)
    source = lowering.emit(schedule)
    helper = source.index("def count_arrival(")
    at = source.index("    program_barrier()\n", helper)
    assert not races(source, schedule)
    assert races(source[:at] + source[at:].replace("    program_barrier()\n", "", 1), schedule)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_sums_and_parts_are_told_of_when_they_are_there(number: int) -> None:
    """By the end of the call, and by the count of a chunk."""
    schedule = planned("sums by stores", 2)
    source = lowering.emit(schedule)
    assert not races(source, schedule)
    head, *parts = source.split(f"            {SENT}\n")
    assert len(parts) == 2
    between = [f"            {SENT}\n"] * 2
    between[number] = ""
    assert races("".join([head, between[0], parts[0], between[1], parts[1]]), schedule)


@pytest.mark.slow
def test_a_small_form_keeps_them() -> None:
    h200 = topologies.load("h200-nvswitch", 4)
    for operator, pins in ((Operator.GEMM_RS, {}), (Operator.GEMM_AR, {"outputs": "reused"})):
        declared = declaration(operator, False)
        schedule = declared.plan_for(h200, FULL, "bf16", pins)
        small = small_form(declared.spec, schedule, h200)
        wanted = [in_pieces(store) for store in stores(schedule)]
        assert any(wanted)
        assert [in_pieces(store) for store in stores(small)] == wanted
