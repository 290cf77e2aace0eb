"""Which rows a command line names, and what they cost."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tilelink.bench.errors import RowNotDivisible, UnknownDtype, UnknownOperator, UnknownRow
from tilelink.bench.rows import WITH_EXPERTS, WITHOUT_EXPERTS, Operator, parse_operators, select


def names(operator: Operator, *rows: str) -> list[str]:
    return [row.name for row in select([operator], rows, "bf16", 4)]


def test_the_default_is_the_table_of_models() -> None:
    eight = ["llama-7b", "llama3-8b", "llama3-70b", "llama3-405b", "qwen2-72b", "gpt3-175b"]
    eight += ["llama3-8b-m2048", "llama3-70b-m1024"]
    for operator in (Operator.AG_GEMM, Operator.GEMM_RS, Operator.GEMM_AR):
        assert names(operator) == eight
    assert len(names(Operator.MLP)) == 6


def test_the_sweep_doubles_from_16_to_16384() -> None:
    rows = select([Operator.GEMM_AR], ["llama3-70b-sweep"], "bf16", 4)
    assert (rows[0].m, rows[-1].m) == (16, 16384)
    assert all(after.m == 2 * before.m for before, after in pairwise(rows))
    assert {(row.hidden, row.ffn) for row in rows} == {(8192, 28672)}
    assert names(Operator.MLP, "sweep") == names(Operator.MLP, "llama3-8b-sweep")


def test_sizes_go_to_the_names_of_the_declaration() -> None:
    gather, scatter, mlp = (
        select([operator], ["512x1024x4096"], "fp16", 2)[0]
        for operator in (Operator.AG_GEMM, Operator.GEMM_RS, Operator.MLP)
    )
    assert gather.sizes == {"M": 512, "K": 1024, "N": 4096}
    assert scatter.sizes == {"M": 512, "K": 4096, "N": 1024}
    assert mlp.sizes == {"M": 512, "H": 1024, "F": 4096}


def test_a_row_named_twice_runs_once_and_8192_is_the_plain_name() -> None:
    assert names(Operator.AG_GEMM, "llama3-8b", "llama3-8b-m8192", "llama3-8b-m64") == ["llama3-8b", "llama3-8b-m64"]


def test_flops_and_bytes_of_one_rank() -> None:
    """8192 x 4096 @ 4096 x 14336 on 4 ranks; three quarters of 64 MiB arrive, twice that for a sum on all ranks."""
    rows = {row.operator: row for row in select(WITHOUT_EXPERTS, ["llama3-8b"], "bf16", 4)}
    assert rows[Operator.AG_GEMM].flops(4) == 2 * 8192 * 4096 * 3584
    assert rows[Operator.MLP].flops(4) == 3 * rows[Operator.GEMM_RS].flops(4)
    assert rows[Operator.GEMM_RS].bytes_in(4) == 48 * 2**20
    assert rows[Operator.GEMM_AR].bytes_in(4) == rows[Operator.MLP].bytes_in(4) == 96 * 2**20


def test_operators() -> None:
    assert parse_operators([]) == WITHOUT_EXPERTS == tuple(Operator)[:4]  # rows of others have other names
    assert parse_operators(["ep_layer", "mlp"]) == (Operator.MLP, Operator.EP_LAYER)
    assert {*WITHOUT_EXPERTS, *WITH_EXPERTS} == set(Operator)
    assert parse_operators(["mlp", "ag_gemm"]) == (Operator.AG_GEMM, Operator.MLP)
    with pytest.raises(UnknownOperator) as caught:
        parse_operators(["gemm_ra"])
    assert "gemm_ar" in str(caught.value)


@pytest.mark.parametrize("name", ["lama3-8b", "llama3-8b-m0", "llama3-8b-m", "8192x4096", "0x1x1", "nothing-sweep"])
def test_unknown_rows(name: str) -> None:
    with pytest.raises(UnknownRow) as caught:
        names(Operator.AG_GEMM, name)
    assert caught.value.facts["name"] == name
    assert "llama3-70b" in str(caught.value)


def test_rows_that_ranks_cannot_share() -> None:
    with pytest.raises(RowNotDivisible) as caught:
        select([Operator.AG_GEMM], ["30x64x64"], "bf16", 4)
    assert caught.value.facts["what"] == "M = 30"
    assert select([Operator.GEMM_AR], ["30x64x64"], "bf16", 4)[0].m == 30  # every rank gets all rows
    with pytest.raises(RowNotDivisible):
        select([Operator.GEMM_AR], ["32x64x66"], "bf16", 4)


def test_dtypes() -> None:
    with pytest.raises(UnknownDtype):
        select([Operator.MLP], [], "fp8", 4)
