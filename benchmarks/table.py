"""The results of check_pipeline.py as a page: `python benchmarks/table.py` writes benchmarks/results/README.md."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def rows_of(file: Path) -> list[str]:
    data = json.loads(file.read_text())
    lines = [
        f"\n## {data['rows'][0]['workload']} on {data['machine']}\n",
        f"torch {data['versions']['torch']}, Triton {data['versions']['triton']}, NCCL {data['versions']['nccl']}, "
        f"commit {data['commit']}, {data['calls']} calls eager and as many replays of a CUDA graph, 20 on two streams.\n",
        "| sizes | schedule | equal | largest error | us | NCCL + cuBLAS us | speed-up | predicted us |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in data["rows"]:
        sizes = " ".join(f"{name}={row[name]}" for name in ("M", "H", "F", "K", "N") if name in row)
        error = max(row["eager_error"], row["graph_error"], row.get("streams_error", 0.0))
        base = row["nccl_cublas_us"]
        lines.append(
            f"| {sizes} {row.get('dtype', 'bf16')} | {row['schedule']} | {'yes' if row['equal'] else 'NO'} | {error:.1e} "
            f"| {row['us']:.0f} | {base:.0f} | {base / row['us']:.2f} | {row['predicted_us']:.0f} |"
        )
    return lines


def spread(files: list[Path]) -> float:
    """Largest relative difference between measurements of one schedule in one run."""
    worst = 0.0
    for file in files:
        times: dict[str, list[float]] = {}
        for row in json.loads(file.read_text())["rows"]:
            times.setdefault(row["hash"], []).append(row["us"])
        worst = max([worst, *(max(found) / min(found) - 1 for found in times.values())])
    return worst


def main() -> None:
    files = sorted(RESULTS.glob("pipeline_*.json"))
    lines = [
        "# Results of the pipeline check",
        "",
        "Written by `benchmarks/table.py` from the JSON files beside it; times are CUDA-graph replays, max over ranks,",
        "median of 5 x 20. Schedules other than `planned` are pinned; where `planned` is the same schedule as a pinned one, the",
        f"two measurements differ by up to {100 * spread(files):.0f} %. Inputs are drawn from four random sets, so that they",
        "change from call to call. Where `planned` is behind NCCL + cuBLAS, the cost model of that commit was wrong.",
    ]
    for file in files:
        lines += rows_of(file)
    (RESULTS / "README.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
