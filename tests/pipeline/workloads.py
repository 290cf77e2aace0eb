"""The workloads of examples/ with sizes that are small and ragged."""

from __future__ import annotations

from pathlib import Path

from tilelink.overlap import Overlap
from tilelink.spec_file import load_overlap

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# sizes for r ranks: rows of a rank no multiple of a tile, odd columns and depths where the spec allows them
SIZES = {
    "02_ag_gemm.py:ag_gemm": {"M": 17, "K": 45, "N": 21},
    "03_gemm_rs.py:gemm_rs": {"M": 19, "K": 23, "N": 51},
    "04_gemm_ar.py:gemm_ar": {"M": 9, "K": 21, "N": 37},
    "05_mlp.py:mlp": {"M": 11, "H": 33, "F": 13},
    "06_user_op.py:ag_squared_relu": {"M": 18, "K": 39, "N": 11},
}
_CUT = {"M", "N", "K", "F"}  # divided by the number of ranks somewhere in these specs


def load(name: str) -> Overlap:
    return load_overlap(str(EXAMPLES / name))


def sizes(name: str, num_ranks: int) -> dict[str, int]:
    """Sizes that `num_ranks` divides where it must: multiples of an odd number of rows a rank."""
    return {key: size * num_ranks if key in _CUT else size for key, size in SIZES[name].items()}
