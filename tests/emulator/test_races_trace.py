"""The trace around a race: who synchronised with whom, in the order in which it happened."""

from __future__ import annotations

import re

import pytest

from tests.emulator import race_kernels as kernels
from tests.emulator.race_scenarios import symmetric, zeros
from tilelink.emulator import Deadlock, Race, World
from tilelink.emulator.races import RaceDetector, Row, Trace


def push_and_take(world: World, **options: object) -> None:
    buffers, signals = symmetric(world, 64, 4)
    there = buffers[1], signals[1][1:], 5
    world.fabrics[0].stream("send").launch(kernels.push, (1,), *there, **options)
    world.fabrics[1].main().launch(kernels.take, (1,), *there, zeros())


def texts(rows: tuple[Row, ...]) -> list[str]:
    return [row.text for row in rows]


@pytest.mark.parametrize("seed", range(4))
def test_rows_around_a_race(seed: int) -> None:
    trace = Trace()
    world = World(2, seed=seed, observers=[RaceDetector(2), trace])
    push_and_take(world, BARRIER=False)
    # of a third party, and therefore in no row
    world.fabrics[0].main().launch(kernels.push, (1,), zeros(), zeros(1), 1)
    with pytest.raises(Race) as caught:
        world.run()
    race = caught.value
    rows = trace.around(race)
    assert [row.number for row in rows] == sorted(row.number for row in rows)
    stored = rows[texts(rows).index("stores buffer[0] of rank 1 (plain)")]
    assert (stored.number, stored.rank, stored.task, stored.place) == (
        race.first.number,
        0,
        "push(0, 0, 0)",
        race.first.place,
    )
    shown = texts(rows)
    raised = shown.index("raises signals[1] of rank 1 to 5 (release, sys)")
    waited = shown.index("waits for signals[1] of rank 1 (value 5; acquire, sys)")
    assert (
        shown.index(stored.text) < raised < waited < shown.index("loads buffer[0] of rank 1 (plain)") == len(rows) - 1
    )
    assert {row.task for row in rows} == {"push(0, 0, 0)", "take(0, 0, 0)"}
    assert re.search(r"at race_kernels.py:\d+ in push$", str(rows[raised]))


def test_the_number_of_rows_is_kept_and_the_race_with_it() -> None:
    trace = Trace()
    world = World(2, seed=1, observers=[RaceDetector(2), trace])
    push_and_take(world, BARRIER=False)
    with pytest.raises(Race) as caught:
        world.run()
    rows = trace.around(caught.value, rows=3)
    assert len(rows) == 3
    assert {caught.value.first.number, caught.value.second.number} <= {row.number for row in rows}


def test_polls_in_a_row_are_one_row() -> None:
    """A wait that is woken again and again is shown once, with the value that ended it."""
    trace = Trace()
    world = World(1, observers=[trace])
    buffers, signals = symmetric(world, 64, 4)
    world.fabrics[0].main().launch(kernels.take, (1,), buffers[0], signals[0][1:], 5, zeros())
    for value in (1, 2, 3, 4, 5):
        world.fabrics[0].stream("side").write(signals[0][1:2], value)
    world.run()
    shown = texts(trace.around(range(1, 10), rows=100))
    waits = [text for text in shown if text.startswith("waits")]
    assert waits == ["waits for signals[1] of rank 0 (value 5; acquire, sys)"]
    writes = [text for text in shown if text.startswith("writes")]
    assert writes == [f"writes {value} to signals[1] of rank 0" for value in (1, 2, 3, 4, 5)]


def test_copies_stream_waits_and_events_are_put_into_words() -> None:
    trace = Trace()
    world = World(2, observers=[trace])
    buffers, signals = symmetric(world, 64, 4)
    side, main = world.fabrics[0].stream("side"), world.fabrics[0].main()
    side.copy(buffers[1][8:], buffers[0][8:])
    side.copy(signals[1][2:3], signals[0][2:3])
    main.after(side)
    world.fabrics[1].main().wait_at_least(signals[1][2:3], 0)
    world.run()
    shown = texts(trace.around(range(1, 20), rows=100))
    assert "copies 224 B to buffer[8] of rank 1" in shown
    assert "copies 0 to signals[2] of rank 1" in shown
    assert "waits until signals[2] of rank 1 is reached (value 0)" in shown
    assert "goes on after operation 2 of stream side" in shown


def test_what_a_task_that_hangs_waits_for_is_its_last_row() -> None:
    trace = Trace()
    world = World(1, observers=[trace])
    buffers, signals = symmetric(world, 64, 4)
    world.fabrics[0].main().launch(kernels.take, (1,), buffers[0], signals[0][3:], 1, zeros())
    with pytest.raises(Deadlock):
        world.run()
    last = trace.around(range(1, 10))[-1]
    assert last.text == "waits for signals[3] of rank 0 (value 0; acquire, sys)"
    assert "tl.atomic_add" in last.place.text


def test_only_the_last_events_are_kept() -> None:
    trace = Trace(synchronisations=5, data=2)
    world = World(1, observers=[trace])
    for _ in range(10):
        world.fabrics[0].main().launch(kernels.fill, (1,), zeros(), 1)
    world.run()
    rows = trace.around(range(1, 40), rows=100)
    assert len(rows) <= 7
    assert rows[-1].number == trace.events
