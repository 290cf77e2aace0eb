"""How long a matmul of the library takes: alone, or in pieces between whose parts ranks communicate.

Fitted to cuBLAS on H200: 32 shapes in 1 to 8 pieces, and the matmul alone beside the rows of all tables and sweeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelink.ir.spec import DTYPE_BYTES
from tilelink.planner.tile_work import read_again, tile_share
from topologies.topology import Topology

_STEP_US = 0.22  # a step of 64 along k of the library's matmul takes at least this long
_FILL_US = 2.3  # first loads and last stores of a library matmul
_MOST_SPLITS = 8  # into so many pieces along k at most, if tiles are too few for all SMs
# what it costs the library to add such pieces, where k is so long that it makes them: a start, and fp32 sums stored and
# loaded at this share of the memory's rate, since they stay in the L2; 16 to 256 rows, 2 x H200 under load
_SPLIT_K, _SPLIT_US, _SPLIT_SHARE = 6144, 0.6, 1.55
_WAVE_SHARE = 0.94  # of what whole waves would cost, a library's matmul pays; 32 shapes in 1 to 8 pieces on H200
_ODD_ROW_BYTES, _ODD_WAVE_SHARE = 128, 0.2  # the same where rows of the weights are no multiple of so many bytes
_SHARE = 1.01  # of the rate of the best tile loop, the library's matmul
_SHORT, _SHORT_US = 0.3, 30.0  # short library matmuls gain so much, fading over so long; by hand, after sweep_4xh200
_SOFTNESS = 5.0  # how sharply a library matmul turns from bound by memory to bound by flops
_PIECE_US = 4.0  # between two pieces of a library matmul: a wait, drain and fill


@dataclass(frozen=True, slots=True)
class LibraryMatmul:
    """Microseconds of a matmul, without its first launch."""

    total_us: float  # in one call
    piece_us: float  # each of its pieces, without launches
    tensor_us: float  # tensor cores busy, at the sustained clock


def library_matmul(topology: Topology, rows: int, cols: int, k: int, dtype: str, pieces: int = 1) -> LibraryMatmul:
    """[rows, k] @ [k, cols] in `pieces` of equal rows."""
    gpu, size = topology.gpu, DTYPE_BYTES[dtype]
    compute = 2 * rows * k * cols / (gpu.tflops(dtype) * gpu.gemm_efficiency) / 1e6
    weights = k * cols * size
    traffic = (rows * (k + cols) + k * cols) * size + (pieces - 1) * read_again(weights, topology.gpu)
    memory = traffic / gpu.memory_gb_per_s / 1e3
    splits = _splits(rows / pieces, cols, gpu.num_sms)
    least = k / 64 / splits * _STEP_US
    busy = compute * _waves(rows / pieces, cols, gpu.num_sms, size) / _SHARE
    busy *= 1.0 - _SHORT * math.exp(-busy / _SHORT_US)
    # a matmul whose operands take about as long as its flops hides neither completely
    both = (busy**_SOFTNESS + memory**_SOFTNESS) ** (1 / _SOFTNESS)
    total = max(both, least) + _FILL_US
    if splits > 1 and k >= _SPLIT_K:
        sums = 2 * 4 * splits * rows * cols
        total += pieces * _SPLIT_US + sums / (_SPLIT_SHARE * gpu.memory_gb_per_s) / 1e3
    # a piece that does not fill the GPU takes as long as one wave
    piece = max(total / pieces, least + _FILL_US) + _PIECE_US
    return LibraryMatmul(total, piece, compute)


def _splits(rows: float, cols: float, num_sms: int) -> int:
    """Pieces along k of each tile of a matmul whose tiles alone would leave SMs idle."""
    tiles = math.ceil(rows / 128) * math.ceil(cols / 128)
    return max(1, min(_MOST_SPLITS, num_sms // tiles))


def _waves(rows: float, cols: float, num_sms: int, element_bytes: int) -> float:
    """Time of a matmul over that of one whose tiles come in whole waves: the best of three tile widths, since the library
    chooses one; it takes 256 where tiles of that width cover the columns and fill the GPU. Rows of odd bytes have kernels of
    their own, which lose less. Measured on H200 (`lab/experiments.md`)."""
    splits = _splits(rows, cols, num_sms)
    covered = cols % 256 == 0 and math.ceil(rows / 128) * cols / 256 >= num_sms
    ratios = []
    for width in (256,) if covered else (128, 192, 256):
        columns = math.ceil(cols / width)
        tiles = math.ceil(rows / 128) * columns * splits
        padded = math.ceil(tiles / num_sms) * num_sms / tiles * columns * width / cols
        ratios.append(padded / tile_share(128, width, 8 if width > 128 else 4))
    share = _ODD_WAVE_SHARE if cols * element_bytes % _ODD_ROW_BYTES else _WAVE_SHARE
    return 1.0 + share * (min(ratios) - 1.0)
