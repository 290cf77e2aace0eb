"""Tile shapes worth trying, and whether one fits a GPU: shared memory of the pipeline, registers of the accumulator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelink.ir.enums import WARP, Protocol
from tilelink.ir.nodes import PIECE_ROWS, TURN_SLICE_BYTES, TileShape
from tilelink.ir.ops.attention import Attend
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import SMALLEST_DOT
from tilelink.ir.warpgroups import GROUP_WARPS
from topologies.topology import Gpu, Vendor

# Shapes that fill wgmma and MFMA well, largest first.
MATMUL_TILES = (
    TileShape(128, 256, 64, 8, 3),
    TileShape(128, 128, 64, 4, 5, warpgroups=2),
    TileShape(128, 128, 64, 4, 3, per_sm=2),
    TileShape(128, 128, 64, 4, 5),
    TileShape(256, 128, 64, 8, 3),
    TileShape(128, 128, 64, 8, 3),
    TileShape(256, 128, 64, 8, 2),
    TileShape(128, 128, 64, 8, 2),
    TileShape(128, 128, 64, 4, 4),
    TileShape(64, 256, 64, 4, 4),
    TileShape(64, 128, 64, 4, 4),
    TileShape(64, 64, 64, 4, 4),
    TileShape(64, 64, 32, 4, 2),
    TileShape(32, 128, 64, 4, 5),
    TileShape(32, 64, 64, 4, 4),
    TileShape(32, 32, 32, 4, 2),
    TileShape(16, 128, 64, 4, 5),
    TileShape(16, 64, 64, 4, 4),
    TileShape(128, 64, 128, 4, 4),
    TileShape(64, 128, 128, 4, 4),
    TileShape(64, 64, 128, 4, 6),
    TileShape(64, 32, 128, 4, 6),
    TileShape(32, 64, 128, 4, 6),
    TileShape(16, 64, 256, 4, 4),
    TileShape(16, 64, 128, 4, 6),
    TileShape(16, 32, 32, 4, 2),
    TileShape(16, 16, 16, 4, 2),
)
# Of matmuls in one loop over k: they share the tile of the left operand, and one beside the other takes what these take.
_PAIRS = (
    TileShape(128, 128, 64, 8, 4),  # where they end in one tile to store, there is room for a fourth stage
    TileShape(64, 128, 64, 4, 3),
    TileShape(64, 64, 128, 4, 4),
    TileShape(32, 128, 64, 4, 4),
    TileShape(16, 128, 64, 4, 5),
    TileShape(16, 64, 128, 4, 5),
)
# Of experts with as many rows as this tile or more: lower ones load weights again (8 experts of 128 rows, 2,048 by 14,336: 298 us
# by tiles of 64 rows, 270 by this one, with the sum; 2 x H100). These loops load nothing of the next tile before they store one,
# which leaves room for a fourth stage: 8,192 rows of 4,096 by 7,168 columns behind a gather took 866 us with it, 887 without.
_OF_EXPERTS = replace(MATMUL_TILES[0], stages=4)
# For ops that stream through memory once.
STREAM_TILES = (
    TileShape(64, 256, 0, 8, 1),
    TileShape(32, 256, 0, 8, 1),
    TileShape(32, 128, 0, 8, 1),
    TileShape(64, 128, 0, 4, 1),
    TileShape(16, 64, 0, 4, 1),
    TileShape(16, 16, 0, 4, 1),
)
# Of tiles that add rows of several experts, whose loads come one after the other: several programs have some under way.
COMBINE_TILES = (
    TileShape(32, 128, 0, 8, 1, per_sm=4),
    TileShape(16, 128, 0, 4, 1, per_sm=8),
    TileShape(16, 64, 0, 4, 1, per_sm=8),
    *STREAM_TILES,
)
# Of attention: rows of queries, a head, tokens of keys.
_ATTENTION_TILES = (
    TileShape(128, 0, 128, 4, 2, warpgroups=2),
    TileShape(128, 0, 64, 4, 3, warpgroups=2),
    TileShape(128, 0, 128, 8, 2),
    TileShape(128, 0, 64, 8, 3),
    TileShape(128, 0, 64, 8, 2),
    TileShape(128, 0, 64, 4, 3),
    TileShape(64, 0, 64, 4, 3),
    TileShape(64, 0, 64, 4, 2),
    TileShape(64, 0, 32, 4, 2),
    TileShape(32, 0, 32, 4, 2),
    TileShape(16, 0, 16, 4, 2),
)
_DEEP_STEP, _FEW_ROWS = 64, 256  # longer steps of k are for loops that wait for memory: less to do for each of them
_BARRIER_BYTES = 8
_ALIGNED_BARRIERS = 512  # of cooperative tiles
_POINTERS_MORE = 1.25  # of shared memory, for attention whose keys are loaded by pointer: the most seen is 1.15
_RESERVED_SHARED_BYTES = 1024  # of each block, kept by the system (CUDA programming guide)
_REGISTERS = 65536  # 32-bit registers of an SM (CUDA programming guide)
_MOST_REGISTERS = 255  # of a thread: a program that computes large tiles takes them all
_FP32_ACCUMULATORS = 64  # a thread: fp32 products run on the ordinary cores, whose operands need registers as well


def matmul_tiles(matmuls: int, rows: float = 0.0) -> tuple[TileShape, ...]:
    """Tile shapes worth trying for so many matmuls in one loop, each of which has such a tile. `rows`: of an expert, where tiles
    have weights of experts."""
    if matmuls == 1:
        return (_OF_EXPERTS, *MATMUL_TILES[1:]) if rows >= _OF_EXPERTS.m else MATMUL_TILES
    shallow = [tile for tile in MATMUL_TILES if tile.k <= _DEEP_STEP]
    narrow = [replace(tile, n=1 << ((tile.n // matmuls).bit_length() - 1)) for tile in shallow]
    return tuple(dict.fromkeys([*_PAIRS, *(tile for tile in narrow if tile.n >= SMALLEST_DOT)]))


def attention_tiles(attend: Attend, rows: int, keys: int, dtype: str, gpu: Gpu) -> list[TileShape]:
    """Those worth trying for so many rows of queries and keys: what fits, and is at most twice as large as what there is."""
    tiles = [replace(tile, n=attend.width) for tile in _ATTENTION_TILES]
    fit = [tile for tile in tiles if not why_no_attention(tile, dtype, gpu)] or tiles[-1:]
    return [tile for tile in fit if tile.m <= max(16, 2 * rows - 1) and tile.k <= max(16, 2 * keys - 1)] or fit[-1:]


def why_no_attention(tile: TileShape, dtype: str, gpu: Gpu, *, by_pointer: bool = False) -> str:
    """Why a tile of attention does not fit `gpu`, or nothing: a tile of queries, and keys and values of each stage."""
    shared = attention_bytes(tile, dtype, by_pointer=by_pointer)
    if shared + _RESERVED_SHARED_BYTES > gpu.shared_bytes_per_sm:
        return f"tile {tile.m}x{tile.n}x{tile.k} in {tile.stages} stages needs {shared} bytes of shared memory"
    if tile.m * (tile.n + tile.k) > 256 * 32 * tile.warps * tile.warpgroups:
        return (
            f"the sums and scores of a {tile.m}x{tile.n}x{tile.k} tile do not fit the registers of {tile.warps} warps"
        )
    return ""


def attention_bytes(tile: TileShape, dtype: str, *, by_pointer: bool) -> int:
    """Shared memory of one program, at most (Triton 3.6, sm_90): loops over keys follow each other, and some stages of the next
    one are allocated beside those of the one before; where keys are loaded `by_pointer`, all of them are, and some more."""
    size = DTYPE_BYTES[dtype]
    queries, stage, weights = (count * size for count in (tile.m * tile.n, 2 * tile.k * tile.n, tile.m * tile.k))
    if tile.warpgroups > 1:  # results leave from there, too
        moved = 2 * PIECE_ROWS * tile.n * size  # keys and values that warps beside them push
        return 2 * queries + tile.stages * stage + moved + _ALIGNED_BARRIERS
    if by_pointer:
        return int((queries + weights + 2 * tile.stages * stage) * _POINTERS_MORE)
    return queries + weights + (tile.stages + 2) * stage


def not_low(tiles: list[TileShape], rows: float) -> list[TileShape]:
    """Of these, if there are any, tiles that load weights of an expert no more often than need be."""
    return [tile for tile in tiles if rows < _OF_EXPERTS.m or tile.m >= _OF_EXPERTS.m] or tiles


def suits(tile: TileShape, rows: int, cols: int) -> bool:
    """No dimension of the tile is more than twice what there is to compute, nor a sixteenth of it, if it has an SM alone."""
    large = tile.m <= max(16, 2 * rows - 1) and tile.n <= max(16, 2 * cols - 1)
    waits_only = rows <= _FEW_ROWS or tile.k <= _DEEP_STEP
    small = tile.m * 16 < rows and tile.m < 64 and rows > 512 and tile.per_sm == 1
    return large and waits_only and not small


@dataclass(frozen=True, slots=True)
class Held:
    """What a program holds in shared memory beside the left operands of its stages.

    `matmuls`: so many in one loop have a right operand each. `tile`: what a descriptor stores. `scratch`: the operands stay in
    flight while tiles change their layout for accesses by pointer, which takes at most a byte an element (seen with Triton
    3.6). `pieces`: warpgroups in turns send slices of their tiles from there.
    """

    matmuls: int = 1
    tile: bool = False
    scratch: bool = False
    pieces: bool = False


ONE_MATMUL = Held()


def shared_bytes(tile: TileShape, dtype: str, gpu: Gpu, held: Held = ONE_MATMUL) -> int:
    """Shared memory of one program: operand tiles of each stage in flight, and what else is `held`. On AMD the stage that is
    being loaded is held in registers."""
    size = DTYPE_BYTES[dtype]
    stages = tile.stages if gpu.vendor is Vendor.NVIDIA else max(1, tile.stages - 1)
    stored = tile.m * tile.n * size if held.tile else 0
    stored += tile.m * tile.n if held.scratch else 0
    if tile.warpgroups > 1:  # each has a place through which slices of its tile change their layout
        slices = tile.warpgroups * tile.m * TURN_SLICE_BYTES
        stored = (2 if held.pieces else 1) * slices + _BARRIER_BYTES * (2 * stages + tile.warpgroups)
    return stages * (tile.m + held.matmuls * tile.n) * tile.k * size + stored


def why_not(tile: TileShape, dtype: str, gpu: Gpu, held: Held = ONE_MATMUL) -> str:
    """Why a matmul tile does not fit `gpu`, or nothing."""
    shared, matmuls = shared_bytes(tile, dtype, gpu, held), held.matmuls
    reserved = _RESERVED_SHARED_BYTES if gpu.vendor is Vendor.NVIDIA else 0
    if tile.per_sm * (shared + reserved) > gpu.shared_bytes_per_sm:
        many = f" for each of {tile.per_sm} programs" if tile.per_sm > 1 else ""
        return f"tile {tile.m}x{tile.n}x{tile.k} in {tile.stages} stages needs {shared} bytes of shared memory{many}"
    if tile.warpgroups > 1 and (tile.warps, tile.per_sm) != (GROUP_WARPS, 1):
        return f"a warpgroup has {GROUP_WARPS} warps, and a program of several takes an SM for itself"
    if tile.per_sm > 1 and tile.per_sm * tile.warps * 32 * _MOST_REGISTERS > _REGISTERS:
        return f"{tile.per_sm} programs of {tile.warps} warps do not fit the registers of an SM"
    if matmuls * tile.m * tile.n > 128 * 32 * tile.warps:
        of = f"{matmuls} accumulators of {tile.m}x{tile.n} tiles do" if matmuls > 1 else ""
        return (
            f"{of or f'the accumulator of a {tile.m}x{tile.n} tile does'} not fit the registers of {tile.warps} warps"
        )
    return ""


def few_packets(tile: TileShape, dtype: str, protocol: Protocol, shares: int) -> str:
    """Why a tile whose packets go out in `shares` cannot be sent so, or nothing.

    Each thread sends the packets that it holds. The compiler gives a packet to several warps where packets are few: sums of a
    16x16 product lie two in a thread, so that half of the warps would do. `tilelink/compiled/replicas.py` looks at each kernel.
    """
    packets, least = tile.m * tile.n * DTYPE_BYTES[dtype] // shares // protocol.data_bytes, 2 * WARP * tile.warps
    if packets >= least or tile.warps == 1:
        return ""
    return (
        f"{packets} packets of a {tile.m}x{tile.n} tile are fewer than {least}, two for each thread of {tile.warps} warps: "
        "several warps would hold one packet, and a late one send it again when the peer has taken it"
    )


def worth_trying(tile: TileShape, dtype: str, gpu: Gpu, matmuls: int = 1) -> bool:
    """Whether the planner enumerates a matmul tile: it fits, and does not spill."""
    spills = dtype == "fp32" and matmuls * tile.m * tile.n > _FP32_ACCUMULATORS * 32 * tile.warps
    return not spills and not why_not(tile, dtype, gpu, Held(matmuls))
