"""Results as a file, what they add up to, and the page that is made of them."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from benchmarks.bench_report import fractions, into, markdown
from tests.bench.fakes import record, result, row_result
from tilelink.bench.errors import NotABenchmarkFile
from tilelink.bench.record import SCHEMA, ExpertFacts, Machine, Record, RowResult, read
from tilelink.bench.summary import by_operator, failures, summarize, wrong_or_missing
from tilelink.bench.table import better_lines, rich_table, row_line
from tilelink.measuring.results import ContenderResult, ScheduleFacts

FULL = row_result(
    "ag_gemm",
    "llama3-8b",
    result("planned", 200.0, "ours", origin="planned"),
    result("tuned 1", 160.0, "ours", origin="tuned"),
    result("mine", 150.0, "ours", origin="pinned"),
    result("nccl_cublas", 400.0),
    result("async_tp", 260.0),
    result("async_tp_graph", 250.0),
    result("gemm", 180.0, "part"),
    result("collective", 120.0, "part"),
)
WRONG = row_result(
    "ag_gemm",
    "llama-7b",
    result("planned", None, "ours", "wrong result before timing: relative error 2.0e-01", "planned"),
    result("nccl_cublas", 300.0),
    result("gemm", 50.0, "part"),
)
SMALL = row_result(
    "gemm_rs",
    "llama3-8b",
    result("planned", 125.0, "ours", origin="planned"),
    result("nccl_cublas", 100.0),
    result("gemm", 50.0, "part"),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    lost = replace(SMALL, name="x", failure="round 2 of async_tp did not end in 120 s", lost=("async_tp",))
    written = record(FULL, WRONG, lost)
    written.write(tmp_path / "r.json")
    assert read(tmp_path / "r.json") == written
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_a_file_of_lines_holds_the_run_and_then_a_row_on_each(tmp_path: Path) -> None:
    file, written = tmp_path / "r.jsonl", record(FULL, WRONG)
    written.write(file)
    first, *lines = map(json.loads, file.read_text().splitlines())
    assert "rows" not in first and first["commit"] == written.commit
    assert [line["name"] for line in lines] == [FULL.name, WRONG.name]
    assert read(file) == written
    record().write(file)
    assert read(file) == record()


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.6, 0.99])
def test_a_file_of_lines_that_is_empty_or_cut_off_is_refused(kept: float, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    record(FULL, WRONG).write(file)
    text = file.read_text()
    file.write_text(text[: int(kept * len(text))])
    with pytest.raises(NotABenchmarkFile):
        read(file)


def test_the_schema_is_stable() -> None:
    """Readers of old files depend on these names: change SCHEMA with a meaning, and add here."""
    assert SCHEMA == 2
    names = {kind: [field.name for field in fields(kind)] for kind in (Record, Machine, ScheduleFacts)}
    assert names[Record] == ["schema", "commit", "date", "machine", "options", "rows", "complete"]
    assert names[ScheduleFacts] == ["origin", "hash", "predicted_us", "choices", "inwards"]
    assert {"gpu", "driver", "num_ranks", "versions", "environment", "topology"} <= set(names[Machine])
    assert {
        "operator",
        "name",
        "m",
        "hidden",
        "ffn",
        "dtype",
        "flops",
        "bytes_in",
        "failure",
        "lost",
        "contenders",
    } <= {field.name for field in fields(RowResult)}
    assert {"name", "kind", "mode", "rounds_us", "median_us", "p10_us", "p90_us", "host_us", "failure", "note"} <= {
        field.name for field in fields(ContenderResult)
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"schema": 3}, "schema is 3"), ({"rows": [{"contenders": 3}]}, "no list"), ({"machine": {}}, "KeyError")],
)
def test_other_files_are_refused(change: dict[str, object], reason: str, tmp_path: Path) -> None:
    record(FULL).write(tmp_path / "r.json")
    data = json.loads((tmp_path / "r.json").read_text())
    (tmp_path / "r.json").write_text(json.dumps({**data, **change}))
    with pytest.raises(NotABenchmarkFile) as caught:
        read(tmp_path / "r.json")
    assert reason in str(caught.value)


def test_nan_never_reaches_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        record(replace(FULL, flops=float("nan"))).write(tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


def test_a_row_against_baselines_and_limit() -> None:
    found = summarize(FULL)
    assert (found.ours_us, found.tuned_us, found.best_us) == (200.0, 160.0, 250.0)  # pinned ones are not tuned
    assert found.best is not None
    assert found.best.name == "async_tp_graph"
    assert found.limit_us == 180.0
    assert summarize(SMALL).limit_us == pytest.approx(100.0)  # 38.9 MB at 389 GB/s, longer than the matmul
    assert found.of_limit == pytest.approx(0.9)
    assert found.speedup == pytest.approx(1.25)
    assert found.over_sequential == pytest.approx(2.0)
    assert summarize(SMALL).tuned is None  # nothing but the planned schedule was measured


def with_choices(found: ContenderResult, **choices: str) -> ContenderResult:
    assert found.schedule is not None
    return replace(found, schedule=replace(found.schedule, choices=choices))


def test_an_alternative_that_was_faster_is_named_with_what_it_decides_otherwise() -> None:
    planned, tuned, *rest = FULL.contenders
    tuned = with_choices(tuned, tile="128x128x64/4w3s2p", count="late")
    row = replace(FULL, contenders=(with_choices(planned, tile="128x256x64/8w3s", count="late"), tuned, *rest))
    (line,) = better_lines([row, SMALL])
    assert line == "ag_gemm llama3-8b bf16: tuned 1 takes 20.0 % less than planned: tile=128x128x64/4w3s2p"
    slower = replace(row, contenders=(row.contenders[0], replace(tuned, median_us=210.0), *rest))
    assert better_lines([slower, WRONG]) == []


def test_a_wrong_result_has_no_time() -> None:
    found = summarize(WRONG)
    assert (found.ours_us, found.speedup, found.of_limit) == (None, None, None)
    assert wrong_or_missing([FULL, WRONG, SMALL]) == [WRONG.key]
    assert failures(WRONG) == ["planned: wrong result before timing: relative error 2.0e-01"]


def test_geometric_means_by_operator() -> None:
    better = replace(FULL, name="b", contenders=(result("planned", 50.0, "ours"), result("nccl_cublas", 400.0)))
    gather, scatter = by_operator([FULL, WRONG, better, SMALL])
    assert (gather.operator, gather.rows, gather.measured, gather.behind) == ("ag_gemm", 3, 2, 0)
    assert gather.speedup == pytest.approx((1.25 * 8) ** 0.5)
    assert gather.of_limit == pytest.approx(0.9)  # one row has a limit
    assert scatter.behind == 1
    assert scatter.speedup == pytest.approx(0.8)


def test_means_with_outputs_reused_take_what_is_planned_for_that_where_it_differs() -> None:
    reused = result("reused", 100.0, "ours", origin="reused")
    row = replace(FULL, name="c", contenders=(*FULL.contenders, reused))
    assert summarize(row).reused_us == 100.0
    fresh, other = by_operator([FULL, row])
    assert other.operator == "ag_gemm, outputs reused"
    assert fresh.speedup == pytest.approx(1.25)
    assert other.speedup == pytest.approx((1.25 * 2.5) ** 0.5)


def test_the_page_says_what_the_file_says() -> None:
    page = markdown(record(FULL, WRONG, SMALL, complete=False))
    lines = page.splitlines()
    full = next(line for line in lines if line.startswith("| llama3-8b | M=8192 H=4096 F=14336 bf16 | **200**"))
    cells = [cell.strip() for cell in full.strip("|").split("|")]
    assert cells[3:9] == ["111", "-", "160", "250 `async_tp_graph`", "400", "250"]
    assert cells[-3:] == ["180", "1.250", "0.900"]
    assert "| gemm_rs | 1 of 1 | 0.800 | 0.800 | 0.800 | 1 |" in lines
    assert "- ag_gemm llama-7b bf16: planned: wrong result before timing: relative error 2.0e-01" in lines
    assert "**The run was cut short.**" in page
    assert "Time of the host" not in page


def test_rows_with_experts_have_columns_of_their_own() -> None:
    times = {"nccl_grouped": 168.0, "nccl_fused": 103.0}
    contenders = [result("planned", 89.0, "ours", origin="planned"), *(result(*one) for one in times.items())]
    missing = result("triton_kernels", None, failure="missing: no module triton_kernels here")
    row = replace(row_result("ep_layer", "mine", *contenders, missing), experts=ExpertFacts(60, 4, "hot4", 0.57, 99))
    page = markdown(record(row))
    line = next(line for line in page.splitlines() if line.startswith("| mine |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:4] == ["M=8192 H=4096 F=14336 E=60 K=4 bf16", "hot4", "0.57"]
    assert cells[8:12] == ["103 `nccl_fused`", "168", "103", "-"]
    heads = next(line for line in page.splitlines() if line.startswith("| row |"))
    assert heads.count("|") == line.count("|")
    assert "- ep_layer mine hot4 bf16: triton_kernels: missing: no module triton_kernels here" in page
    assert "missing" in row_line(row)


def test_tables_of_a_row_that_lost_everything() -> None:
    lost = row_result("mlp", "llama3-8b", failure="the ranks hung")
    assert row_line(lost).splitlines()[1].strip() == "the ranks hung"
    assert rich_table(record(FULL, lost)).row_count == 4
    assert "- mlp llama3-8b bf16: the ranks hung" in markdown(record(lost))


def test_bars_are_fractions_of_the_limit() -> None:
    found = fractions([summarize(FULL), summarize(WRONG)])
    assert found["planned"] == [pytest.approx(0.9), 0.0]
    assert found["async-TP"][0] == pytest.approx(180 / 250)
    assert "symmetric AllReduce" not in found


ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/performance.md")
RESULTS = {
    f"{gpus} x NVIDIA {gpu}": f"bench_{name}.json"
    for gpus, gpu, name in (
        (2, "H200", "2xh200"),
        (4, "H200", "4xh200"),
        (2, "H100 80GB HBM3", "2xh100"),
    )
}


@pytest.mark.parametrize("page", PAGES)
def test_tables_in_pages_are_generated(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    machines = re.findall(r"^<!-- bench (.*): begin -->$", text, re.MULTILINE)
    assert machines or page == "README.md", "the page has a table a machine"
    for machine in machines:
        assert into(text, read(ROOT / "benchmarks" / "results" / RESULTS[machine])) == text, machine


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="bench 2 x NVIDIA H200: begin"):
        into("# Page\n", read(ROOT / "benchmarks" / "results" / "bench_2xh200.json"))
