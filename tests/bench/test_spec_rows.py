"""Rows of a user's spec: which sizes, which baselines, and what is written for the ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import pytest
from typer.testing import CliRunner

import tilelink
import topologies
from tests.bench.fakes import record, row_result
from tests.pipeline.attention_specs import How as PrefillHow
from tests.pipeline.attention_specs import spec_of as prefill_of
from tests.pipeline.decode_specs import How as DecodeHow
from tests.pipeline.decode_specs import spec_of as decode_of
from tests.pipeline.expert_specs import SPECS
from tilelink import Shard, Tensor, dims
from tilelink.bench.again import predicted_now
from tilelink.bench.against import ATTENTION_NAMES
from tilelink.bench.attention_baselines import attention_baselines
from tilelink.bench.job import read_job
from tilelink.bench.operators import declaration
from tilelink.bench.ours import ours
from tilelink.bench.plans import Origin, Request, plan_row, planned_from_json, planned_to_json
from tilelink.bench.rows import WITHOUT_EXPERTS, Operator
from tilelink.bench.spec_rows import SpecRow, each_size, recognised, spec_rows
from tilelink.cli import app
from tilelink.errors import TileLinkError
from tilelink.ir.spec import bind
from tilelink.measuring.contender import Kind
from tilelink.measuring.spec_problem import flops_of

M, K, N = dims("M K N")
PAIR = topologies.load("h100-nvswitch", 2)
FILE = """
from typing import Annotated
import tilelink
from tilelink import Shard, Tensor, dims

M, K, N = dims("M K N")

@tilelink.overlap
def gathered(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)

@tilelink.overlap
def activated(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return tilelink.silu(tilelink.matmul(tilelink.all_gather(x, dim=0), w))
"""


@tilelink.overlap
def activated(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return tilelink.silu(tilelink.matmul(tilelink.all_gather(x, dim=0), w))


@tilelink.overlap
def weights_first(w: Annotated[Tensor, (K, N), Shard(1)], x: Annotated[Tensor, (M, K), Shard(0)]) -> Tensor:
    return tilelink.matmul(tilelink.all_gather(x, dim=0), w)


@tilelink.overlap
def named_otherwise(a: Annotated[Tensor, (M, K), Shard(0)], b: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    gathered = tilelink.all_gather(a, dim=0)
    return tilelink.matmul(gathered, b)


@pytest.mark.parametrize("k_major", [False, True])
@pytest.mark.parametrize("operator", WITHOUT_EXPERTS)
def test_an_operator_with_baselines_is_recognised(operator: Operator, k_major: bool) -> None:
    overlap = declaration(operator, k_major)
    sizes = {"M": 64, "K": 128, "N": 256, "H": 128, "F": 256}
    spec = bind(overlap.spec, {name: sizes[name] for name in overlap.spec.symbols()}, 2, "bf16")
    row = recognised(spec, "bf16")
    assert row is not None
    assert (row.operator, row.k_major, row.m, row.sizes) == (operator, k_major, 64, dict(spec.sizes))


def test_names_do_not_matter_and_meaning_does() -> None:
    sizes = {"M": 64, "K": 128, "N": 256}
    row = recognised(bind(named_otherwise.spec, sizes, 2, "bf16"), "bf16")
    assert row is not None and row.key == "ag_gemm 64x128x256 bf16"
    for overlap in (activated, weights_first):
        assert recognised(bind(overlap.spec, sizes, 2, "bf16"), "bf16") is None


def test_a_row_for_each_combination_of_sizes() -> None:
    assert each_size(["M=1,3", "K=4", "N=5,7"]) == [
        {"M": 1, "K": 4, "N": 5},
        {"M": 1, "K": 4, "N": 7},
        {"M": 3, "K": 4, "N": 5},
        {"M": 3, "K": 4, "N": 7},
    ]
    rows = spec_rows(activated, ["M=64,300", "K=128", "N=256"], "bf16", 2)
    assert [row.key for row in rows] == ["activated M=64 K=128 N=256 bf16", "activated M=300 K=128 N=256 bf16"]
    assert [row.m for row in rows] == [64, 300]
    assert rows[0].flops(2) == 2 * 64 * 128 * 256 / 2
    assert rows[0].bytes_in(2) == 64 * 128 * 2 / 2


def test_sizes_that_the_spec_refuses_are_refused_with_its_words() -> None:
    with pytest.raises(TileLinkError, match="63"):
        spec_rows(activated, ["M=63", "K=128", "N=256"], "bf16", 2)


def test_the_baseline_of_a_spec_is_itself_by_library_calls() -> None:
    (row,) = spec_rows(activated, ["M=64", "K=128", "N=256"], "bf16", 2)
    planned = plan_row(row, Request(PAIR, (), 1))
    last = planned.candidates[-1]
    assert (last.label, last.origin) == ("library", Origin.LIBRARY)
    assert last.schedule is not None
    assert {"Library()", "library"} <= set(dict(last.schedule.choices).values())  # the collective, the matmul
    assert ours(last).kind is Kind.BASELINE
    assert ours(planned.candidates[0]).kind is Kind.OURS


@pytest.mark.slow
def test_a_spec_with_experts_has_such_a_baseline_but_for_its_matmuls() -> None:
    (row,) = spec_rows(SPECS["ag_moe"], ["T=64", "H=64", "F=64", "E=8", "K=2"], "bf16", 2)
    assert isinstance(row, SpecRow)
    library = plan_row(row, Request(PAIR)).candidates[-1].schedule
    assert library is not None and dict(library.choices)["x_full.mover"] == "Library()"


def test_attention_has_a_baseline_where_it_is_plain() -> None:
    """`test_gloo.py` runs them."""
    prefill = {"B": 1, "S": 64, "Q": 8, "G": 2, "D": 64}
    specs = [
        (prefill_of("gathered", PrefillHow(causal=True)), prefill, "nccl_attention,torch_context_parallel"),
        (prefill_of("gathered", PrefillHow(causal=True, zigzag=True)), prefill, "torch_context_parallel"),
        (prefill_of("gathered", PrefillHow(causal=True, window=9)), prefill, ""),
        (prefill_of("heads", PrefillHow()), prefill, ""),
        (decode_of("all", DecodeHow(lengths=True)), prefill, "nccl_split_kv"),
        (decode_of("all", DecodeHow(soft_cap=2.0)), prefill, ""),
        (decode_of("heads", DecodeHow(merge=True)), {"T": 4, "H": 8, "D": 64}, "nccl_split_kv"),
    ]
    for overlap, sizes, name in specs:
        found = attention_baselines(bind(overlap.spec, sizes, 2, "bf16"))
        assert [one.name for one in found] == [one for one in name.split(",") if one], overlap
        assert {one.name for one in found} <= set(ATTENTION_NAMES)
    causal, _, _, _, decode, *_ = (bind(overlap.spec, sizes, 2, "bf16") for overlap, sizes, _ in specs)
    assert (
        flops_of(causal) == 2 * 2 * 64 * 64 * 8 * 64 / 2 / 2
    )  # scores and means, of half of the pairs, on a rank of two
    assert flops_of(decode) == 2 * 2 * 64 * 8 * 64 / 2
    assert not attention_baselines(bind(activated.spec, {"M": 64, "K": 64, "N": 64}, 2, "bf16"))


def test_what_is_planned_for_the_ranks_comes_back() -> None:
    (row,) = spec_rows(activated, ["M=64", "K=128", "N=256"], "bf16", 2)
    planned = plan_row(row, Request(PAIR))
    assert planned_from_json(json.loads(json.dumps(planned_to_json(planned)))) == planned


def test_a_record_of_a_spec_is_judged_by_what_was_predicted() -> None:
    row = row_result("activated", "M=64")
    assert predicted_now(record(row), row) == {}


def bench(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["bench", *arguments, "--ranks", "2", "--topology", "h100-nvswitch"])
    return found.exit_code, found.output


def test_the_command_plans_rows_of_a_spec(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    plans = tmp_path / "plans.json"
    code, text = bench(f"{tmp_path / 'mine.py'}:activated", "M=64,128", "K=128", "N=256", "--write-plans", str(plans))
    assert (code, f"planned: {plans} (2 rows)" in text) == (0, True), text
    rows = read_job(plans).rows
    assert [one.row.key for one in rows] == ["activated M=64 K=128 N=256 bf16", "activated M=128 K=128 N=256 bf16"]
    code, _ = bench(f"{tmp_path / 'mine.py'}:gathered", "M=64", "K=128", "N=256", "--write-plans", str(plans))
    assert [one.row.key for one in read_job(plans).rows] == ["ag_gemm 64x128x256 bf16"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["M=64,64", "K=128", "N=256"], "M=64,64 lists a size twice."),
        (["M=64", "K=128", "N=256", "--rows", "quick"], "--rows says which rows of operators are."),
        (["M=64", "K=128", "N=256", "--drawn", "1:2"], "--drawn says which rows of operators are."),
        (["M=64", "K=128"], "N"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    code, text = bench(f"{tmp_path / 'mine.py'}:activated", *arguments, "--write-plans", str(tmp_path / "plans.json"))
    assert code == 2
    assert said in text
    assert not (tmp_path / "plans.json").exists()
