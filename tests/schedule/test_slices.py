"""Runs of steps that do the same with each slice of a tile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowering.steps.slices import Body, sliced
from tilelink.schedule.index import Index, Number, least
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import Compute, Load, Notify, Store

M, N = Index("m"), Index("n")
HALVES = Compute(("y_0_64", "y_64_128"), "halves", ("y",))
TOLD = Notify("told", (0,), Index("rank"))


def work(value: str, column: Number, cols: int = 200) -> Body:
    """`value` + parts -> out."""
    region = Region("parts", (M, column), (128, least(64, cols - column)))
    adding = Compute(("out",), "add", (value, "part"))
    return Load("part", region), adding, Store("out", replace(region, buffer="out"))


def test_two_slices() -> None:
    copies = [(Compute(("total",), "copy", (value,)), *work("total", start)) for value, start in slices()]
    found = sliced((TOLD, HALVES, *copies[0], *copies[1], TOLD))
    assert found is not None
    assert (found.tile, found.values, found.column, found.starts) == ("y", ("y_0_64", "y_64_128"), "n", (N, N + 64))
    assert (found.before, found.behind) == ((TOLD, HALVES), (TOLD,))
    assert found.work == (Compute(("total",), "copy", ("y",)), *work("total", N))
    assert found.names == ("m", "n", "rank")


def slices() -> list[tuple[str, Number]]:
    return [("y_0_64", N), ("y_64_128", N + 64)]


def test_slices_of_slices_are_named_from_left_to_right() -> None:
    halves = [
        Compute((f"y_{at}_{at + 32}", f"y_{at + 32}_{at + 64}"), "halves", (f"y_{at}_{at + 64}",)) for at in (0, 64)
    ]
    names = [f"y_{at}_{at + 32}" for at in range(0, 128, 32)]
    stores = [Store(name, Region("out", (M, N + 32 * place), (128, 32))) for place, name in enumerate(names)]
    found = sliced((HALVES, *halves, *stores))
    assert found is not None
    assert found.values == tuple(names)
    assert found.work == (Store("y", Region("out", (M, N), (128, 32))),)


A, B = (Store(value, Region("out", (M, start), (128, 64))) for value, start in slices())


@pytest.mark.parametrize(
    "body",
    [
        (A, B),
        (HALVES, A),
        (HALVES, A, TOLD, B),
        (HALVES, A, replace(B, region=replace(B.region, buffer="other"))),
        (HALVES, A, replace(B, region=replace(B.region, start=(M + 1, N + 64)))),
        (HALVES, Compute(("z",), "add", ("y_0_64", "y")), Compute(("z",), "add", ("y_64_128", "y"))),
    ],
    ids=["no slices", "one is left", "one is told of", "other buffer", "other row", "the tile is needed as well"],
)
def test_other_runs_are_printed_as_they_are(body: Body) -> None:
    assert sliced(body) is None
