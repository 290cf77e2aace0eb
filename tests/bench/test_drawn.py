"""Rows that nobody chose: the same for a seed, and of every kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tilelink import cli
from tilelink.bench import command
from tilelink.bench.drawn import MOST_ROWS, WIDTHS, drawn
from tilelink.bench.errors import RowNotDivisible
from tilelink.bench.machine import DEFAULT_TOPOLOGY
from tilelink.bench.record import read
from tilelink.bench.rows import WITHOUT_EXPERTS, Operator, Row

CORPORA = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def rows(seed: int, count: int, num_ranks: int = 2) -> tuple[Row, ...]:
    return drawn(seed, count, WITHOUT_EXPERTS, "bf16", num_ranks)


def test_a_seed_says_all_and_a_prefix_of_a_drawing_is_a_drawing() -> None:
    assert rows(7, 40) == rows(7, 40)
    assert rows(7, 40)[:9] == rows(7, 9)
    assert set(rows(7, 40)).isdisjoint(rows(8, 40))


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("corpus_fit_2xh200", 1),
        ("corpus_held_2xh200", 2),
        ("corpus_fresh_2xh200", 20261127),
        ("corpus_unseen_2xh200", 20261202),
    ],
)
def test_rows_of_the_corpora_are_the_first_of_their_seeds(name: str, seed: int) -> None:
    """Whoever changes the drawing changes the seeds by which the corpora can be measured again."""
    held = [row.key for row in read(CORPORA / f"{name}.jsonl").rows]
    assert held == [row.key for row in rows(seed, len(held))]


def test_no_two_rows_are_alike() -> None:
    found = drawn(3, 2000, [Operator.GEMM_AR], "bf16", 2)
    assert len({row.key for row in found}) == len(found) == 2000


def test_operators_take_turns_in_the_order_they_are_named() -> None:
    assert [row.operator for row in rows(1, 9)] == [*WITHOUT_EXPERTS, *WITHOUT_EXPERTS, Operator.AG_GEMM]
    two = drawn(1, 5, [Operator.MLP, Operator.GEMM_RS], "bf16", 2)
    assert [row.operator.value for row in two] == ["mlp", "gemm_rs", "mlp", "gemm_rs", "mlp"]


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_ranks_can_share_every_row(num_ranks: int) -> None:
    found = rows(5, 400, num_ranks)
    assert all(row.ffn % num_ranks == 0 for row in found)
    assert all(row.m % num_ranks == 0 for row in found if row.operator is not Operator.GEMM_AR)
    assert any(row.m % num_ranks for row in found if row.operator is Operator.GEMM_AR)  # each rank has all of its rows


def test_widths_that_ranks_cannot_share_are_left_out() -> None:
    found = rows(5, 100, num_ranks=16)
    assert {(row.hidden, row.ffn) for row in found} <= {one for one in WIDTHS if one[1] % 16 == 0}
    with pytest.raises(RowNotDivisible):
        rows(5, 1, num_ranks=5000)


def test_numbers_of_rows_are_spread_evenly_on_a_logarithmic_scale_and_not_rounded() -> None:
    found = [row.m for row in drawn(5, 1400, [Operator.GEMM_AR], "bf16", 2)]
    assert min(found) == 1 and 0.98 * MOST_ROWS < max(found) <= MOST_ROWS
    doublings = Counter(m.bit_length() for m in found if m >= 64)  # 64 to 127, 128 to 255, ...
    assert all(70 <= doublings[bits] <= 130 for bits in range(7, 15))
    tall = [m for m in found if m >= 64]
    assert sum(m % 2 for m in tall) / len(tall) == pytest.approx(0.5, abs=0.05)
    assert sum(m & (m - 1) == 0 for m in tall) / len(tall) < 0.05  # powers of two


def test_about_half_of_the_weights_are_k_major() -> None:
    found = rows(5, 1000)
    assert sum(row.k_major for row in found) / len(found) == pytest.approx(0.5, abs=0.05)
    assert all(row.name == f"{row.m}x{row.hidden}x{row.ffn}{'-kmajor' if row.k_major else ''}" for row in found)


def bench(*args: str) -> Result:
    return CliRunner().invoke(cli.app, ("bench", "--ranks", "2", "--topology", DEFAULT_TOPOLOGY, *args))


@pytest.fixture
def no_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan_rows(*_: object) -> None:
        raise AssertionError("planned")

    monkeypatch.setattr(command, "plan_rows", plan_rows)


@pytest.mark.usefixtures("no_plans")
@pytest.mark.parametrize("text", ["7", "7:", ":4", "7:0", "-7:4", "7:4:1", "seven:4"])
def test_a_drawing_is_a_seed_and_a_count(text: str) -> None:
    found = bench(f"--drawn={text}")
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(f"MalformedDrawing: --drawn {text!r} says no rows to draw.\nWrite SEED:COUNT")


@pytest.mark.usefixtures("no_plans")
@pytest.mark.parametrize(
    ("args", "start"),
    [
        (
            ("--drawn", "7:4", "--rows", "sweep", "--rows", "llama-7b"),
            "RowsTwice: --drawn 7:4 and --rows sweep,llama-7b both say which rows are measured.\nLegal: ",
        ),
        (
            ("ag_gemm", "ep_layer", "--drawn", "7:4"),
            "DrawnExperts: --drawn 7:4 draws sizes of layers without experts, and ep_layer has some.\n"
            "Legal: ag_gemm, gemm_rs, gemm_ar, mlp; ",
        ),
        (("--drawn", "7:4", "--routing", "zipf"), "RoutingWithoutExperts: --routing zipf "),
        (("--drawn", "7:4", "--dtype", "fp8"), "UnknownDtype: --dtype fp8 "),
    ],
)
def test_what_contradicts_a_drawing_is_told_before_anything_is_planned(args: tuple[str, ...], start: str) -> None:
    found = bench(*args)
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith(start)


@pytest.mark.slow
def test_drawn_rows_are_planned(tmp_path: Path) -> None:
    found = bench("gemm_rs", "--drawn", "7:2", "--write-plans", str(tmp_path / "plans.json"))
    assert (found.exit_code, found.stdout) == (0, f"planned: {tmp_path / 'plans.json'} (2 rows)\n")
