"""Folds of the user's: tiles and splits that are worth trying, and why others are not legal."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import StateMerge
from tilelink.ir.collective import Collective
from tilelink.ir.enums import WARP, Protocol
from tilelink.ir.nodes import TileShape
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.spec import Merged
from topologies.topology import Gpu

_ELEMENTS = (1024, 2048, 4096, 8192, 16384)  # of a block of rows
_MOST_ROWS, _LEAST_BLOCK = 64, 64
# warps, stages, programs an SM, elements of a block at most
_RUNS = (
    (4, 1, 4, 4096),
    (4, 3, 4, 4096),
    (4, 3, 2, 8192),
    (4, 3, 1, 8192),
    (8, 1, 1, 8192),
    (8, 3, 2, 8192),
    (16, 3, 1, 16384),
)
_MOST_STATES = 128  # of a row, that a program merges one after the other
_MOST_TURNS = 16  # tiles of a program
_MOST_SENT = (
    12_000  # parts of states, from rank to rank: a proof goes through all of them. A program an SM is never too many
)
_MOST_THREAD = 256  # elements of a block that a thread holds
# fitted to tiles of three folds, 1 to 8,192 rows (2 x H200)
_MERGED_US = 0.2  # a state more
_STEP_US, _AHEAD_US = 0.9, 0.5  # that a block takes, however small it is, and where it is loaded ahead
_TORN_US, _PIECE = 1.0, 8  # where rows are no multiple of 8 elements of bf16
_WARP_US = 0.45e-3  # an element takes, of those that a warp has
_SM_ELEMENTS = 1.7e4  # in a microsecond, that an SM takes
_POSITION_US = 0.15
_SM_SHARE = 1.6  # of its part of the memory's rate, an SM gets where others rest
_SECTOR = 32  # bytes that memory moves at least


def tiles_of_fold(how: Merged, gpu: Gpu, ranks: int, given: TileShape | None) -> Iterator[tuple[TileShape, int]]:
    """Tiles with numbers of splits that are worth trying, or those of a tile that is `given`."""
    rows, states = how.shape[1], 1 if how.alone else ranks
    assert isinstance(how.how, UserFold), "of the user's"
    for tile in [given] if given else [one for one in _tiles(how) if not _too_large(how, one, gpu)]:
        slots, blocks, tiles = gpu.num_sms * tile.per_sm, -(-how.tokens // tile.n), -(-rows // tile.m)
        sent = _MOST_SENT // (len(how.how.parts) * ranks * ranks)
        most = _MOST_TURNS * slots if how.alone else max(sent, gpu.num_sms)
        if tiles > most and tile.m < _MOST_ROWS and not given:
            continue  # tiles of more rows take little longer, and are proved in less time
        splits = max(1, min(blocks, _MOST_STATES // states, slots // tiles, most // tiles))
        yield from ((tile, 1 << power) for power in range(splits.bit_length()))


def _tiles(how: Merged) -> Iterator[TileShape]:
    most_rows, most_block = (1 << (extent - 1).bit_length() for extent in (how.shape[1], how.tokens))
    for elements in _ELEMENTS:
        rows = 1
        while rows <= min(most_rows, _MOST_ROWS):
            block = min(elements // rows, most_block)
            if block >= min(_LEAST_BLOCK, most_block):
                for warps, stages, per_sm, most in _RUNS:
                    least = min(_ELEMENTS[0], min(most_rows, _MOST_ROWS) * most_block) * warps // 4
                    if least <= rows * block <= most:
                        yield TileShape(rows, block, 1, warps, stages, per_sm)
            rows *= 2


def _too_large(how: Merged, tile: TileShape, gpu: Gpu) -> str:
    ahead = tile.stages if tile.stages > 1 else 0  # in shared memory
    shared = ahead * tile.m * tile.n * how.element_bytes * tile.per_sm
    if shared > gpu.shared_bytes_per_sm:
        return f"blocks of {tile.stages} stages take {shared:,} bytes of shared memory, which an SM has not"
    if tile.m * tile.n > _MOST_THREAD * tile.warps * WARP:
        return f"blocks of {tile.m} x {tile.n} elements are more than registers of {tile.warps} warps hold"
    return ""


def why_no_fold_of_user(name: str, how: Merged, by: Collective, gpu: Gpu, ranks: int) -> str:
    """Why a fold cannot be carried out so, or nothing."""
    tile = by.tile
    assert tile is not None, "a merge has a tile"
    blocks = -(-how.tokens // tile.n)
    if tile.k != 1:
        return f"{name} is a fold, whose tile is rows x elements x 1, not {tile.m}x{tile.n}x{tile.k}"
    if by.protocol is not Protocol.LL:
        return f"states of {name} are numbers of fp32, which travel in packets of LL"
    if by.splits > blocks:
        return f"{how.tokens:,} elements are {blocks} blocks of {tile.n}, and {by.splits} programs cannot share them"
    states = by.splits * (1 if how.alone else ranks)
    if states > _MOST_STATES and by.splits > 1:
        return f"{states} states of a row are more than {_MOST_STATES}, which a program merges one by one"
    return _too_large(how, tile, gpu)


def folding_us(launch: StateMerge, gpu: Gpu, rate: float) -> float:
    """To make own states, of memory that loads `rate` bytes a microsecond: round by round of the programs."""
    how, elements = launch.how, launch.rows * launch.block
    blocks = -(-how.tokens // launch.block)
    steps = -(-blocks // launch.splits)
    pieces = how.apart or how.tokens % _PIECE == 0  # which hardware loads ahead: else 4 bytes at a time, which costs
    least = _STEP_US if launch.stages == 1 else _AHEAD_US if pieces else _TORN_US
    run = launch.rows * how.element_bytes if how.apart else _SECTOR
    moved = elements * how.element_bytes * max(1.0, _SECTOR / run)
    us, left = 0.0, launch.tiles * launch.splits
    while left > 0:
        active = min(left, launch.programs)
        on_an_sm, sms = -(-active // gpu.num_sms), min(active, gpu.num_sms)
        of_memory = moved * active / min(rate, sms * _SM_SHARE * rate / gpu.num_sms)
        of_sm = on_an_sm * elements / _SM_ELEMENTS
        step = least + max(elements / launch.warps * _WARP_US, of_memory, of_sm)
        rounds = left // launch.programs or 1
        us += rounds * (_POSITION_US + steps * step)
        left -= rounds * active
    return us


def merging_us(launch: StateMerge, ranks: int) -> float:
    """To merge states one after the other."""
    ranks = 1 if launch.how.alone else ranks
    rows, _ = launch.merged_tile(ranks, "fp32")
    positions = -(-launch.own(ranks)[1] // rows)
    return _MERGED_US * ranks * launch.splits * -(-positions // launch.programs)
