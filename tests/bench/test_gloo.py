"""Baselines, reference and measuring loop on two real ranks, over gloo on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tilelink.bench.rows import WITH_EXPERTS

UNEVEN = "gemm_ar 7x32x64 fp32"  # rows that two ranks cannot share
SCRIPT = Path(__file__).with_name("gloo_ranks.py")


@pytest.mark.slow
def test_baselines_compute_the_operation_on_two_ranks(tmp_path: Path) -> None:
    outs = [tmp_path / f"{rank}.json" for rank in range(2)]
    logs = [(tmp_path / f"{rank}.log").open("w+") for rank in range(2)]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), str(rank), "2", str(tmp_path / "store"), str(outs[rank])],
            stdout=logs[rank],
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]
    try:
        codes = [process.wait(240) for process in ranks]
    finally:
        for process, log in zip(ranks, logs, strict=True):
            process.kill()
            process.wait()
            log.seek(0)
    assert codes == [0, 0], logs[0].read()[-3000:] + logs[1].read()[-3000:]
    for log in logs:
        log.close()
    both = [json.loads(out.read_text()) for out in outs]
    loops = [json.loads(text) for text in both[0]["loops"]]
    assert [list(rank.values()) for rank in loops] == [[True, True]] * 2  # moe_rs, ep_layer
    prefill, decode = ["nccl_attention", "torch_context_parallel"], ["nccl_split_kv"]
    for text in both[0]["attention"]:
        named = [prefill, prefill, prefill[1:], decode, decode, decode]
        assert json.loads(text) == [[[name, True] for name in names for _ in range(2)] for names in named]
    assert both[0] == both[1]  # what is compared and timed is shared
    first = both[0]["rows"]
    plain = {key: results for key, results in first.items() if "x6x3" not in key}
    uneven = {result["name"]: result for result in plain.pop(UNEVEN)}
    assert "as many rows" in uneven["async_tp"]["failure"] and "as many rows" in uneven["async_tp_graph"]["failure"]
    assert uneven["nccl_cublas"]["failure"] == "" and uneven["nccl_cublas"]["median_us"] > 0
    assert len(plain) == 4 and len(first) == 5 + len(WITH_EXPERTS)
    for key, results in first.items():
        if key == UNEVEN:
            continue
        by_name = {result["name"]: result for result in results}
        has_experts = key not in plain
        baselines = ("nccl_grouped",) if has_experts else ("nccl_cublas", "async_tp")
        for name in (*baselines, "gemm", "collective", *(() if has_experts else ("gemm_k_major",))):
            assert by_name[name]["failure"] == "", (key, name)
            assert by_name[name]["median_us"] > 0
            assert len(by_name[name]["rounds_us"]) == 2
        for name in baselines:
            assert 0 <= by_name[name]["error_before"] <= 1
            assert 0 <= by_name[name]["error_after"] <= 1
            assert by_name[name]["host_us"] > 0
        assert "no graphs" in by_name[baselines[0]]["note"]
        assert by_name["planned"]["failure"] == "no GPU"
        needs_gpu = by_name["nccl_fused" if has_experts else "two_stream_2"]
        assert needs_gpu["failure"].startswith("rank 0: ")
        assert needs_gpu["median_us"] is None
