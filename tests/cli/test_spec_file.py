"""Spec files, sizes and pins: what is read, and the error class and facts of what cannot be."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli.conftest import SPEC
from tilelink.cli_errors import (
    DuplicatePin,
    DuplicateSize,
    MalformedPin,
    MalformedSize,
    NoFunctionNamed,
    NoSuchFunction,
    NotAnOverlap,
    OptionAmongSizes,
    SizeNotInteger,
    SizeNotPositive,
    SpecFileBroken,
    SpecFileMissing,
)
from tilelink.declaration import Overlap
from tilelink.errors import MissingSize
from tilelink.spec_file import load_overlap, parse_pins, parse_sizes

if TYPE_CHECKING:
    from pathlib import Path

    from topologies.errors import UserError


def test_loads_the_named_overlap(spec_path: Path) -> None:
    assert isinstance(load_overlap("layers.py:gemm_rs"), Overlap)
    assert isinstance(load_overlap(f"{spec_path}:ag_gemm"), Overlap)


def test_loading_leaves_nothing_behind_but_the_module(spec_path: Path) -> None:
    before = list(sys.path)
    load_overlap("layers.py:ag_gemm")
    assert sys.path == before
    assert sorted(spec_path.parent.iterdir()) == [spec_path]


def test_spec_file_imports_its_neighbours(spec_path: Path) -> None:
    (spec_path.parent / "neighbour_of_layers.py").write_text("from tilelink import overlap as O\n")
    head, ag_gemm, _ = SPEC.split("@tilelink.overlap")
    spec_path.write_text(f"from neighbour_of_layers import O\n{head}@O{ag_gemm}")
    try:
        assert isinstance(load_overlap("layers.py:ag_gemm"), Overlap)
    finally:
        sys.modules.pop("neighbour_of_layers", None)


@pytest.mark.parametrize("text", ["layers.py", "", ":", "layers.py:", ":ag_gemm"])
def test_no_function_named(spec_path: Path, text: str) -> None:
    with pytest.raises(NoFunctionNamed) as caught:
        load_overlap(text)
    assert caught.value.facts["spec"] == text


def test_spec_file_missing(spec_path: Path) -> None:
    with pytest.raises(SpecFileMissing) as caught:
        load_overlap("layer.py:ag_gemm")
    assert caught.value.facts["path"] == "layer.py"
    assert caught.value.facts["hint"] == " Did you mean 'layers.py'?"


def test_a_missing_spec_file_with_nothing_like_it(spec_path: Path) -> None:
    for text in ("nope.py:ag_gemm", "absent/layers.py:ag_gemm"):
        with pytest.raises(SpecFileMissing) as caught:
            load_overlap(text)
        assert caught.value.facts["hint"] == ""


def test_a_folder_is_no_spec_file(spec_path: Path) -> None:
    with pytest.raises(SpecFileMissing):
        load_overlap(".:ag_gemm")


@pytest.mark.parametrize(
    ("source", "where", "exception"),
    [
        ("x = 1\ny = x +\n", "layers.py:2", "SyntaxError: invalid syntax"),
        (
            "x = 1\n\nprint(undefined_here)\n",
            "layers.py:3",
            "NameError: name 'undefined_here' is not defined",
        ),
        (
            "def f():\n    return 1 // 0\n\nf()\n",
            "layers.py:2",
            "ZeroDivisionError: integer division or modulo by zero",
        ),
        ("import json\njson.loads('nonsense')\n", "layers.py:2", "JSONDecodeError: Expecting value"),
        ("import sys\nsys.exit(4)\n", "layers.py:2", "SystemExit: 4"),
        ("\0", "layers.py", "source code string cannot contain null bytes"),
    ],
)
def test_spec_file_broken(spec_path: Path, source: str, where: str, exception: str) -> None:
    spec_path.write_text(source)
    with pytest.raises(SpecFileBroken) as caught:
        load_overlap("layers.py:ag_gemm")
    assert caught.value.facts["where"] == where
    assert exception in str(caught.value.facts["exception"])
    assert "tilelink_spec_layers" not in sys.modules


def test_an_error_of_ours_in_the_file_keeps_its_class(spec_path: Path) -> None:
    spec_path.write_text(
        "from tilelink.errors import MissingSize\nraise MissingSize(function='f', needed='M', missing='M')\n"
    )
    with pytest.raises(MissingSize):
        load_overlap("layers.py:ag_gemm")


def test_no_such_function(spec_path: Path) -> None:
    with pytest.raises(NoSuchFunction) as caught:
        load_overlap("layers.py:ag_gem")
    assert "'ag_gemm'" in str(caught.value.facts["hint"])
    assert "ag_gemm, gemm_rs" in str(caught.value.facts["legal"])


def test_no_such_function_in_a_file_without_overlaps(spec_path: Path) -> None:
    spec_path.write_text("")
    with pytest.raises(NoSuchFunction) as caught:
        load_overlap("layers.py:ag_gemm")
    assert "@tilelink.overlap" in str(caught.value.facts["legal"])


@pytest.mark.parametrize(("name", "got"), [("plain", "function"), ("threshold", "int")])
def test_not_an_overlap(spec_path: Path, name: str, got: str) -> None:
    with pytest.raises(NotAnOverlap) as caught:
        load_overlap(f"layers.py:{name}")
    assert caught.value.facts["got"] == got
    assert "ag_gemm, gemm_rs" in str(caught.value.facts["legal"])


def test_parse_sizes_keeps_the_order() -> None:
    assert list(parse_sizes(["M=8192", "K=4096", "N=1"]).items()) == [("M", 8192), ("K", 4096), ("N", 1)]
    assert parse_sizes([]) == {}


@settings(max_examples=25)  # dictionaries are slow to draw
@given(st.dictionaries(st.from_regex(r"[A-Z][a-z0-9_]{0,8}", fullmatch=True), st.integers(1, 2**48), max_size=5))
def test_parse_sizes_reads_back_what_is_written(sizes: dict[str, int]) -> None:
    sizes = {name: size for name, size in sizes.items() if name not in ("True", "False", "None")}
    assert parse_sizes(f"{name}={size}" for name, size in sizes.items()) == sizes


@pytest.mark.parametrize(
    ("texts", "error", "facts"),
    [
        (["8192"], MalformedSize, {"size": "8192"}),
        (["M="], MalformedSize, {"size": "M="}),
        (["=8192"], MalformedSize, {"size": "=8192"}),
        (["M-1=8"], MalformedSize, {"size": "M-1=8"}),
        (["if=8"], MalformedSize, {"size": "if=8"}),
        (["M=8k"], SizeNotInteger, {"name": "M", "value": "8k"}),
        (["M=8.0"], SizeNotInteger, {"name": "M", "value": "8.0"}),
        (["M==8"], SizeNotInteger, {"name": "M", "value": "=8"}),
        (["M=0"], SizeNotPositive, {"name": "M", "value": 0}),
        (["M=-8"], SizeNotPositive, {"name": "M", "value": -8}),
        (["M=8", "M=9"], DuplicateSize, {"name": "M", "values": "M=8, M=9"}),
        (["M=8", "dtype=fp16"], OptionAmongSizes, {"name": "dtype", "value": "fp16", "option": "--dtype"}),
        (["num_ranks=4"], OptionAmongSizes, {"name": "num_ranks", "value": "4", "option": "--ranks"}),
    ],
)
def test_bad_sizes(texts: list[str], error: type[UserError], facts: dict[str, object]) -> None:
    with pytest.raises(error) as caught:
        parse_sizes(texts)
    assert caught.value.facts == facts


def test_parse_pins_splits_at_the_first_equals_sign() -> None:
    assert parse_pins(["mover=CommSms(num_sms=16)", "ag.chunks = 4"]) == {
        "mover": "CommSms(num_sms=16)",
        "ag.chunks": "4",
    }


@pytest.mark.parametrize(
    ("texts", "error", "facts"),
    [
        (["mover"], MalformedPin, {"pin": "mover"}),
        (["mover="], MalformedPin, {"pin": "mover="}),
        (["=4"], MalformedPin, {"pin": "=4"}),
        (["a=4", "a=5"], DuplicatePin, {"name": "a", "values": "4, 5"}),
    ],
)
def test_bad_pins(texts: list[str], error: type[UserError], facts: dict[str, object]) -> None:
    with pytest.raises(error) as caught:
        parse_pins(texts)
    assert caught.value.facts == facts
