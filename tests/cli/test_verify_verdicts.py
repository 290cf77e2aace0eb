"""`tilelink verify` of files that it cannot judge: neither "refuted" nor "right", but what stands in the way, and exit code 2."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Invoke

DOUBLE = """
import torch
import triton
import triton.language as tl
from tilelink.compat.dialects.symm_mem import symmetric_memory


@triton.jit
def double(x, out):
    {statement}
    tl.store(out + tl.arange(0, 16), 2.0 * tl.load(x + tl.arange(0, 16)))


class Double:
    INPUTS = {{"x": ((16,), torch.float32)}}
    NUM_SMS = 2

    def __init__(self, fabric):
        self.symm = symmetric_memory(fabric)

    def __call__(self, x):
        out = torch.empty_like(x)
        with self.symm.launches():
            double[(1,)](x, out)
        return out


def reference(rank_inputs):
    return [(2 * inputs["x"],) for inputs in rank_inputs]
"""
OPTIONS = ("--ranks", "2", "--seeds", "0", "--workers", "1")


def _written(folder: Path, statement: str) -> str:
    file = folder / "double.py"
    file.write_text(DOUBLE.format(statement=statement))
    return str(file)


def test_unknown_assembly_is_not_checked(invoke: Invoke, tmp_path: Path) -> None:
    asm = 'tl.inline_asm_elementwise("mov.u32 $0, %gridid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1)'
    file = _written(tmp_path, asm)
    result = invoke("verify", file, *OPTIONS)
    assert result.exit_code == 2
    first, where, what, *rest = result.stdout.splitlines()
    assert first.startswith("not checked: Double, 2 emulated ranks, 2 adversarial runs, ")
    assert where.startswith("  on rank ") and " at double.py:10: `tl.inline_asm_elementwise(" in where
    assert "mov.u32 $0, %gridid" in what
    assert "refuted" not in result.stdout and len(rest) > 1
    found = json.loads(invoke("verify", file, *OPTIONS, "--json").stdout)
    assert (found["verdict"], found["runs"]["counterexample"]) == ("not checked", None)
    met = found["runs"]["obstacle"]
    assert (met["kind"], met["file"], met["line"]) == ("not checked", "double.py", 10)
    assert "%gridid" in met["what"] and met["hint"]


def test_what_the_interpreter_lacks_is_not_checked(invoke: Invoke, tmp_path: Path) -> None:
    lacking = _written(tmp_path, "tl.extra.cuda.libdevice.erfcx(tl.load(x + tl.arange(0, 16)))")
    result = invoke("verify", lacking, *OPTIONS)
    assert result.exit_code == 2, result.output
    assert "erfcx" in result.stdout


@pytest.mark.parametrize("statement", ["tl.arange(0, 16) + tl.arange(0, 8)", "nothing.of_that_name(x)"])
def test_what_no_compiler_or_kernel_takes_is_refuted(invoke: Invoke, tmp_path: Path, statement: str) -> None:
    result = invoke("verify", _written(tmp_path, statement), *OPTIONS)
    assert result.exit_code == 1, result.output
    assert "the file does not run" in result.stdout
