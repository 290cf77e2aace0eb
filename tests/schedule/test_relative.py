"""Words that each call counts anew: the same comparisons as those of words that grow."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.steps.closing import stream_ends
from lowering.steps.relative import Anew, affine, relative
from tilelink.schedule.index import Index, Number, call, evaluate, rank
from tilelink.schedule.memory import Signal
from tilelink.schedule.roles import CopyEngine, Launch, MeshAxis, Phase, Role, Schedule, Sms, Who
from tilelink.schedule.steps import For, Notify, Step, Wait
from tilelink.schedule.walk import all_steps

PEER = (rank + 1) % 4


def schedule(*steps: Step) -> Schedule:
    role = Role("role", Sms(4), (Phase(1, steps),))
    return Schedule("words", (MeshAxis("ranks", 4),), (), (Signal("word", (1,)),), (Launch("main", (role,)),))


LEAVES = st.one_of(st.integers(-5, 5), st.sampled_from([call, rank, Index("m")]))
INDICES = st.recursive(
    LEAVES,
    lambda inner: st.builds(lambda op, a, b: Index(op, (a, b)), st.sampled_from(["+", "-", "*"]), inner, inner),
    max_leaves=6,
)


@given(INDICES, st.integers(1, 9), st.integers(0, 3), st.integers(0, 9))
def test_an_affine_index_is_its_two_parts(index: Number, number: int, own: int, m: int) -> None:
    parts = affine(index)
    if parts is not None:
        names = {"call": number, "rank": own, "m": m}
        base, each = (evaluate(one, names) for one in parts)
        assert base + each * number == evaluate(index, names)


@given(st.integers(1, 7), st.integers(0, 2), st.integers(0, 40), st.integers(1, 9))
def test_a_comparison_with_what_peers_add_stays(each: int, late: int, arrived: int, number: int) -> None:
    """The word after `arrived` raises, in call `number`, of which `number - 1` have ended."""
    until = (call - late) * each
    planned = schedule(Wait("word", (0,), until), Notify("word", (0,), PEER))
    counted, anew = relative(planned)
    (wait,) = (step for step in all_steps(counted) if isinstance(step, Wait))
    how = anew["word"]
    word = how.first + arrived - how.per_call * (number - 1)
    assert isinstance(wait.until, int) and wait.until > 0 and how.per_call == each
    assert (word >= wait.until) == (arrived >= evaluate(until, {"call": number}))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((Wait("word", (0,), call), Notify("word", (0,), rank, call)), Anew(0, 0, True)),
        ((Wait("word", (0,), call * Index("m")), Notify("word", (0,), rank)), Anew(0, 0, True)),
        ((Wait("word", (0,), call), Notify("word", (0,), PEER, call)), None),  # a rank may not set back what peers set
        ((Wait("word", (0,), call - 1), Notify("word", (0,), rank, call)), None),  # set by the call before
        ((Wait("word", (0,), (call - 1) * 2), Notify("word", (0,), rank)), None),
        ((Wait("word", (0,), call * Index("m")), Notify("word", (0,), PEER)), None),  # words of peers that differ
        ((Wait("word", (0,), call // 2), Notify("word", (0,), PEER)), None),
        ((Wait("word", (0,), call * 3), Wait("word", (0,), call * 2), Notify("word", (0,), PEER)), None),
    ],
)
def test_what_can_be_counted_anew(steps: tuple[Step, ...], expected: Anew | None) -> None:
    assert relative(schedule(*steps))[1].get("word") == expected


def ending(*last: Step) -> tuple[Launch, Launch]:
    told = Phase(1, (Notify("copied", (Index("program"),), rank, call),), every=True)
    copies = Role("copies", CopyEngine(2), (Phase(3, (), title="copies"), told))
    return Launch("side", (copies,)), Launch("main", (Role("tiles", Sms(8), (Phase(1, last, who=Who.LAST),)),))


def test_the_last_program_ends_a_call_whose_streams_it_waits_for() -> None:
    side, main = ending(For("stream", 2, (Wait("copied", (Index("stream"),), call),)))
    assert stream_ends(main, side)


@pytest.mark.parametrize(
    "last",
    [(), (Wait("copied", (0,), call),), (For("stream", 1, (Wait("copied", (Index("stream"),), call),)),)],
)
def test_it_does_not_where_it_waits_for_less(last: tuple[Step, ...]) -> None:
    side, main = ending(*last)
    assert not stream_ends(main, side)


def test_nor_where_a_stream_goes_on_behind_the_word() -> None:
    side, main = ending(For("stream", 2, (Wait("copied", (Index("stream"),), call),)))
    (copies,) = side.roles
    more = replace(copies, phases=(*copies.phases, Phase(1, (Notify("late", (0,), rank, call),))))
    assert not stream_ends(main, replace(side, roles=(more,)))
