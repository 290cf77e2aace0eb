"""Element types and elementwise functions: all that is known of one stands in its row, and nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
import triton.language as tl

from tilelink.ir.dtype import DTYPES, Dtype, dtype_name
from tilelink.ir.ops.elementwise import FUNCTIONS

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "elaborate", "ir", "mutation", "planner", "proof", "runtime")


@pytest.mark.parametrize("row", DTYPES.values(), ids=lambda row: row.name)
def test_a_dtype_is_that_of_torch_and_triton(row: Dtype) -> None:
    of_torch, of_triton = getattr(torch, row.torch), getattr(tl, row.triton)
    assert of_torch.itemsize == row.bytes and of_triton.primitive_bitwidth == 8 * row.bytes
    spellings = (of_torch, str(of_torch), row.torch, row.name, *row.spelled)
    assert {dtype_name(spelled) for spelled in spellings} == {row.name}
    assert all(getattr(torch, spelled) == of_torch for spelled in row.spelled)


@pytest.mark.parametrize(
    ("names", "homes"),
    [
        (
            DTYPES.keys() - {"bf16", "fp32", "int32"},
            {"ir/dtype.py"},
        ),  # one is the default of commands, one what is accumulated in, one of tables
        (
            FUNCTIONS.keys() - {"add", "sub", "mul", "div", "neg"},
            {"ir/ops/elementwise.py", "ir/functions.py"},
        ),  # of Python
    ],
    ids=["dtypes", "functions"],
)
def test_no_other_file_knows_a_row(names: set[str], homes: set[str]) -> None:
    files = [path for folder in FOLDERS for path in (ROOT / "tilelink" / folder).rglob("*.py")]
    files += (ROOT / "lowering").rglob("*.py")
    assert names and len(files) > 100
    knowing = {path for path in files for node in ast.walk(ast.parse(path.read_text())) if _is_one(node, names)}
    assert {str(path.relative_to(ROOT / "tilelink")) for path in knowing} <= homes


def _is_one(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Constant) and node.value in names
