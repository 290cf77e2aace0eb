"""What an emitted file says of itself: what made it, what it needs, names for its numbers, and nothing that is not in it."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import triton
from typer.testing import CliRunner

import lowering
import topologies
from lowering.embed import defined
from lowering.header import command
from lowering.targets import TARGETS, TRITON_VERSION
from tests.mutation.subjects import SUBJECTS, subject
from tests.pipeline.file_checks import bare_numbers, cited_elsewhere, unused
from tests.pipeline.operators import AG_GEMM
from tests.pipeline.test_emitted import RAGGED, TRITON, emit
from tests.pipeline.workloads import EXAMPLES
from tilelink.cli import app
from tilelink.runtime.constants import constants_of
from tilelink.runtime.load import load_source
from tilelink.runtime.run import run_emulated

MUTATED = Path(__file__).resolve().parents[1] / "mutation"
QUICK = ("scatter, pieces", "gather, SMs push, halves", "queue", "all-reduce, Lamport in two shots")
LABELS = [pytest.param(label, marks=[] if label in QUICK else [pytest.mark.slow]) for label in SUBJECTS]
LOWERING = Path(lowering.__file__).parent


@cache
def text(label: str, target: str = "triton") -> str:
    return lowering.emit(subject(label), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("label", LABELS)
@pytest.mark.quick(3)
def test_the_file_explains_itself(label: str, target: str) -> None:
    source = text(label, target)
    assert cited_elsewhere(source) == set()
    assert unused(source) == set()
    assert bare_numbers(source) == []


def test_streams_have_no_library_calls_where_nothing_calls_the_library() -> None:
    lean, rich = text("scatter, pieces"), text("all-reduce, library")
    assert "def all_reduce(self" in rich and "def all_reduce(self" not in lean
    for method in ("matmul", "all_gather", "copy", "write", "wait_at_least", "stream"):
        assert f"def {method}(self" not in lean
    assert "driver.cuMemcpyAsync" not in lean


# ---- numbers


def test_constants_follow_from_each_other() -> None:
    source = emit(
        "03_gemm_rs.py:gemm_rs", "h200-nvswitch", {"M": 8192, "K": 14336, "N": 4096}, mover="CopyEngine()", **TRITON
    )
    for line in (
        "M_TILES = M_SIZE // TILE_M ",
        "NUM_TILES = NUM_RANKS * M_TILES * N_TILES ",
        "Y_PARTS_CHUNK_ROWS = Y_PARTS_ROWS // Y_PARTS_CHUNKS ",
        "COPY_Y_PARTS_TILES = (NUM_RANKS - 1) * Y_PARTS_CHUNKS ",
        "NUM_SIGNALS = Y_PARTS_ARRIVED + NUM_RANKS * Y_PARTS_CHUNKS ",
    ):
        assert f"\n{line}" in source
    values = constants_of(ast.parse(source))
    assert values["NUM_TILES"] == 2048 and values["COPY_Y_PARTS_TILES"] == 6


def changed(source: str, **constants: int) -> str:
    for name, value in constants.items():
        source, count = re.subn(rf"(?m)^{name} = tl\.constexpr\(\d+\)", f"{name} = tl.constexpr({value})", source)
        assert count == 1, name
    return source


@pytest.mark.parametrize(
    ("label", "constants"),
    [
        ("gather, copy engine push", {"TILE_M": 32, "TILE_N": 32, "X_FULL_CHUNKS": 1}),
        ("scatter, SMs push, epilogue", {"TILE_M": 32, "TILE_N": 128, "PROGRAMS": 5}),
        pytest.param("all-reduce, SMs", {"Y_PROGRAMS": 3, "OUT_TILE_M": 32, "OUT_GROUP_M": 2}, marks=pytest.mark.slow),
        pytest.param("gather, SMs push, halves", {"PROGRAMS": 5, "X_FULL_PROGRAMS": 3}, marks=pytest.mark.slow),
        pytest.param("scatter, Lamport by tiles", {"TILE_M": 32, "TILE_N": 32}, marks=pytest.mark.slow),
        pytest.param("all-reduce, in a pool", {"TILE_N": 32}, marks=pytest.mark.slow),
        pytest.param("scatter, fused push", {"Y_TILE_M": 32, "OUT_TILE_N": 64}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("target", ["triton", pytest.param("triton-distributed", marks=pytest.mark.slow)])
def test_a_tile_may_be_changed(label: str, constants: dict[str, int], target: str) -> None:
    """What follows from a choice of the planner follows from an edited one."""
    source = text(label, target)
    values = constants_of(ast.parse(source))
    assert all(values[name] != value for name, value in constants.items()), values
    edited = changed(source, **constants)
    assert constants_of(ast.parse(edited)) != values
    assert run_emulated(subject(label), edited, calls=3).equal


@pytest.mark.parametrize(
    ("label", "constants", "why"),
    [
        ("gather, copy engine push", {"TILE_M": 48}, "no masks: extent along m of one segment"),
        ("scatter, SMs push, epilogue", {"Y_PARTS_CHUNKS": 4}, "rows of a chunk of y_parts"),
        ("all-reduce, SMs", {"OUT_TILE_M": 32}, "tiles along m of one segment"),  # 2 tiles, and groups of 4
        ("gather, copy engine push", {"TILE_K": 128}, "the loop over k_tile has several rounds"),
    ],
)
def test_an_edit_that_code_cannot_follow_is_refused(label: str, constants: dict[str, int], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        load_source(changed(text(label), **constants), "edited")


SHIFTED = {"x_full.mover": "CopyEngine()", "x_full.transfer": "push", "tile": "16x32x16/4w2s", **TRITON}


def test_a_tile_that_is_shifted_may_be_changed() -> None:
    """Rows that it leaves out follow from its own; one that its part has no room for is refused."""
    schedule = AG_GEMM.plan_for(topologies.load("laptop-switch", 2), {"M": 44, "K": 64, "N": 128}, "bf16", SHIFTED)
    source = lowering.emit(schedule)
    assert "m_new - m" in source
    assert run_emulated(schedule, changed(source, TILE_M=8), calls=3).equal
    with pytest.raises(AssertionError, match="a tile fits where the last one along m is shifted to"):
        load_source(changed(source, TILE_M=32), "edited")


def test_more_programs_than_fit_are_refused() -> None:
    edited = changed(text("scatter, SMs push, epilogue"), PROGRAMS=7)
    with pytest.raises(ValueError, match=r"ranks of 9 SMs, not . ranks of 8 SMs"):
        run_emulated(subject("scatter, SMs push, epilogue"), edited)


# ---- what made the file, and what it needs


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("label", LABELS)
@pytest.mark.quick(3)
def test_the_command_in_the_header_emits_the_file(label: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = command(subject(label), target)
    file = lines[0].split()[2].partition(":")[0]
    monkeypatch.chdir(next(folder for folder in (EXAMPLES, MUTATED) if (folder / file).exists()))
    assert f"#   {lines[0]}\n" in text(label, target)
    words = " ".join(line.removesuffix("\\") for line in lines)
    result = CliRunner().invoke(app, shlex.split(words)[1:])
    assert result.exit_code == 0, result.output
    assert result.output == text(label, target)


def test_the_header_has_no_dates_and_no_folders() -> None:
    head = text("queue")[: text("queue").index("import argparse")]
    assert "Emitted by tilelink " in head and f"schedule {subject('queue').hash}:" in head
    assert str(EXAMPLES) not in text("queue") and "/home" not in head and not re.search(r"20\d\d-\d\d", head)


def test_the_file_is_for_one_version_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    assert triton.__version__.partition("+")[0] == TRITON_VERSION
    source = text("scatter, pieces")
    monkeypatch.setattr(triton, "__version__", "3.7.1")
    with pytest.raises(ImportError, match=r"for Triton 3\.6\.0.*installed is 3\.7\.1.*set TRITON in this file"):
        load_source(source, "other_triton")
    load_source(source.replace(f'TRITON = "{TRITON_VERSION}"', 'TRITON = "3.7.1"'), "other_triton")


def test_helpers_of_targets_have_the_same_docstrings_where_they_do_the_same() -> None:
    """One text a helper: files of both targets describe what they share alike."""
    ones, others = (defined((LOWERING / "device" / f"{name}.py").read_text()) for name in ("signals", "gluon_signals"))
    for name in ("wait_epochs", "wait_ranks"):
        first, second = (ast.get_docstring(ast.parse(texts[name]).body[0]) for texts in (ones, others))  # type: ignore[arg-type]
        assert first == second


def test_ragged_tiles_keep_their_masks() -> None:
    source = emit("03_gemm_rs.py:gemm_rs", "h200-nvswitch", RAGGED["03_gemm_rs.py:gemm_rs"], **TRITON)
    assert re.search(r"< \w*(COLS|N_SIZE)\b", source) and "N_TILES = (N_SIZE + TILE_N - 1) // TILE_N" in source
