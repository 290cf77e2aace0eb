"""What is wrong with a schedule is named: its kind, its class of bug, the steps, the ranks, the elements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.schedule.operators import OPERATORS, gemm_rs, queue
from tilelink.ir.enums import Protocol
from tilelink.proof.bug_class import BugClass
from tilelink.proof.happens_before.check import check
from tilelink.proof.happens_before.refuted import Refutation, Wrong
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Buffer, Memory, Region, Signal
from tilelink.schedule.roles import CopyEngine, Engine, Launch, MeshAxis, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import Load, Move, Notify, Step, Store, Wait
from tilelink.schedule.walk import all_steps, mapped, with_bodies

tile = Index("tile")


def part(start: Number, at: Number = rank, buffer: str = "data", extent: Number = 1) -> Region:
    return Region(buffer, (start,), (extent,), at)


def role(name: str, *steps: Step, count: int = 1, engine: Engine | None = None) -> Role:
    return Role(name, engine or Sms(1), (Phase(count, steps),))


def schedule(*roles: Role, memory: Memory = Memory.LOCAL, protocol: Protocol = Protocol.SIMPLE) -> Schedule:
    buffers = (Buffer("x", Memory.INPUT, (8,), "float32"), Buffer("data", memory, (8,), "float32", protocol))
    signals = (Signal("word", (2,)), Signal("back", (2,)))
    return Schedule("few steps", (MeshAxis("ranks", 2),), buffers, signals, (Launch("main", roles),))


def wrong(one: Schedule, calls: int = 1) -> Wrong:
    found = check(one, calls=calls)
    assert found is not None
    return found.wrong


WRITE, READ, OTHER = Store("t", part(0)), Load("t", part(0)), Load("t", part(1))
RAISE, AWAIT = Notify("word", (0,), rank, call), Wait("word", (0,), call, ("data",))
WIDER = Move((part(0, extent=4, buffer="x"),), (part(0, extent=2),))  # fills more than its target


def test_a_read_behind_its_wait_is_proved_and_one_before_it_is_not() -> None:
    assert check(schedule(role("w", WRITE, RAISE), role("r", AWAIT, READ))) is None
    assert wrong(schedule(role("w", WRITE, RAISE), role("r", READ, AWAIT))) is Wrong.NOT_AWAITED
    assert wrong(schedule(role("w", RAISE, WRITE), role("r", AWAIT, READ))) is Wrong.TOLD_EARLY


def test_a_wait_that_does_not_cover_a_load_does_not_hold_it() -> None:
    bare = replace(AWAIT, covers=())
    assert wrong(schedule(role("w", WRITE, RAISE), role("r", bare, READ))) is Wrong.NOT_AWAITED
    moved = Move((part(0),), (part(1),))
    engine = role("r", bare, moved, engine=CopyEngine())
    assert check(schedule(role("w", WRITE, RAISE), engine), calls=1) is None  # copy engines do one after the other
    assert wrong(schedule(role("w", WRITE, RAISE), role("r", bare, moved))) is Wrong.NOT_AWAITED


@pytest.mark.parametrize(
    ("expected", "one"),
    [
        (Wrong.WRITTEN_BY_TWO, schedule(role("a", WRITE), role("b", WRITE))),
        (Wrong.NEVER_WRITTEN, schedule(role("w", WRITE), role("r", OTHER))),
        (Wrong.NEVER_WRITTEN, schedule(role("w", Store("t", part(0, extent=4)), Load("t", part(2, extent=3))))),
        (Wrong.OVERWRITTEN, schedule(role("w", WRITE, RAISE, READ), role("r", AWAIT, WRITE))),
        (Wrong.INPUT_WRITTEN, schedule(role("w", Store("t", part(0, buffer="x"))))),
        (Wrong.CIRCLE, schedule(role("a", AWAIT, Notify("back", (0,), rank, call)), role("b", Wait("back", (0,), 1), RAISE))),
        (Wrong.NEVER_RAISED, schedule(role("a", RAISE), role("b", replace(AWAIT, until=2)))),
        (Wrong.NEVER_RAISED, schedule(role("a", replace(RAISE, last_of=2)), role("b", AWAIT))),
        (Wrong.SET_BACK, schedule(role("a", Notify("word", (0,), rank, 2), Notify("word", (0,), rank, 1)))),
        (Wrong.SET_IN_NO_ORDER, schedule(role("a", RAISE), role("b", replace(RAISE, to=2)))),
        (Wrong.SET_AND_ADDED, schedule(role("a", RAISE, replace(RAISE, to=None)))),
        (Wrong.TOO_MANY, schedule(role("a", replace(RAISE, last_of=2), count=3))),
        (Wrong.ANY_COUNT, schedule(*(role(one, replace(RAISE, to=None)) for one in "abc"), role("d", replace(AWAIT, until=2)))),
        (Wrong.NO_WORD, schedule(role("a", replace(RAISE, index=(2,))))),
        (Wrong.OUTSIDE, schedule(role("a", Store("t", part(9))))),
        (Wrong.NO_PROGRAM, schedule(replace(role("a", RAISE), engine=Sms(0)))),
        (Wrong.WRITTEN_LATER, schedule(role("a", READ, WRITE))),
        (Wrong.NO_RANK, schedule(role("a", replace(RAISE, at=rank + 1)))),
        (Wrong.NOT_SYMMETRIC, schedule(role("a", Store("t", part(0, (rank + 1) % 2))))),
        (Wrong.MALFORMED, schedule(role("a", replace(RAISE, index=(Index("nothing"),))))),
        (Wrong.MALFORMED, schedule(role("a", replace(RAISE, index=(tile % (rank * 0),))))),
        (Wrong.MALFORMED, schedule(role("a", WIDER), role("b", Store("t", part(2))))),
        (Wrong.MALFORMED, schedule(role("a", WRITE), role("warps in none", RAISE, engine=Sms(1, inside=True)))),
        (Wrong.MALFORMED, schedule(role("warps", WRITE, engine=Sms(1, inside=True)), role("b", engine=CopyEngine()))),
    ],
)  # fmt: skip
def test_each_kind_is_told_apart(expected: Wrong, one: Schedule) -> None:
    assert wrong(one) is expected


def test_calls_that_are_not_alike_are_proved_by_number_only() -> None:
    squares = schedule(role("a", replace(RAISE, to=call * call)))
    assert check(squares, calls=5) is None and wrong(squares, 0) is Wrong.UNLIKE
    slower = schedule(role("a", replace(RAISE, to=call * 2), AWAIT))
    assert check(slower, calls=5) is None and wrong(slower, 0) is Wrong.UNEVEN


def test_an_emptied_word_of_lamport_is_read_once() -> None:
    one = role("a", WRITE, READ)
    assert check(schedule(one, protocol=Protocol.LAMPORT)) is None
    twice = role("a", WRITE, READ, READ)
    assert wrong(schedule(twice, protocol=Protocol.LAMPORT)) is Wrong.NEVER_WRITTEN
    assert check(schedule(twice, protocol=Protocol.LL)) is None


def test_a_word_that_several_set_in_no_order() -> None:
    """The second program may set 2 before the first has written: the reader goes on, and then the word is set back to 1."""
    writer = Role("write", Sms(3), (Phase(3, (Store("t", part(tile)), replace(RAISE, to=call * 3 - 2 + tile))),))
    assert wrong(schedule(writer, role("read", replace(AWAIT, until=call * 3 - 2), READ))) is Wrong.SET_IN_NO_ORDER


def test_a_wait_for_less_than_nothing_waits_for_nothing() -> None:
    writer = role("write", Store("t", part(tile)), replace(RAISE, to=None), count=3)
    assert wrong(schedule(writer, role("read", replace(AWAIT, until=call * 0 - 2), READ))) is Wrong.EARLY_READ


def _instead(schedule: Schedule, old: Step, new: Step) -> Schedule:
    return with_bodies(schedule, lambda body: mapped(body, lambda step: (new if step == old else step,)))


def _dropped(one: Schedule) -> Iterator[tuple[str, Schedule]]:
    """Each wait without one of the buffers that it covers."""
    for wait in all_steps(one):
        if isinstance(wait, Wait):
            for name in wait.covers:
                less = tuple(other for other in wait.covers if other != name)
                yield name, _instead(one, wait, replace(wait, covers=less))


def test_every_cover_of_the_operators_is_needed() -> None:
    """Where peers or other programs write what a load reads, a wait that does not cover it is refuted."""
    seen = 0
    for name, make in OPERATORS.items():
        operator = make()
        tables = {table: found.numpy() for table, found in operator.tables().items()}
        for covered, mutant in _dropped(operator.schedule):
            # the caller reads in stream order, so the wait at the end of GEMM+AR needs no cover
            proved = (name, covered) == ("gemm_ar_in_place", "out")
            found = check(mutant, tables)
            kinds = {None} if proved else {Wrong.NOT_AWAITED, Wrong.EARLY_READ}
            assert (found and found.wrong) in kinds, f"{name}: {covered}"
            seen += 1
    assert seen >= 12


def test_the_two_steps_and_their_elements_are_told() -> None:
    one = gemm_rs(3).schedule
    late = with_bodies(
        one, lambda body: mapped(body, lambda step: () if isinstance(step, Wait) and step.covers else (step,))
    )
    found = check(late)
    assert isinstance(found, Refutation) and found.bug is BugClass.ORDERING
    reader, writer = found.places
    assert (reader.program, reader.rank, reader.call) == ("gemm.0", 0, 1)
    assert reader.what == "parts[1, 0 : +16, 0 : +16]@0" and writer.step.startswith("store acc -> parts")
    assert (writer.rank, writer.what) == (1, reader.what)
    assert "a region is read" in str(found) and str(writer) in str(found)
    assert found.finding.bug is found.bug and str(writer) in found.finding.fact


def test_a_place_of_a_ring_that_is_used_too_early() -> None:
    one = queue().schedule
    (free,) = (step for step in all_steps(one) if isinstance(step, Wait) and step.signal == "free")
    found = check(_instead(one, free, replace(free, until=free.until - 1)))
    assert found is not None and found.bug in (BugClass.REUSE, BugClass.STALE_SIGNAL)
