"""Files that put by NVSHMEM, as far as they can be looked at without GPUs: what the compiler is given of each kernel."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lowering
import topologies
from lowering.steps.errors import NothingToPut
from lowering.targets import NVSHMEM
from tests.pipeline.test_nodes import SPECS
from tilelink.ir.schedule import Schedule
from tilelink.run_command import Device, run_schedule
from tilelink.run_errors import NotEmulated
from tilelink.runtime.aot import RecordedLaunch, record, written_ir
from tilelink.runtime.load import load_source
from tilelink.verify_command import verify

NAMES = ("ag_gemm", "gemm_rs", "gemm_ar", "mlp", "gathered", "scattered")
_PUT = "nvshmemx_putmem_signal_nbi_block"


def planned(name: str, nodes: int | None = 2, ranks: int = 4) -> Schedule:
    every = {"M": 64 * ranks, "K": 32 * ranks, "N": 32 * ranks, "H": 64, "F": 32 * ranks}
    sizes = {str(dim): every[str(dim)] for value in SPECS[name].spec.inputs for dim in value.shape}
    pins = {"mover": "Rails(2)"} if nodes else {}
    pins |= {"algorithm": "two-shot"} if name == "gemm_ar" and nodes else {}
    return SPECS[name].plan_for(topologies.load("h200-nvswitch", ranks, nodes), sizes, "bf16", pins)


def launches(schedule: Schedule) -> list[RecordedLaunch]:
    return record(load_source(lowering.emit(schedule, NVSHMEM), schedule.name), schedule.num_ranks)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(2)
def test_each_put_is_one_call_behind_a_barrier_and_a_fence(name: str) -> None:
    schedule = planned(name)
    texts = [written_ir(one, "sm_90") for one in launches(schedule)]
    functions = [body for text in texts for body in re.split(r"(?=tt\.func )", text)]
    puts = {body for body in functions if _PUT in body}
    assert puts
    for body in puts:
        assert body.count(_PUT) == 1
        before, _, behind = body.partition(_PUT)
        assert re.search(r"@[\w.]*published", before) and re.search(r"@[\w.]*program_barrier", behind)
    (published,) = {one for text in texts for one in functions if "fence.acq_rel.sys" in one and one in text}
    assert published.index("program_barrier") < published.index("fence.acq_rel.sys")
    whole = "".join(texts)
    assert "nvshmem_quiet" in whole and "nvshmemx_signal_op" in whole


@pytest.mark.parametrize("name", ["ag_gemm", "gemm_rs"])
def test_words_have_64_bits(name: str) -> None:
    source = lowering.emit(planned(name), NVSHMEM)
    assert "self.signals = fabric.symmetric((NUM_SIGNALS.value,), torch.int64)" in source
    assert not any("tl.int32" in line for line in re.findall(r"on_peer\(signal_peers[^\n]*\n", source))
    assert "notify_all(" not in source and "count_at_peers(" not in source


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.quick(1)
def test_names_are_defined_and_used(name: str, tmp_path: Path) -> None:
    (tmp_path / "emitted.py").write_text(lowering.emit(planned(name), NVSHMEM))
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F", str(tmp_path)]
    linted = subprocess.run(command, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout


def test_a_schedule_of_one_node_puts_nothing() -> None:
    with pytest.raises(NothingToPut, match="several nodes"):
        lowering.emit(planned("ag_gemm", None), NVSHMEM)


def test_emulated_ranks_have_no_nvshmem() -> None:
    with pytest.raises(NotEmulated, match="--target triton"):
        run_schedule(Device.CPU, planned("ag_gemm"), NVSHMEM, 1, 0, False)
    with pytest.raises(NotEmulated):
        verify("examples/02_ag_gemm.py:ag_gemm", ["M=256"], target=NVSHMEM, ranks=4, nodes=2)
