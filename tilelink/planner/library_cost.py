"""How long what the library computes takes: matmuls alone, or in pieces between whose parts ranks communicate; attention alone.

Matmuls are fitted to cuBLAS: 32 shapes in 1 to 8 pieces, and the matmul alone beside the rows of all tables, sweeps and corpora.
The logarithm of 1,226 times on H100 and H200 is off by 0.062 (root of the mean square; 0.052 for more than 256 rows).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelink.ir.spec import DTYPE_BYTES, Attend
from tilelink.planner.tile_work import read_again, tile_share
from topologies.topology import Topology

_STEP_US = 0.2  # a step of 64 along k of the library's matmul takes at least this long
_FILL_US = 1.2  # first loads and last stores of a library matmul
_MOST_SPLITS = 8  # into so many pieces along k at most, if tiles are too few for all SMs
_SPLIT_K, _SPLIT_US = 6144, 3.1  # what it costs the library to add such pieces, where k is so long that it makes them
# of what whole waves would cost, a library's matmul pays: it has tiles of many shapes, and rarely takes those that leave SMs
# idle, but where rows are a multiple of 128 and weights lie as [K, N]
_WAVE_SHARE, _WHOLE_TILES_SHARE = 0.15, 0.47
_HEIGHT = 64  # rows of its lowest tiles: a matmul pays for whole ones (2 x H200)
_SHARE = 1.034  # of the rate of the best tile loop, the library's matmul
_MEMORY_SHARE = 0.98  # of the memory's rate
_SOFTNESS = 3.44  # how sharply a library matmul turns from bound by memory to bound by flops
_PIECE_SHARE = 0.015  # a piece takes so much longer for each doubling of their number
# cuDNN's attention (2 x H100, 2 x H200; heads of 64 and 128): of the rate of the best tile loop; of that, a piece with a causal
# mask; what it loses for each doubling beyond so many keys; before the first and behind the last tile; rows of a tile, of which
# all take one time; weights of a key take as long as so many elements of its head; times that results are read or written after
# it, without and with a merge
_ATTENTION_SHARE, _MASKED_SHARE, _FAR_SHARE, _MANY_KEYS = 0.93, 0.78, 0.06, 8192
_ATTENTION_US, _ATTENTION_ROWS, _BESIDE_WIDTH, _COPY, _MERGE = 2.0, 128, 96, 2, 5
# part by part (14 rows, 2 x H200): a part that comes, with two waits and a kernel that merges; copies beside it
_PART_US, _BESIDE_COPIES = 20.0, 1.07
# own keys and those before as two pieces of one call: the second one, and the merge (13 rows, 2 x H200)
_MERGED_US = 13.0
_PIECE_US = 4.0  # between two pieces of a library matmul: a wait, drain and fill


@dataclass(frozen=True, slots=True)
class LibraryTimes:
    """Microseconds of a matmul or of attention, without its first launch."""

    total_us: float  # in one call
    piece_us: float  # each of its pieces, without launches
    tensor_us: float  # tensor cores busy, at the sustained clock


def library_matmul(
    topology: Topology, rows: int, cols: int, k: int, dtype: str, transposed: bool = False, pieces: int = 1
) -> LibraryTimes:
    """[rows, k] @ [k, cols] in `pieces` of equal rows; `transposed`: the second operand lies as [cols, k]."""
    gpu, size = topology.gpu, DTYPE_BYTES[dtype]
    compute = 2 * rows * k * cols / (gpu.tflops(dtype) * gpu.gemm_efficiency) / 1e6
    weights = k * cols * size
    traffic = (rows * (k + cols) + k * cols) * size + (pieces - 1) * read_again(weights, topology.gpu)
    memory = traffic / (_MEMORY_SHARE * gpu.memory_gb_per_s) / 1e3
    splits = _splits(rows / pieces, cols, gpu.num_sms)
    least = k / 64 / splits * _STEP_US
    waves = _waves(rows / pieces, cols, gpu.num_sms, transposed)
    busy = compute * waves * math.ceil(rows / _HEIGHT) * _HEIGHT / rows / _SHARE
    # a matmul whose operands take about as long as its flops hides neither completely
    both = (busy**_SOFTNESS + memory**_SOFTNESS) ** (1 / _SOFTNESS)
    total = max(both, least) + _FILL_US
    if splits > 1 and k >= _SPLIT_K:
        total += pieces * _SPLIT_US
    # a piece that does not fill the GPU takes as long as one wave
    share = total / pieces * (1.0 + _PIECE_SHARE * math.log2(pieces))
    piece = max(share, least + _FILL_US) + _PIECE_US
    return LibraryTimes(total, piece, compute)


def library_attention(
    topology: Topology, how: Attend, queries: int, keys: int, dtype: str, parts: int = 1
) -> LibraryTimes:
    """Of so many rows of queries and of keys on a rank, in one call or in one for each part of the keys. With a causal mask of
    the last rank, which sees most; its own keys and those of the ranks before are two pieces at least, which are merged."""
    gpu, sequences = topology.gpu, how.sequences
    rows, others = queries // sequences, keys // sequences
    masked = rows if how.causal else 0  # own keys, of which half are seen
    beyond = others - masked if parts == 1 else others // parts  # in a piece without a mask
    far = max(0.0, math.log2(max(beyond, 1) / _MANY_KEYS)) * _FAR_SHARE
    of_masked, of_others = masked**2 / 2 / _MASKED_SHARE, rows * (others - masked) * (1.0 + far)
    width = (how.width + _BESIDE_WIDTH) * 128 / (128 + _BESIDE_WIDTH)
    peak, tiles = gpu.tflops(dtype) * gpu.gemm_efficiency, sequences * how.heads * math.ceil(rows / _ATTENTION_ROWS)
    whole = (
        math.ceil(tiles / gpu.num_sms)
        * gpu.num_sms
        / tiles
        * math.ceil(rows / _ATTENTION_ROWS)
        * _ATTENTION_ROWS
        / rows
    )
    us_of_pair = 4 * sequences * how.heads * whole * width / (peak * _ATTENTION_SHARE) / 1e6
    us_of_pair *= _BESIDE_COPIES if parts > 1 else 1.0
    busy = 4 * sequences * how.heads * how.width * rows * (others - masked / 2) / peak / 1e6
    pieces = max(parts, 2 if 0 < masked < others else 1)
    copy_us = queries * how.heads * how.width * DTYPE_BYTES[dtype] / gpu.memory_gb_per_s / 1e3
    more = (
        us_of_pair * of_others / max(1, pieces - (masked > 0)) + _ATTENTION_US + _PART_US + (_MERGE - _COPY) * copy_us
    )
    total = (
        us_of_pair * (of_masked + of_others)
        + pieces * _ATTENTION_US
        + (parts - 1) * _PART_US
        + (pieces - parts) * _MERGED_US
        + (_COPY + (_MERGE - _COPY) * (pieces - 1)) * copy_us
    )
    return LibraryTimes(total, more if parts > 1 else total, busy)


def _splits(rows: float, cols: float, num_sms: int) -> int:
    """Pieces along k of each tile of a matmul whose tiles alone would leave SMs idle."""
    tiles = math.ceil(rows / 128) * math.ceil(cols / 128)
    return max(1, min(_MOST_SPLITS, num_sms // tiles))


def _waves(rows: float, cols: float, num_sms: int, transposed: bool) -> float:
    """Time of a matmul over that of one whose tiles come in whole waves: a share of the best of three tile widths, since the
    library chooses one; it takes 256 where tiles of that width cover the columns and fill the GPU."""
    splits = _splits(rows, cols, num_sms)
    covered = cols % 256 == 0 and math.ceil(rows / 128) * cols / 256 >= num_sms
    ratios = []
    for width in (256,) if covered else (128, 192, 256):
        columns = math.ceil(cols / width)
        tiles = math.ceil(rows / 128) * columns * splits
        padded = math.ceil(tiles / num_sms) * num_sms / tiles * columns * width / cols
        ratios.append(padded / tile_share(128, width, 8 if width > 128 else 4))
    share = _WAVE_SHARE if transposed or rows % 128 else _WHOLE_TILES_SHARE
    return 1.0 + share * (min(ratios) - 1.0)
