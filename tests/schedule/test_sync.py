"""Sync steps: where accesses of one program need a barrier, a fence or a flush, over loops and branches, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowering.steps.errors import LastNotAtEnd, OverlappingMove
from lowering.steps.late import deferred
from lowering.steps.order import missing
from lowering.steps.sync import ordered, synchronised
from tests.schedule.operators import OPERATORS, ag_gemm, gemm_rs, queue, two_level_rs
from tests.schedule.step_mutants import without_a_sync
from tests.schedule.variants import by_descriptor
from tilelink.schedule.index import Index, difference, rank
from tilelink.schedule.memory import Access, Buffer, Memory, Region, Signal
from tilelink.schedule.roles import Launch, MeshAxis, Phase, Prefetch, Role, Schedule, Sms, Who
from tilelink.schedule.steps import Compute, For, If, Load, Move, Notify, Order, Step, Store, Sync, Wait
from tilelink.schedule.walk import all_steps

i, tile = Index("i"), Index("tile")
BARRIER, FENCE, FLUSH = Sync(Order.BARRIER), Sync(Order.FENCE), Sync(Order.FLUSH)
WAIT, NOTIFY = Wait("word", (0,), 1, ("b",)), Notify("word", (0,), (rank + 1) % 2, 1)


def at(start: object = 0, where: object = rank, access: Access = Access.POINTER, extent: int = 16) -> Region:
    return Region("b", (start, 0), (extent, 16), where, access)  # type: ignore[arg-type]


def load(*args: object, **more: object) -> Load:
    return Load("v", at(*args, **more))  # type: ignore[arg-type]


def store(*args: object, **more: object) -> Store:
    return Store("v", at(*args, **more))  # type: ignore[arg-type]


def described(kind: type[Load] | type[Store]) -> Step:
    return kind("v", at(0, rank, Access.DESCRIPTOR))


def schedule(*phases: Phase) -> Schedule:
    launch = Launch("main", (Role("work", Sms(2), phases),))
    buffers = (Buffer("b", Memory.SYMMETRIC, (64, 16), "float32"),)
    return Schedule("s", (MeshAxis("ranks", 2),), buffers, (Signal("word", (1,)),), (launch,))


def phase(*body: Step, who: Who = Who.EACH) -> Phase:
    return Phase(1, body, who=who, every=who is Who.EACH)


def made(*body: Step) -> tuple[Step, ...]:
    """`body`, done once by each program, with what the pass adds."""
    found = synchronised(schedule(phase(*body)))
    return found.launches[0].roles[0].phases[0].body


Bodies = tuple[tuple[Step, ...], tuple[Step, ...]]
CASES: dict[str, Bodies] = {
    "load of what was stored": ((store(), load()), (store(), BARRIER, load())),
    "store over what was loaded": ((load(), store()), (load(), BARRIER, store())),
    "another buffer part": ((store(0), load(16)), (store(0), load(16))),
    "a part that overlaps": ((store(0), load(8)), (store(0), BARRIER, load(8))),
    "a wait is a barrier": ((store(), WAIT, load()), (store(), WAIT, load())),
    "a notify is a barrier": ((store(), NOTIFY, load()), (store(), NOTIFY, load())),
    "a store at a peer": ((store(0, (rank + 1) % 2), load()), (store(0, (rank + 1) % 2), load())),
    "two loads": ((load(), load()), (load(), load())),
    "a fence behind the wait": ((WAIT, described(Load)), (WAIT, FENCE, described(Load))),
    "no fence for pointers": ((WAIT, load()), (WAIT, load())),
    "a flush before the notify": ((described(Store), NOTIFY), (described(Store), FLUSH, NOTIFY)),
    "a flush and a barrier": ((described(Store), load()), (described(Store), FLUSH, BARRIER, load())),
    "stored, then by descriptor": ((store(), described(Load)), (store(), BARRIER, FENCE, described(Load))),
    "over the back edge": (  # a round loads what the round before has stored
        (For("i", 3, (load(i * 16), Compute(("v",), "relu", ("v",)), store(i * 16 + 16))),),
        (For("i", 3, (load(i * 16), Compute(("v",), "relu", ("v",)), store(i * 16 + 16), BARRIER)),),
    ),
    "one barrier in front of a loop of loads": (
        (store(), For("i", 3, (load(),))),
        (store(), BARRIER, For("i", 3, (load(),))),
    ),
    "in a branch only": (
        (store(), If(rank, 0, (load(),), (WAIT,))),
        (store(), If(rank, 0, (BARRIER, load()), (WAIT,))),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_where_they_stand(case: str) -> None:
    before, behind = CASES[case]
    found = made(*before)
    if case in ("in a branch only", "a flush and a barrier", "stored, then by descriptor"):  # in any order or place
        assert sorted(map(str, _syncs(found))) == sorted(map(str, _syncs(behind)))
    else:
        assert found == behind


def _syncs(body: tuple[Step, ...]) -> list[Step]:
    return [step for step in all_steps(schedule(phase(*body))) if isinstance(step, Sync)]


def _missing(one: Schedule) -> list[object]:
    roles = [(launch, role) for launch in one.launches for role in launch.roles if not role.by_host]
    return [fault for launch, role in roles for fault in missing(one, launch, role)]


REAL = {
    "two_level_rs": two_level_rs().schedule,
    "gemm_rs": by_descriptor(gemm_rs(), "x", "w", "parts", "out").schedule,
    "ag_gemm": by_descriptor(ag_gemm(), "x", "x_full", "out").schedule,
    "queue": by_descriptor(queue(), "ring", "out").schedule,
}


@pytest.mark.parametrize("name", REAL)
def test_each_one_is_needed(name: str) -> None:
    found = synchronised(REAL[name])
    assert not [
        fault
        for launch in found.launches
        for role in launch.roles
        if _on_sms(role)
        for fault in missing(found, launch, role)
    ]
    mutants = [one for _, one in without_a_sync(found)]
    assert mutants
    assert all(any(missing(one, launch, role) for launch in one.launches for role in launch.roles) for one in mutants)


def _on_sms(role: Role) -> bool:
    return isinstance(role.engine, Sms)


@pytest.mark.parametrize("name", [name for name in OPERATORS if name != "two_level_rs"])
def test_operators_need_none(name: str) -> None:
    one = OPERATORS[name]().schedule
    assert synchronised(one) == one


def test_a_flush_stands_behind_all_tiles_not_in_each() -> None:
    out = phase(described(Store))  # to memory that peers reach
    last = phase(NOTIFY, who=Who.LAST)
    found = synchronised(schedule(replace(out, every=False, count=4), last)).launches[0].roles[0].phases
    assert [one.body for one in found] == [(described(Store),), (FLUSH,), (NOTIFY,)]


@pytest.mark.parametrize("count", [2, 4], ids=["one tile a program", "several"])
def test_a_flush_stands_before_a_notify_of_the_tile_before(count: int) -> None:
    """Behind the last tile it is carried out once more."""
    tiles = Phase(count, (described(Store), NOTIFY), pipelining=Prefetch(defer=True))
    (found,) = synchronised(deferred(schedule(tiles))).launches[0].roles[0].phases
    assert found.body == (NOTIFY, described(Store), FLUSH)


def test_what_no_sync_helps() -> None:
    one = schedule(phase(Move((at(0),), (at(8),))))
    with pytest.raises(OverlappingMove, match="b"):
        synchronised(one)
    two = schedule(phase(NOTIFY, who=Who.LAST), phase(load()))
    with pytest.raises(LastNotAtEnd):
        ordered(two, two.launches[0], two.launches[0].roles[0])


def test_differences_of_indices() -> None:
    assert difference(i * 16 + 24, i * 16 + 8) == 16
    assert difference((i + 1) * 16, i * 16) is None or difference((i + 1) * 16, i * 16) == 16
    assert difference(i, tile) is None
