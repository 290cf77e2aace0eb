"""One schedule in two languages: the same results bit by bit on emulated ranks, and files that the target's API allows."""

from __future__ import annotations

import ast
from functools import cache

import pytest
import torch

import lowering
import topologies
from tests.pipeline.workloads import load, sizes
from tilelink.dialect_api import Vendor, check_source
from tilelink.emulator import World
from tilelink.errors import UnknownTarget
from tilelink.ir.schedule import Schedule
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source, operator_class
from tilelink.runtime.reference import make_inputs

RANKS = 3
CALLS = 3
DISTRIBUTED = "triton-distributed"

DIRECT = {"algorithm": "direct"}
# for each workload three schedules, which between them have every mover, both transfers and every algorithm
SCHEDULES: dict[str, list[dict[str, str]]] = {
    "01_queue.py:queue": [
        {"mover": "CommSms(2)", "chunks": "11", "slots": "2", "consumers": "3"},
        {"mover": "CommSms(3)", "chunks": "6", "slots": "1", "consumers": "1"},
        {"mover": "CommSms(1)", "chunks": "3", "slots": "4"},
    ],
    "02_ag_gemm.py:ag_gemm": [
        {**DIRECT, "mover": "CopyEngine()", "transfer": "push", "compute": "triton", "chunks": "2"},
        {**DIRECT, "mover": "CommSms(2)", "transfer": "pull", "compute": "triton"},
        {**DIRECT, "mover": "Fused()", "transfer": "pull", "compute": "triton"},
    ],
    "03_gemm_rs.py:gemm_rs": [
        {**DIRECT, "mover": "CopyEngine()", "transfer": "push", "compute": "triton", "chunks": "2"},
        {**DIRECT, "mover": "Fused()", "transfer": "push", "compute": "triton", "sum": "kernel"},
        {**DIRECT, "mover": "Fused()", "transfer": "pull", "compute": "library"},
    ],
    "04_gemm_ar.py:gemm_ar": [
        {"algorithm": "one-shot", "mover": "Fused()", "transfer": "pull", "compute": "library"},
        {"algorithm": "two-shot", "mover": "CommSms(2)", "transfer": "push", "compute": "triton"},
        {"algorithm": "two-shot", "mover": "CopyEngine()", "transfer": "pull", "compute": "triton"},
    ],
    "05_mlp.py:mlp": [
        {**DIRECT, "mover": "CopyEngine()", "transfer": "push"},
        {**DIRECT, "x_full.mover": "CommSms(2)", "x_full.transfer": "push", "y_parts.mover": "Fused()"},
        {"algorithm": "library"},
    ],
    "06_user_op.py:ag_squared_relu": [
        {**DIRECT, "mover": "CopyEngine()", "transfer": "push"},
        {**DIRECT, "mover": "CommSms(2)", "transfer": "push"},
        {**DIRECT, "mover": "CopyEngine()", "transfer": "pull", "chunks": "2"},
    ],
}
CASES = [(name, number) for name, found in SCHEDULES.items() for number in range(len(found))]
# one schedule for each workload, in which every mover occurs; the others are emulated in the whole suite
QUICK = {
    ("01_queue.py:queue", 0),
    ("02_ag_gemm.py:ag_gemm", 1),
    ("03_gemm_rs.py:gemm_rs", 1),
    ("04_gemm_ar.py:gemm_ar", 0),
    ("05_mlp.py:mlp", 0),
    ("06_user_op.py:ag_squared_relu", 2),
}
EMULATED = [pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow]) for case in CASES]


@cache
def planned(name: str, number: int, topology: str = "laptop-switch", num_ranks: int = RANKS) -> Schedule:
    machine = topologies.load(topology, num_ranks)
    return load(name).plan_for(machine, sizes(name, num_ranks), "bf16", dict(SCHEDULES[name][number]))


def outputs(schedule: Schedule, target: str) -> list[torch.Tensor]:
    """Every output of every rank in each of some calls with other inputs."""
    build = operator_class(load_source(lowering.emit(schedule, target), schedule.name))
    world = World(schedule.num_ranks, num_sms=schedule.machine.num_sms, seed=7, lazy_loading=True)
    operators = [build(fabric) for fabric in world.fabrics]
    found: list[torch.Tensor] = []
    for call in range(CALLS):
        for operator, parts in zip(operators, make_inputs(schedule.spec, call), strict=True):
            result = operator(*parts.values())
            found += result if isinstance(result, tuple) else (result,)
    world.run()
    return found


@pytest.mark.parametrize(("name", "number"), EMULATED)
@pytest.mark.quick(2)
def test_the_same_bits(name: str, number: int) -> None:
    schedule = planned(name, number)
    for one, other in zip(outputs(schedule, "triton"), outputs(schedule, DISTRIBUTED), strict=True):
        assert torch.equal(one, other)
        assert one.isfinite().all() and one.any()


@pytest.mark.parametrize(("name", "number"), EMULATED)
@pytest.mark.quick(3)
def test_the_api_allows_it(name: str, number: int) -> None:
    report = check_source(lowering.emit(planned(name, number), DISTRIBUTED))
    assert report.vendor is Vendor.NVIDIA
    assert not report.findings, "\n".join(report.lines())


@pytest.mark.parametrize("name", ["02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs"])
@pytest.mark.slow
def test_amd_raises_signals_without_notify(name: str) -> None:
    machine = topologies.load("mi300x-full-mesh", 4)
    pins = {**DIRECT, "mover": "CommSms(16)", "compute": "triton"}
    real = {"M": 8192, "K": 4096, "N": 14336}
    source = lowering.emit(load(name).plan_for(machine, real, "bf16", pins), DISTRIBUTED)
    report = check_source(source, vendor=Vendor.ROCSHMEM)
    assert not report.findings, "\n".join(report.lines())
    assert "dl.notify" not in source and 'semantic="release"' in source


@pytest.mark.parametrize("name", ["02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs"])
def test_only_the_spelling_differs(name: str) -> None:
    """Same header, same functions in the same order, same buffers and launches."""
    schedule = planned(name, 0)
    files = [lowering.emit(schedule, target) for target in ("triton", DISTRIBUTED)]
    headers = [file[file.index("# schedule ") :] for file in files]  # the command before it names the target
    shown = [[line for line in file.splitlines() if line.startswith("#   ")] for file in headers]
    assert shown[0] == shown[1] != []
    kernels = [file[file.index("# ---- kernels of") : file.index("# ---- the operator")] for file in files]
    names = [[node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] for text in kernels]
    assert names[0] == names[1]
    assert "on_peer(" not in files[1] and "_peers" not in kernels[1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [case for case in CASES if "user_op" not in case[0]])
def test_compiles_through_the_shim(name: str, number: int) -> None:
    schedule = planned(name, number, "h200-nvswitch", 4)
    seen = set()
    for launch in record(load_source(lowering.emit(schedule, DISTRIBUTED), "emitted"), 4):
        seen.add(launch.kernel.__name__)  # type: ignore[attr-defined]
        assert "cubin" in compile_launch(launch, "sm_90").asm
    assert seen or number == 2


def test_an_unknown_target() -> None:
    with pytest.raises(UnknownTarget) as caught:
        lowering.emit(planned("02_ag_gemm.py:ag_gemm", 0), "triton-distribted")
    assert "triton-distributed" in str(caught.value)
