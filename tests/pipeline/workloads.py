"""The workloads of examples/ with sizes that are small and ragged."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import topologies
from tilelink.declaration import Overlap
from tilelink.ir.spec import bind
from tilelink.planner.pins import pin_names
from tilelink.spec_file import load_overlap

# the quick suite runs files of one target; that both give the same bits is seen in test_targets.py
STOCK_FIRST = ["triton", pytest.param("triton-distributed", marks=pytest.mark.slow)]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# sizes for r ranks: rows of a rank no multiple of a tile, odd columns and depths where the spec allows them
SIZES = {
    "01_queue.py:queue": {"B": 11, "C": 20},
    "02_ag_gemm.py:ag_gemm": {"M": 17, "K": 45, "N": 21},
    "03_gemm_rs.py:gemm_rs": {"M": 19, "K": 23, "N": 51},
    "04_gemm_ar.py:gemm_ar": {"M": 9, "K": 21, "N": 37},
    "05_mlp.py:mlp": {"M": 11, "H": 33, "F": 13},
    "06_user_op.py:ag_squared_relu": {"M": 18, "K": 39, "N": 11},
}
_CUT = {"B", "M", "N", "K", "F"}  # divided by the number of ranks somewhere in these specs


def load(name: str) -> Overlap:
    return load_overlap(str(EXAMPLES / name))


def sizes(name: str, num_ranks: int) -> dict[str, int]:
    """Sizes that `num_ranks` divides where it must: multiples of an odd number of rows a rank."""
    return {key: size * num_ranks if key in _CUT else size for key, size in SIZES[name].items()}


@cache
def space(name: str) -> dict[str, frozenset[str]]:
    """For each field the values that schedules of the workload have on a small machine: a queue is pushed by SMs only, a
    user's op is no matmul of the library."""
    known = pin_names(bind(load(name).spec, sizes(name, 2), 2, "bf16"), topologies.load("laptop-switch", 2))
    fields = sorted({full.rpartition(".")[2] for full in known})
    return {
        field: frozenset().union(*(known[full] for full in known if full.endswith(f".{field}"))) for field in fields
    }


def has(name: str, pins: Mapping[str, str]) -> bool:
    """Whether schedules of the workload have these values."""
    return all(value in space(name).get(field, ()) for field, value in pins.items())


def overlapping(name: str, **pins: str) -> dict[str, str]:
    """`pins` and, where the workload has such schedules, collectives that are not the library's in one call, and tile loops
    for the matmuls."""
    wished = {"protocol": "simple", "compute": "triton"}
    return {field: value for field, value in wished.items() if has(name, {field: value})} | pins
