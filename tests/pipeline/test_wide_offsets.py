"""Buffers of 2^31 elements and more: offsets in 64 bits where 32 are too few, and only there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
import torch

import lowering
import topologies
from lowering import names
from tests.pipeline.plain import plain
from tests.pipeline.test_emitted import compiles
from tests.pipeline.test_queue import planned as planned_queue
from tests.pipeline.test_queue import received
from tests.pipeline.test_targets import CASES, DISTRIBUTED, QUICK, outputs, planned
from tests.pipeline.workloads import load
from tilelink.elaborate.user_body import functions

TARGETS = ("triton", DISTRIBUTED)
AG_GEMM, GEMM_RS = "02_ag_gemm.py:ag_gemm", "03_gemm_rs.py:gemm_rs"
PINS = {"algorithm": "direct", "compute": "triton", "tile": "128x128x64/8w3s"}
BY_SMS = {"tail": "whole", **PINS, "mover": "CommSms(16)", "chunks": "1"}
HUGE = {"M": 4096, "K": 2**21, "N": 1024}  # parts of 2^31 elements
BUFFERS = ("x", "w", "out", "x_full", "x_shared", "y_staged", "y_parts", "out_queue", "y", "hidden", "out_whole")
EMULATED = [pytest.param(*case, marks=[] if case in sorted(QUICK)[::2] else [pytest.mark.slow]) for case in CASES]


def kernels(source: str) -> str:
    return source[source.index("# ---- kernels of") : source.index("# ---- the operator")]


def emit(
    name: str, sizes: dict[str, int], pins: dict[str, str], target: str = "triton", arch: str = "h200-nvswitch"
) -> str:
    return lowering.emit(load(name).plan_for(topologies.load(arch, 4), sizes, "bf16", pins), target)


def narrow(text: str) -> Iterator[str]:
    """Offsets of elements in `text` that are products of 32 bits: what is added to a pointer to elements."""
    for node in ast.walk(ast.parse(text)):
        added = (
            node.right
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_pointer(node.left)
            else None
        )
        if isinstance(added, ast.BinOp) and isinstance(added.op, ast.Mult) and "tl.int64" not in ast.unparse(added):
            yield ast.unparse(added)


def _is_pointer(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_pointer(node.left)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("on_peer", "dl.symm_at") and "signal" not in ast.unparse(node)
    return isinstance(node, ast.Name) and (node.id in BUFFERS or node.id.endswith(("_from", "_remote", "_awaited")))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("transfer", ["push", "pull"])
def test_parts_of_4_gib_moved_by_sms(transfer: str, target: str) -> None:
    huge, usual = (
        kernels(plain(emit(AG_GEMM, sizes, {**BY_SMS, "transfer": transfer}, target)))
        for sizes in (HUGE, {**HUGE, "K": 4096})
    )
    of = "rank" if transfer == "push" else "peer"
    assert f"+ tl.cast({of}, tl.int64) * 2147483648" in huge
    assert "+ tl.cast(begin, tl.int64) * 2097152" in huge
    assert f" + {of} * 4194304 + begin * 4096, " in usual and "share * 4096, 16384)" in usual
    assert list(narrow(huge)) == [] and list(narrow(usual)) and "int64" not in usual


def test_a_loop_that_would_step_past_32_bits() -> None:
    """The part has less than 2^31 elements, but its length rounded up to blocks has not."""
    alone = BY_SMS | {"transfer": "push", "mover": "CommSms(1)"}
    text = kernels(plain(emit(AG_GEMM, {"M": 4 * 16, "K": 2**27 - 8, "N": 1024}, alone)))
    assert "tl.cast(share, tl.int64) * 134217720, 16384)" in text


@pytest.mark.parametrize("mover", ["CommSms(16)", "CopyEngine()", "Fused()"])
@pytest.mark.parametrize(("arch", "gpu"), [("h200-nvswitch", "sm_90"), ("mi300x-full-mesh", "gfx942")])
@pytest.mark.quick(1)
def test_huge_operators_compile(mover: str, arch: str, gpu: str) -> None:
    pins = {**PINS, "tile": "128x128x64/8w2s", "mover": mover}
    compiles(emit(AG_GEMM, {"M": 2048, "K": 2**22 + 1, "N": 1028}, pins, arch=arch), arch, gpu)


@pytest.fixture
def all_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every offset is spelled as in buffers of 2^31 elements."""
    monkeypatch.setattr(names, "INT32_LIMIT", 1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), EMULATED)
def test_the_same_bits_in_64_bits(name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = planned(name, number)
    usual = outputs(schedule, "triton")
    monkeypatch.setattr(names, "INT32_LIMIT", 1)
    for target in TARGETS:
        source = kernels(lowering.emit(schedule, target))
        users = functions(schedule)  # they get sizes, and compute addresses as they like
        assert users in source
        assert list(narrow(source.replace(users, ""))) == []
        assert all(torch.equal(*pair) for pair in zip(usual, outputs(schedule, target), strict=True))


@pytest.mark.parametrize("target", TARGETS)
def test_queues_in_64_bits(target: str, all_wide: None) -> None:
    schedule = planned_queue(3, 7, 24, 4, 2, 3, 2)
    text = kernels(lowering.emit(schedule, target))
    assert list(narrow(text)) == [] and text.count("tl.cast(slot, tl.int64) * OUT_QUEUE_PART") == 2
    received(schedule, target, calls=3)


def test_slices_of_own_tiles_compile_in_64_bits(all_wide: None) -> None:
    source = emit(GEMM_RS, {"M": 8192, "K": 14336, "N": 4096}, {**PINS, "mover": "CopyEngine()", "sum": "epilogue"})
    assert "_cols_0" in source or "halves(" in source
    compiles(source, "h200-nvswitch", "sm_90")
