"""Mistakes in a signature and in what a function returns."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

import tilelink
from tests.errors.blame import blamed_line
from tilelink import Partial, Replicate, Shard, Tensor, dims
from tilelink.errors import (
    BadAnnotation,
    BadShape,
    NotAFunction,
    NothingReturned,
    ShardOutOfRange,
    UnknownPlacement,
    UnreducedOutput,
)

M, N, K = dims("M N K")


@pytest.mark.parametrize("placement", ["Shard(0)", 0, Shard, None])
def test_a_placement_that_is_none(placement: Any) -> None:
    with pytest.raises(UnknownPlacement) as caught:
        Tensor(M, K, placement=placement)
    error = caught.value
    assert error.facts == {"placement": placement, "tensor": "Tensor(M, K)"}
    assert blamed_line(error, __file__) == "Tensor(M, K, placement=placement)"
    for legal in ("Replicate()", "Shard(dim)", "Partial()"):
        assert legal in str(error)


@pytest.mark.parametrize("dim", [2, -3, "0"])
def test_shard_of_a_dimension_that_is_not_there(dim: Any) -> None:
    with pytest.raises(ShardOutOfRange) as caught:
        Tensor(M, K, placement=Shard(dim))
    assert caught.value.facts["dim"] == dim
    assert caught.value.facts["rank"] == 2
    assert caught.value.facts["legal"] == "Shard(0), Shard(1)"
    assert "Shard(0), Shard(1)" in str(caught.value)
    assert blamed_line(caught.value, __file__) == "Tensor(M, K, placement=Shard(dim))"


@pytest.mark.parametrize("shape", [(), (M, N, K, M, N), (0, K), (-4, K), (2.5, K), ("M", K), (True, K)])
def test_shapes(shape: tuple[Any, ...]) -> None:
    with pytest.raises(BadShape) as caught:
        Tensor(*shape)
    assert caught.value.facts["rank"] == len(shape)
    assert caught.value.facts["legal"] == "1 to 4"
    assert "1 to 4 dimensions, each a dims() symbol or a positive integer" in str(caught.value)
    assert blamed_line(caught.value, __file__) == "Tensor(*shape)"


def test_annotation_of_another_type() -> None:
    with pytest.raises(BadAnnotation) as caught:

        @tilelink.overlap
        def f(x: Annotated[Tensor, (M, K)], w: int) -> object:
            return tilelink.relu(x)

    assert caught.value.facts == {"parameter": "w", "function": "f", "annotation": "int", "reason": ""}
    assert "w: int" in blamed_line(caught.value, __file__)
    assert "w: Tensor(M, K, placement=Shard(0))" in str(caught.value)
    assert "w: Annotated[Tensor, (M, K), Shard(0)]" in str(caught.value)


def test_no_annotation() -> None:
    with pytest.raises(BadAnnotation) as caught:

        @tilelink.overlap
        def f(  # type: ignore[no-untyped-def]
            x: Annotated[Tensor, (M, K)],
            w,
        ):
            return tilelink.relu(x)

    assert caught.value.facts["annotation"] == "nothing"
    assert blamed_line(caught.value, __file__).startswith("w,")


def test_any_number_of_tensors() -> None:
    with pytest.raises(BadAnnotation) as caught:

        @tilelink.overlap
        def f(*xs: Annotated[Tensor, (M, K)]) -> object:
            return tilelink.relu(xs[0])

    assert caught.value.facts["parameter"] == "xs"
    assert "any number" in str(caught.value)
    assert "*xs" in blamed_line(caught.value, __file__)


@pytest.mark.parametrize(
    "text", ["Tensr(M, K)", "Tensor(M,", "Tensor(M, K, plcement=0)", "Annotated[Tensor]", "Tensor"]
)
def test_annotation_that_cannot_be_evaluated(text: str) -> None:
    def f(x: object) -> object:
        return x

    f.__annotations__["x"] = text
    with pytest.raises(BadAnnotation) as caught:
        tilelink.overlap(f)
    assert caught.value.facts["annotation"] == text
    assert blamed_line(caught.value, __file__) == "def f(x: object) -> object:"


def test_an_error_inside_an_annotation_names_its_line() -> None:
    with pytest.raises(ShardOutOfRange) as caught:

        @tilelink.overlap
        def f(
            x: Annotated[Tensor, (M, K)],
            w: Annotated[Tensor, (K, N), Shard(2)],
        ) -> object:
            return tilelink.matmul(x, w)

    assert blamed_line(caught.value, __file__) == "w: Annotated[Tensor, (K, N), Shard(2)],"

    with pytest.raises(ShardOutOfRange) as caught:

        @tilelink.overlap
        def g(
            x: Annotated[Tensor, (M, K)],
            w: Tensor(K, N, placement=Shard(3)),  # type: ignore[valid-type]
        ) -> object:
            return tilelink.matmul(x, w)

    assert blamed_line(caught.value, __file__).startswith("w: Tensor(K, N, placement=Shard(3)),")


@pytest.mark.parametrize("value", [3, "f", print, int, None])
def test_not_a_function(value: Any) -> None:
    with pytest.raises(NotAFunction) as caught:
        tilelink.overlap(value)
    assert caught.value.facts == {"value": repr(value)}
    assert blamed_line(caught.value, __file__) == "tilelink.overlap(value)"
    assert "Legal: a def whose parameters are tensors" in str(caught.value)


def _returning(what: str) -> None:
    @tilelink.overlap
    def f(x: Annotated[Tensor, (M, K)]) -> object:
        y = tilelink.relu(x)
        return {"None": None, "number": 1, "list": [y], "parameter": x, "empty": (), "mixed": (y, x)}[what]


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("None", "None"),
        ("number", "1"),
        ("list", "[Tensor(M, K, placement=Replicate())]"),
        ("parameter", "a parameter"),
        ("mixed", "a parameter"),
        ("empty", "nothing"),
    ],
)
def test_nothing_returned(what: str, shown: str) -> None:
    with pytest.raises(NothingReturned) as caught:
        _returning(what)
    assert caught.value.facts == {"function": "f", "value": shown}
    assert blamed_line(caught.value, __file__) == "@tilelink.overlap"
    assert "return one tensor or a tuple of tensors" in str(caught.value)


def test_a_partial_output() -> None:
    with pytest.raises(UnreducedOutput) as caught:

        @tilelink.overlap
        def f(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> object:
            return tilelink.matmul(x, w)

    assert caught.value.facts == {"function": "f", "tensor": "matmul_out"}
    assert blamed_line(caught.value, __file__) == "return tilelink.matmul(x, w)"
    assert "reduce_scatter(…, dim)" in str(caught.value)
    assert "all_reduce(…)" in str(caught.value)


def test_defaults_are_legal() -> None:
    assert Tensor(M, K).placement == Replicate()
    assert Tensor(M, K, placement=Partial()).placement == Partial()
    assert Tensor(8, 2 * K).shape == (8, 2 * K)
