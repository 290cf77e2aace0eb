"""Outputs in a pool of symmetric memory: the caller's for as long as he holds them, on each rank for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch

import lowering
from lowering.host.pool import Pool
from lowering.host_doc import POOL_PLACES
from lowering.libraries import library_values
from lowering.selfcheck.compare import Comparison
from lowering.selfcheck.near import Near
from tests.pipeline.features import of
from tests.pipeline.workloads import STOCK_FIRST
from tilelink.emulator import World
from tilelink.errors import NoLegalSchedule
from tilelink.ir.nodes import Memory, TellPlace
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import AwaitPlaces
from tilelink.mutation.sites import sites
from tilelink.proof.bug_class import BugClass
from tilelink.proof.verify import verify
from tilelink.runtime.compare import outputs_with_bounds
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import kept, make_inputs

SCHEDULES = {name: row.pins for name, row in of("pool").items()}


def planned(num_ranks: int, pins: Mapping[str, str]) -> Schedule:
    return replace(of("pool")["one kernel"], pins={"algorithm": "pooled", **pins}).plan(num_ranks)


class Running:
    """Operators of all ranks of an emulated world; `call` enqueues a call with inputs of its own."""

    def __init__(self, schedule: Schedule, seed: int = 0, target: str = "triton") -> None:
        build = operator_class(load_source(lowering.emit(schedule, target), schedule.name))
        self.schedule = schedule
        self.world = World(schedule.num_ranks, num_sms=schedule.machine.num_sms, seed=seed, lazy_loading=True)
        self.operators = [build(fabric) for fabric in self.world.fabrics]
        self.pools: list[Pool] = [operator.out for operator in self.operators]
        self._wanted: dict[int, list[tuple[Near, ...]]] = {}

    def call(self, number: int) -> list[torch.Tensor]:
        inputs = make_inputs(self.schedule.spec, number)
        return [op(*parts.values()) for op, parts in zip(self.operators, inputs, strict=True)]

    def right(self, number: int, rank: int, result: torch.Tensor) -> bool:
        if number not in self._wanted:
            inputs = make_inputs(self.schedule.spec, number)
            self._wanted[number] = outputs_with_bounds(self.schedule.spec, inputs, library_values(self.schedule))
        return Comparison.of(result, self._wanted[number][rank][0]).equal


@pytest.mark.parametrize("target", STOCK_FIRST)
def test_nothing_that_is_held_is_overwritten(target: str) -> None:
    """More results than places, all held until the end: those that find no place are copied out."""
    running = Running(planned(2, SCHEDULES["one kernel"]), seed=3, target=target)
    results = [running.call(number) for number in range(Pool.PLACES + 2)]
    running.world.run()
    for number, found in enumerate(results):
        for rank, result in enumerate(found):
            assert running.right(number, rank, result)
    addresses = {result.data_ptr() for found in results for result in found}
    assert len(addresses) == 2 * len(results)


def test_a_place_is_taken_again_when_its_result_is_dropped() -> None:
    running = Running(planned(2, SCHEDULES["one kernel"]))
    first = running.call(0)
    address, view = first[0].data_ptr(), first[0][:1]
    del first
    assert running.call(1)[0].data_ptr() != address  # a view holds it, too
    del view
    assert running.call(2)[0].data_ptr() == address
    running.world.run()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(
    "name", ["one kernel", *(pytest.param(n, marks=pytest.mark.slow) for n in list(SCHEDULES)[1:])]
)
def test_ranks_may_hold_different_results(name: str, seed: int) -> None:
    """Rank 0 holds all, the others drop each at once: so the places of one call differ, and peers find them."""
    running = Running(planned(3, SCHEDULES[name]), seed)
    held, copies, places = [], [], set[tuple[int, ...]]()
    for number in range(Pool.PLACES + 1):
        results = running.call(number)
        places.add(
            tuple(
                pool.place_of(out) if out.data_ptr() in pool._numbers else -1
                for pool, out in zip(running.pools, results, strict=True)
            )
        )
        copies.append(
            [kept(fabric.main(), (out,))[0] for fabric, out in zip(running.world.fabrics, results, strict=True)]
        )
        held.append(results[0])
        del results
    running.world.run()
    assert len(places) > 2
    assert all(running.right(number, 0, result) for number, result in enumerate(held))
    for number, found in enumerate(copies):
        assert all(running.right(number, rank, result) for rank, result in enumerate(found))


def test_what_a_graph_writes_is_never_given_to_eager_calls() -> None:
    """A replay writes where its calls wrote when they were captured, also if nobody holds the result any more."""
    running = Running(planned(2, SCHEDULES["one kernel"]))
    with running.world.capture() as recording:
        captured = [result.data_ptr() for result in running.call(0)]
    results = [running.call(number) for number in (1, 2, 3)]
    running.world.replay(recording)
    running.world.run()
    for number, found in enumerate(results, 1):
        for rank, result in enumerate(found):
            assert result.data_ptr() != captured[rank]
            assert running.right(number, rank, result)


def test_another_stream_takes_a_place_behind_whoever_used_it() -> None:
    """The copy of a result is late on the stream that it was dropped on; the next call is on another one."""
    running = Running(planned(2, SCHEDULES["one kernel"]), seed=5)
    copies = []
    for number, stream in enumerate(["", "side", "", "side", ""]):
        inputs = make_inputs(running.schedule.spec, number)
        for fabric, operator, parts in zip(running.world.fabrics, running.operators, inputs, strict=True):
            with fabric.on_stream(stream):
                out = operator(*parts.values())
                copies.append((number, fabric.rank, kept(fabric.main(), (out,))[0]))
                del out
    running.world.run()
    assert all(running.right(number, rank, result) for number, rank, result in copies)


@pytest.mark.parametrize(
    "pins", [{"out.mover": "CopyEngine()"}, {"out.mover": "CommSms(2)"}, {"out.transfer": "pull"}, {"out.chunks": "2"}]
)
def test_only_tiles_are_told_places(pins: dict[str, str]) -> None:
    with pytest.raises(NoLegalSchedule):
        planned(2, pins)


def _without_telling(schedule: Schedule) -> Schedule:
    return replace(schedule, launches=tuple(x for x in schedule.launches if not isinstance(x, TellPlace)))


def _told_twice(schedule: Schedule) -> Schedule:
    tell = next(x for x in schedule.launches if isinstance(x, TellPlace))
    return replace(schedule, launches=(tell, *schedule.launches))


def _told_behind(schedule: Schedule) -> Schedule:
    tell, *rest = schedule.launches
    return replace(schedule, launches=(rest[0], tell, *rest[1:]))


def _not_awaited(schedule: Schedule) -> Schedule:
    return next(iter(sites(schedule, AwaitPlaces))).drop()


def _awaited_behind(schedule: Schedule) -> Schedule:
    return next(iter(sites(schedule, AwaitPlaces))).swap_with_next()


def _in_symmetric_memory(schedule: Schedule) -> Schedule:
    found = tuple(replace(b, memory=Memory.SYMMETRIC) if b.name == "out" else b for b in schedule.buffers)
    return replace(schedule, buffers=found)


@pytest.mark.parametrize(
    ("change", "bug"),
    [
        (_without_telling, BugClass.WRONG_PLACE),
        (_told_twice, BugClass.REUSE),
        (_told_behind, BugClass.WRONG_PLACE),
        (_not_awaited, BugClass.ORDERING),
        (_awaited_behind, BugClass.ORDERING),
        (_in_symmetric_memory, BugClass.WRONG_PLACE),
    ],
)
def test_refuted(change: Callable[[Schedule], Schedule], bug: BugClass) -> None:
    found = verify(change(planned(2, SCHEDULES["one kernel"]))).findings
    assert bug in {finding.bug for finding in found}, found


def test_printers_and_pools_agree_on_the_places() -> None:
    assert Pool.PLACES == POOL_PLACES
