"""Names for numbers leave printed code, where nothing but their value counts."""

from __future__ import annotations

from dataclasses import replace

from lowering.steps.folding import folded
from tests.schedule.operators import OPERATORS
from tilelink.schedule.index import Index, least
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Launch, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import For, If, Load, Notify, Step, Store

CHUNK, M = Index("chunk"), Index("m")


def body_of(*body: Step, let: tuple[tuple[str, Index | int], ...] = (("chunk", 0),)) -> Phase:
    schedule = Schedule("one", (), (), (), (Launch("main", (Role("tiles", Sms(1), (Phase(4, body, let),)),)),))
    return folded(schedule).launches[0].roles[0].phases[0]


def test_numbers_take_the_place_of_their_names() -> None:
    phase = body_of(Notify("told", (CHUNK * 4 + 1,), Index("rank")))
    assert phase.let == ()
    assert phase.body == (Notify("told", (1,), Index("rank")),)


def test_names_that_follow_from_numbers_are_folded_as_well() -> None:
    let = (("chunk", 0), ("first", CHUNK * 64), ("m", Index("first") + Index("tile")))
    assert body_of(Notify("told", (M,), Index("rank")), let=let).let == (("m", Index("tile")),)


def test_extents_say_how_large_a_tile_is() -> None:
    """`min(16, 8 - m)` is a tile of 16 rows, also where m is 0."""
    region = Region("x", (M, 0), (least(16, 8 - M), 64))
    phase = body_of(Load("a", region), Store("a", region), let=(("m", 0),))
    assert phase.let == (("m", 0),)
    assert phase.body == (Load("a", region), Store("a", region))


def test_what_is_compared_keeps_its_name() -> None:
    branch = If(M, 0, (Notify("told", (M,), Index("rank")),))
    assert body_of(branch, let=(("m", 0),)).body == (branch,)


def test_names_of_loops_are_folded_inside() -> None:
    inner = Notify("told", (CHUNK + Index("step"),), Index("rank"))
    phase = body_of(For("step", 3, (inner,), (("chunk", 1),)), let=())
    assert phase.body == (For("step", 3, (replace(inner, index=(1 + Index("step"),)),)),)


def test_operators_without_names_for_numbers_stay_as_they_are() -> None:
    for build in OPERATORS.values():
        schedule = build().schedule
        assert folded(schedule) == schedule
