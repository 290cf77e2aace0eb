"""Folds of the user's: tiles and splits that are worth trying, and why others are not legal."""

from __future__ import annotations

from collections.abc import Iterator

from tilelink.ir.calls import StateMerge
from tilelink.ir.collective import Collective
from tilelink.ir.enums import WARP, Protocol
from tilelink.ir.nodes import TileShape
from tilelink.ir.spec import Merged
from topologies.topology import Gpu

_ELEMENTS = (2048, 4096, 8192)  # of a block of rows, for four warps
_WARPS = 4
_MOST_ROWS, _LEAST_BLOCK = 64, 64
_RUNS = ((2, 1), (3, 1), (2, 2), (3, 2))  # stages, programs an SM
_MOST_STATES = 128  # of a row, that a program merges one after the other
_MOST_THREAD = 256  # elements of a block that a thread holds
_MERGED_US = 0.55  # a state more


def tiles_of_fold(how: Merged, gpu: Gpu, ranks: int, given: TileShape | None) -> Iterator[tuple[TileShape, int]]:
    """Tiles with numbers of splits that are worth trying, or those of a tile that is `given`."""
    rows = how.shape[1]
    for tile in [given] if given else [one for one in _tiles(how) if not _too_large(how, one, gpu)]:
        slots, blocks, tiles = gpu.num_sms * tile.per_sm, -(-how.tokens // tile.n), -(-rows // tile.m)
        whole = max(1, slots // tiles)  # all are on their way at once
        most = 1 if how.alone else min(blocks, _MOST_STATES // ranks)
        for splits in dict.fromkeys((1, max(1, whole // 4), max(1, whole // 2), whole)):
            if splits <= most:
                yield tile, splits


def _tiles(how: Merged) -> Iterator[TileShape]:
    most_rows, most_block = (1 << (extent - 1).bit_length() for extent in (how.shape[1], how.tokens))
    for elements in _ELEMENTS:
        rows = 1
        while rows <= min(most_rows, _MOST_ROWS):
            block = min(elements // rows, most_block)
            if block >= min(_LEAST_BLOCK, most_block):
                for stages, per_sm in _RUNS:
                    yield TileShape(rows, block, 1, _WARPS, stages, per_sm)
            rows *= 2


def _too_large(how: Merged, tile: TileShape, gpu: Gpu) -> str:
    shared = tile.stages * tile.m * tile.n * how.element_bytes * tile.per_sm
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
    if how.alone and by.splits > 1:
        return f"{name} has one state on each rank, which travels nowhere: it has one split"
    if by.splits > blocks:
        return f"{how.tokens:,} elements are {blocks} blocks of {tile.n}, and {by.splits} programs cannot share them"
    if by.splits * ranks > _MOST_STATES and by.splits > 1:
        return f"{by.splits} states on {ranks} ranks are more than {_MOST_STATES}, which a program merges one by one"
    return _too_large(how, tile, gpu)


def merging_us(launch: StateMerge, ranks: int) -> float:
    """To merge states one after the other."""
    rows, _ = launch.merged_tile(ranks, "fp32")
    positions = -(-launch.own(ranks)[1] // rows)
    return _MERGED_US * ranks * launch.splits * -(-positions // launch.programs)
