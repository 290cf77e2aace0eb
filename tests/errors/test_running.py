"""Mistakes that show when a schedule runs."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pytest
import torch

import lowering
import tilelink
from tests.pipeline.workloads import load
from tests.planner.operators import ag_gemm
from tilelink import Shard, Tensor, dims
from tilelink.adversary.replay import parse_trial
from tilelink.adversary.subject import of_file
from tilelink.emulator import World
from tilelink.errors import (
    FabricUnavailable,
    InputRequiresGrad,
    NoReference,
    NotAnOperatorFile,
    ReferenceFailed,
    RunFailed,
    ScheduleMismatch,
    ScheduleRefuted,
    UnknownReplay,
    WorkersDied,
)
from tilelink.ir.user_op import UserOp
from tilelink.planner import fallback
from tilelink.processes import fresh_processes
from tilelink.proof.bug_class import BugClass
from tilelink.proof.findings import Finding
from tilelink.proof.proved import Proof
from tilelink.runtime import ranks, run, shared_gpus
from tilelink.runtime.compare import compare_call
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.meaning import user_reference
from tilelink.runtime.reference import expected, make_inputs

M, N, K = dims("M N K")


@tilelink.overlap
def awkward(rank: Annotated[Tensor, (M, K), Shard(1)], y_staged: Annotated[Tensor, (K, N), Shard(0)]):  # type: ignore[no-untyped-def]
    """Every name is one that emitted files use themselves."""
    y = tilelink.matmul(rank, y_staged)
    y_parts = tilelink.relu(tilelink.reduce_scatter(y, 0))
    tile = y_parts * y_parts
    return tile


def test_a_tile_op_without_a_reference() -> None:
    op = load("06_user_op.py:ag_squared_relu").spec.nodes[-1].operation
    assert isinstance(op, UserOp)
    with pytest.raises(NoReference) as caught:
        user_reference(replace(op, reference=""))
    assert caught.value.facts["name"] == "squared_relu_matmul"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lambda x, w: undefined(x)", "raises NameError: name 'undefined' is not defined"),
        ("lambda x, w: x @ w.T", "raises RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("lambda x, w: (x @ w)[:1]", "returns the shape [1, 24] where the op writes [16, 24]"),
        ("lambda x, w: 3", "returns 3, which is not a tensor"),
    ],
)
def test_a_reference_that_fails(text: str, reason: str) -> None:
    spec = load("06_user_op.py:ag_squared_relu").plan("laptop-switch", 2, M=16, K=32, N=24).spec
    op = spec.nodes[-1].operation
    assert isinstance(op, UserOp)
    broken = replace(spec.nodes[-1], operation=replace(op, reference=f"its_reference = {text}"))
    with pytest.raises(ReferenceFailed) as caught:
        expected(replace(spec, nodes=(*spec.nodes[:-1], broken)), make_inputs(spec, 0))
    assert reason in str(caught.value.facts["reason"])
    assert caught.value.location.startswith("06_user_op.py:")


def test_ranks_with_different_schedules() -> None:
    ag_gemm = load("02_ag_gemm.py:ag_gemm")
    sources = [
        lowering.emit(ag_gemm.plan("laptop-switch", 2, K=16, N=32, M=32, pin={"chunks": chunks, "compute": "triton"}))
        for chunks in (1, 2)
    ]
    world = World(2, num_sms=8)
    operator_class(load_source(sources[0], "one"))(world.fabrics[0])
    with pytest.raises(ScheduleMismatch) as caught:
        operator_class(load_source(sources[1], "other"))(world.fabrics[1])
    assert caught.value.facts["rank"] == 1


def test_compile_without_a_process_group() -> None:
    with pytest.raises(FabricUnavailable):
        load("02_ag_gemm.py:ag_gemm").compile(M=32, K=16, N=32)


@pytest.mark.parametrize(
    ("program", "timeout_s", "reason"),
    [("raise SystemExit(7)", 60.0, "exit code 7"), ("while True: pass", 1.0, "they took longer")],
)
def test_ranks_that_crash_or_hang(monkeypatch: pytest.MonkeyPatch, program: str, timeout_s: float, reason: str) -> None:
    alone = [sys.executable, "-c", f"print('last words', flush=True)\n{program}"]
    monkeypatch.setattr(run, "check_gpus", lambda num_ranks, instead, share: None)
    monkeypatch.setattr(run, "torchrun", lambda num_ranks, *arguments: alone)
    schedule = load("02_ag_gemm.py:ag_gemm").plan("laptop-switch", 2, M=32, K=16, N=32)
    with pytest.raises(RunFailed) as caught:
        run.run_cuda(schedule, "", timeout_s=timeout_s)
    assert str(caught.value.facts["reason"]).startswith(reason)
    assert caught.value.facts["lines"] == "last words"


def test_nccl_takes_one_rank_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    overlap = load("02_ag_gemm.py:ag_gemm")
    schedule = overlap.plan("laptop-switch", 2, pin={"algorithm": "library"}, M=32, K=16, N=32)
    with pytest.raises(FabricUnavailable, match="which takes one rank a GPU") as caught:
        run.run_cuda(schedule, "", share_gpus=True)
    assert "Pin another mover" in str(caught.value)
    with pytest.raises(FabricUnavailable, match="this machine has 1 GPUs") as caught:
        run.run_cuda(schedule, "")
    assert "--share-gpus" in str(caught.value)


def test_ranks_that_share_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU each, in turn; the group exists already when the file of the operator runs."""
    started: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)

    def start(num_ranks: int, *arguments: str) -> list[str]:
        started.extend(arguments)
        return [sys.executable, "-c", ""]

    monkeypatch.setattr(run, "torchrun", start)
    overlap = load("02_ag_gemm.py:ag_gemm")
    schedule = overlap.plan("laptop-switch", 2, pin={"algorithm": "direct"}, M=32, K=16, N=32)
    with pytest.raises(RunFailed):
        run.run_cuda(schedule, lowering.emit(schedule), share_gpus=True)
    assert started[:2] == ["-m", "tilelink.runtime.shared_gpus"]

    joined: list[object] = []
    monkeypatch.setenv("LOCAL_RANK", "5")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", joined.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", joined.append)
    ranks.join_shared()
    assert joined == [1, "gloo"]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    ranks.join()
    assert joined == [1, "gloo"]


def test_what_ranks_on_shared_gpus_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    joined: list[str] = []
    monkeypatch.setattr(shared_gpus, "join_shared", lambda: joined.append("joined"))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "program.py"
    file.write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    assert shared_gpus.main([str(file), "--calls", "3"]) == 0
    assert capsys.readouterr().out == "__main__ ['--calls', '3']\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    assert shared_gpus.main(["-m", "program", "x"]) == 0
    assert capsys.readouterr().out == "__main__ ['x']\n"
    assert joined == ["joined"] * 2
    assert shared_gpus.main([]) == 2
    assert joined == ["joined"] * 2, "who has nothing to run does not join"
    assert "FILE.py, or -m MODULE" in capsys.readouterr().err


@pytest.mark.parametrize("mover", ["CopyEngine()", "CommSms(2)", "Fused()"])
def test_names_that_emitted_files_use_themselves(mover: str) -> None:
    world = World(2, num_sms=8)
    pins = {"mover": mover, "algorithm": "direct", "compute": "triton"}
    operators = [awkward.compile(fabric, "laptop-switch", "bf16", pins, M=36, K=40, N=24) for fabric in world.fabrics]
    schedule = awkward.plan("laptop-switch", 2, "bf16", pins, M=36, K=40, N=24)
    inputs = make_inputs(schedule.spec, 3)
    results = [op(*parts.values()) for op, parts in zip(operators, inputs, strict=True)]
    world.run()
    outputs = [(result,) for result in results if isinstance(result, torch.Tensor)]
    assert not compare_call(schedule, inputs, outputs).differences


def test_inputs_that_require_grad() -> None:
    """Torch would lose the gradient in silence; where it records nothing, there is nothing to lose."""
    world = World(2, num_sms=8)
    op = awkward.compile(world.fabrics[0], "laptop-switch", M=36, K=40, N=24)
    x, w = torch.zeros(36, 20, dtype=torch.bfloat16), torch.nn.Parameter(torch.zeros(20, 24, dtype=torch.bfloat16))
    with pytest.raises(InputRequiresGrad) as refused:
        op(x, w)
    assert refused.value.facts["name"] == "y_staged_value"
    assert "y_staged_value.detach()" in str(refused.value) and "torch.no_grad()" in str(refused.value)
    op(x, w.detach())
    with torch.no_grad():
        op(x, w)
    with torch.inference_mode():
        op(x, w)


def test_emitted_files_refuse_inputs_that_require_grad() -> None:
    world = World(2, num_sms=8)
    module = load_source(awkward.emit(topology="laptop-switch", num_ranks=2, M=36, K=40, N=24), "awkward")
    op = operator_class(module)(world.fabrics[0])
    x, w = torch.zeros(36, 20, dtype=torch.bfloat16), torch.zeros(20, 24, dtype=torch.bfloat16)
    with pytest.raises(
        RuntimeError, match=r"rank_value requires grad, and there is no backward: pass rank_value.detach\(\)"
    ):
        op(x.requires_grad_(), w)


def test_a_file_without_an_operator(tmp_path: Path) -> None:

    file = tmp_path / "nothing.py"
    file.write_text("x = 1\n")
    with pytest.raises(NotAnOperatorFile) as refused:
        of_file(file)
    assert "none" in str(refused.value) and "INPUTS" in str(refused.value)
    file.write_text("import nowhere_at_all\n")
    with pytest.raises(NotAnOperatorFile) as refused:
        of_file(file)
    assert "nowhere_at_all" in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "calls", "never,oldest", "calls,fastest", "calls,oldest,calls=0", "calls,oldest,seed"]
)
def test_a_run_that_cannot_be_replayed(text: str) -> None:

    with pytest.raises(UnknownReplay) as refused:
        parse_trial(text)
    assert refused.value.facts["text"] == text


def test_a_refuted_schedule(monkeypatch: pytest.MonkeyPatch) -> None:

    finding = Finding(BugClass.CIRCLE, "launch 1", "it waits for itself")
    monkeypatch.setattr(fallback, "verify", lambda schedule: Proof(schedule.hash, (finding,), (), 0.0))
    with pytest.raises(ScheduleRefuted) as refused:
        ag_gemm.plan("laptop-switch", 2, M=72, K=40, N=104)  # sizes that nothing else has planned, or it is remembered
    assert refused.value.facts["findings"] == (finding,)


def test_a_worker_that_is_ended() -> None:
    with pytest.raises(WorkersDied) as caught, fresh_processes(1) as pool:
        pool.submit(os._exit, 9).result()
    assert caught.value.facts["workers"] == 1


@pytest.mark.slow
def test_files_of_the_current_folder_are_no_modules_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "operator.py").write_text("raise ImportError('it takes the place of a module of Python')")
    monkeypatch.chdir(tmp_path)
    with fresh_processes(1) as pool:
        assert pool.submit(abs, -3).result() == 3
