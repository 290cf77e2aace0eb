"""Emitted files: what they import, what they carry, that they compile for both vendors, and a few of them word by word."""

from __future__ import annotations

import ast
import dis
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType

import pytest

import topologies
from lowering.targets import TARGETS
from tests.pipeline.workloads import has, load
from tilelink.runtime.aot import compile_launch, record
from tilelink.runtime.load import load_source

REAL = {
    "01_queue.py:queue": {"B": 4 * 2025, "C": 128},
    "02_ag_gemm.py:ag_gemm": {"M": 8192, "K": 4096, "N": 14336},
    "03_gemm_rs.py:gemm_rs": {"M": 8192, "K": 14336, "N": 4096},
    "04_gemm_ar.py:gemm_ar": {"M": 8192, "K": 14336, "N": 4096},
    "05_mlp.py:mlp": {"M": 1024, "H": 4096, "F": 14336},
    "06_user_op.py:ag_squared_relu": {"M": 2048, "K": 1024, "N": 4096},
}
RAGGED = {
    "02_ag_gemm.py:ag_gemm": {"M": 1028, "K": 4097, "N": 14340},
    "03_gemm_rs.py:gemm_rs": {"M": 1028, "K": 14340, "N": 4097},
}
TRITON = {"compute": "triton"}
GEMM_RS = "03_gemm_rs.py:gemm_rs"


def emit(name: str, topology: str, sizes: dict[str, int], target: str = "triton", **pins: object) -> str:
    return load(name).plan_for(topologies.load(topology, 4), sizes, "bf16", dict(pins)).emit(target)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == GEMM_RS else [pytest.mark.slow]) for n in REAL])
def test_imports(name: str) -> None:
    tree = ast.parse(emit(name, "h200-nvswitch", REAL[name]))
    found = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    found |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found - sys.stdlib_module_names <= {"torch", "triton", "cuda"}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("topology", ["h200-nvswitch", "mi300x-full-mesh"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == GEMM_RS else [pytest.mark.slow]) for n in REAL])
@pytest.mark.slow
def test_names_are_defined_and_used(name: str, topology: str, target: str, tmp_path: Path) -> None:
    """Also names that only code on GPUs reads."""
    pins = {"mover": "CopyEngine()", **TRITON} if name == GEMM_RS else {}
    source = emit(name, topology, REAL[name], target, **pins)
    (tmp_path / "emitted.py").write_text(source)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F", str(tmp_path)]
    linted = subprocess.run(command, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout
    module = compile(source, "emitted", "exec")
    functions = {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
    assert functions and functions <= set(_globals_read(module))


def _globals_read(code: CodeType) -> Iterator[str]:
    """Names of globals that `code` and the functions in it read."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_read(constant)


def test_header_names_the_user_lines() -> None:
    # pinned, because the lines are those of the spec whatever is planned, and a plan of the MLP takes seconds
    source = emit("05_mlp.py:mlp", "h200-nvswitch", REAL["05_mlp.py:mlp"], algorithm="library", compute="library")
    head = source[: source.index("import argparse")]
    assert "# schedule mlp on h200-nvswitch x4, M=1024 H=4096 F=14336 bf16" in head
    assert "#     hidden = tilelink.silu(gate) * up" in head
    assert "# src[05_mlp.py:" in head
    assert "/" not in "".join(line for line in head.splitlines() if "src[" in line)


@pytest.mark.parametrize(
    ("name", "mover"),
    [
        (name, mover)
        for name in REAL
        for mover in ("CopyEngine()", "CommSms(16)")
        if not ("queue" in name and mover == "CopyEngine()")  # whose producers are programs
    ],
)
@pytest.mark.parametrize(("topology", "arch"), [("h200-nvswitch", "sm_90"), ("mi300x-full-mesh", "gfx942")])
@pytest.mark.slow
def test_compiles(name: str, topology: str, arch: str, mover: str) -> None:
    pins = TRITON if has(name, TRITON) else {}
    compiles(emit(name, topology, REAL[name], mover=mover, **pins), topology, arch)


@pytest.mark.slow
@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize(("topology", "arch"), [("h200-nvswitch", "sm_90"), ("mi300x-full-mesh", "gfx942")])
def test_ragged_sizes_compile(name: str, topology: str, arch: str) -> None:
    compiles(emit(name, topology, RAGGED[name], **TRITON), topology, arch)


@pytest.mark.slow
@pytest.mark.parametrize("mover", ["CopyEngine()", "Fused()"])
@pytest.mark.parametrize("prefetch", ["yes", "no"])
def test_a_single_step_of_k_compiles(mover: str, prefetch: str) -> None:
    """The compiler takes a loop over tiles for one over k then, and fails if own tiles are a branch in it."""
    sizes = {"M": 512, "K": 256, "N": 512}
    pins = {"mover": mover, "y.prefetch": prefetch, "y.tile": "128x128x64/4w5s", "sum": "epilogue", **TRITON}
    compiles(emit("03_gemm_rs.py:gemm_rs", "h200-nvswitch", sizes, **pins), "h200-nvswitch", "sm_90")


def compiles(source: str, topology: str, arch: str) -> None:
    limit = topologies.load(topology).gpu.shared_bytes_per_sm
    module = load_source(source, "emitted")
    seen = set()
    for launch in record(module, 4):
        kernel = launch.kernel.__name__  # type: ignore[attr-defined]
        if kernel in seen:
            continue
        seen.add(kernel)
        compiled = compile_launch(launch, arch)
        assert compiled.metadata.shared <= limit
        assert "cubin" in compiled.asm or "hsaco" in compiled.asm
    assert seen


@pytest.mark.slow
def test_signals_are_released_behind_a_barrier() -> None:
    """In PTX every release follows a CTA barrier with no store to global memory between them."""
    source = emit(
        "03_gemm_rs.py:gemm_rs", "h200-nvswitch", REAL["03_gemm_rs.py:gemm_rs"], mover="CommSms(16)", **TRITON
    )
    releases = 0
    for launch in record(load_source(source, "emitted"), 4):
        barrier = False
        for line in compile_launch(launch, "sm_90").asm["ptx"].splitlines():
            if "bar.sync" in line:
                barrier = True
            elif "st.global" in line or "cp.async.bulk.tensor" in line:
                barrier = False
            elif ".release." in line or ".acq_rel." in line:
                releases += 1
                assert barrier, line
    assert releases


GOLDENS: list[tuple[str, str, str, dict[str, object]]] = [
    ("02_ag_gemm.py:ag_gemm", "h200-nvswitch", "triton", {"mover": "CopyEngine()", "transfer": "push", **TRITON}),
    ("03_gemm_rs.py:gemm_rs", "h200-nvswitch", "triton", {"mover": "CopyEngine()", "sum": "epilogue", **TRITON}),
    (
        "03_gemm_rs.py:gemm_rs",
        "h200-nvswitch",
        "triton-distributed",
        {"mover": "CopyEngine()", "sum": "epilogue", **TRITON},
    ),
    (
        "02_ag_gemm.py:ag_gemm",
        "mi300x-full-mesh",
        "triton",
        {
            **{"mover": "CommSms(16)", "transfer": "push", "chunks": "4"},
            **{"tile": "128x128x64/8w2s", "tail": "halves", **TRITON},
        },
    ),
]


def emit_golden(name: str, topology: str, target: str, pins: dict[str, object]) -> str:
    given = {"algorithm": "direct", "tile": "128x128x64/8w3s", "group": "8", **pins}
    return emit(name, topology, REAL[name], target, **given)


@pytest.mark.parametrize(("name", "topology", "target", "pins"), GOLDENS)
def test_golden(
    name: str, topology: str, target: str, pins: dict[str, object], golden: Callable[[str, str], None]
) -> None:
    """The kernels only: helpers, fabric and self-check are the same in every file."""
    source = emit_golden(name, topology, target, pins)
    start, end = source.index("# ---- kernels of"), source.index("# ---- the operator")
    file = "__".join(part.replace("-", "_") for part in (name.split(":")[1], topology, target))
    golden(f"{file}.py", source[start:end].rstrip() + "\n")
