"""The analysis of accesses against every trace of small programs: what it finds in order is in order in each of them."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from lowering.steps.order import missing
from lowering.steps.sync import synchronised
from tests.schedule.step_mutants import without_a_sync
from tilelink.schedule.index import Index, Number, evaluate, rank
from tilelink.schedule.memory import Access, Buffer, Memory, Region, Signal
from tilelink.schedule.roles import Launch, MeshAxis, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import For, If, Load, Notify, Order, Step, Store, Sync, Wait

Env = dict[str, int]
Rows = tuple[int, int, int]  # rank, first row, behind the last one
PEER: Number = (rank + 1) % 2
STARTS = st.sampled_from([0, 16, Index("i") * 16, Index("i") * 16 + 16])
REGIONS = st.builds(
    lambda start, at, access: Region("b", (start, 0), (16, 16), at, access),
    STARTS,
    st.sampled_from([rank, PEER]),
    st.sampled_from([Access.POINTER, Access.DESCRIPTOR]),
)
ACCESSES = st.one_of(REGIONS.map(lambda region: Load("v", region)), REGIONS.map(lambda region: Store("v", region)))
WORDS = st.sampled_from([Wait("word", (0,), 1, ("b",)), Wait("word", (0,), 1), Notify("word", (0,), PEER, 1)])


def _nested(inner: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    bodies = st.lists(inner, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        bodies.map(lambda body: For("j", 2, body)), st.builds(lambda a, b: If(rank, 0, a, b), bodies, bodies)
    )


BODIES = st.lists(st.recursive(st.one_of(ACCESSES, WORDS), _nested, max_leaves=5), min_size=1, max_size=5).map(tuple)


def program(body: tuple[Step, ...]) -> Schedule:
    """Three rounds of `body`."""
    launch = Launch("main", (Role("work", Sms(1), (Phase(1, (For("i", 3, body),), every=True),)),))
    buffers = (Buffer("b", Memory.SYMMETRIC, (80, 16), "float32"),)
    return Schedule("s", (MeshAxis("ranks", 2),), buffers, (Signal("word", (1,)),), (launch,))


def trace(body: tuple[Step, ...], env: Env) -> Iterator[tuple[Step, Rows]]:
    """What a program does, with the rows that it accesses."""
    for step in body:
        match step:
            case For():
                for number in range(int(evaluate(step.count, env))):
                    yield from trace(step.body, env | {step.variable: number})
            case If():
                equal = evaluate(step.left, env) == evaluate(step.right, env)
                yield from trace(step.body if equal else step.others, env)
            case Load() | Store():
                first = int(evaluate(step.region.start[0], env))
                yield step, (int(evaluate(step.region.at, env)), first, first + 16)
            case _:
                yield step, (0, 0, 0)


def in_order(schedule: Schedule, own: int) -> bool:
    """Whether one trace of rank `own` has what it needs between each two accesses."""
    body = schedule.launches[0].roles[0].phases[0].body
    stored, loaded, unfenced, unflushed = set[Rows](), set[Rows](), set[Rows](), set[Rows]()
    for step, rows in trace(body, {"rank": own, "call": 1}):
        match step:
            case Wait() | Notify() | Sync(Order.BARRIER):
                if isinstance(step, Notify) and unflushed:
                    return False
                stored, loaded = set(), set()
                if isinstance(step, Wait) and step.covers:
                    unfenced.add((own, 0, 80))
            case Sync(Order.FENCE):
                unfenced = set()
            case Sync(Order.FLUSH):
                stored, unflushed = stored | unflushed, set()
            case Load():
                if _meets(rows, stored | unflushed):
                    return False
                if step.region.access is Access.DESCRIPTOR and _meets(rows, unfenced):
                    return False
                loaded.add(rows)
            case Store():
                if _meets(rows, loaded):
                    return False
                if step.region.access is Access.DESCRIPTOR:
                    unflushed.add(rows)
                else:
                    stored.add(rows)
                    unfenced.add(rows)
    return True


def _meets(rows: Rows, others: set[Rows]) -> bool:
    return any(rows[0] == at and rows[1] < end and first < rows[2] for at, first, end in others)


def _found(schedule: Schedule) -> bool:
    (launch,) = schedule.launches
    return bool(missing(schedule, launch, launch.roles[0]))


@settings(max_examples=60, deadline=None)
@given(BODIES)
def test_what_is_found_in_order_is_so_in_every_trace(body: tuple[Step, ...]) -> None:
    schedule = program(body)
    assert _found(schedule) or (in_order(schedule, 0) and in_order(schedule, 1))


@settings(max_examples=20, deadline=None)
@given(BODIES)
def test_the_pass_puts_in_what_is_needed_and_nothing_else(body: tuple[Step, ...]) -> None:
    schedule = synchronised(program(body))
    assert not _found(schedule)
    assert in_order(schedule, 0) and in_order(schedule, 1)
    assert all(_found(less) for _, less in without_a_sync(schedule))
