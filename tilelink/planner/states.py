"""States that ranks merge: how many programs share the tokens of a sequence, tiles, and the time that follows.

A split of the tokens of each tile of heads is one position of the programs. If all positions are on their way at once, a call
takes what the bytes of keys and values take, a start, and one exchange of packets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from tilelink.ir.calls import StateMerge
from tilelink.ir.collective import Collective
from tilelink.ir.enums import PACKET_BYTES, WARP, Protocol
from tilelink.ir.graph import Merging
from tilelink.ir.movers import OwnKernel
from tilelink.ir.nodes import TileShape
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.spec import DTYPE_BYTES, BoundNode, DecodeAttention, Merged
from tilelink.planner.folds import folding_us, merging_us, tiles_of_fold, why_no_fold_of_user
from tilelink.planner.links import PACKET_SHARE, num_links
from tilelink.planner.rules import peer_atomics
from topologies.topology import Gpu, Topology

SMALLEST_ROWS, _MOST_ROWS = 16, 64  # of a tile of heads, as `tl.dot` takes them
_STATE_BYTES = 4  # of an element, in fp32
_RESERVED = 6 << 10  # bytes of shared memory beside keys and values: scores, and what sums over warps take
_GIVEN_ROWS = 16  # heads of a tile of states that are given
# tokens, warps, stages, programs an SM
_FOLDS = (
    *((64, 4, 4, 1), (64, 4, 3, 2), (64, 4, 2, 3), (128, 4, 3, 1), (128, 4, 2, 2), (32, 4, 4, 3), (32, 4, 3, 4)),
    *((128, 4, 4, 1), (128, 4, 3, 2), (64, 4, 4, 2), (64, 4, 4, 3), (32, 4, 4, 4)),  # of heads of 64
    *((32, 4, 2, 2), (32, 4, 2, 1), (16, 4, 2, 1)),  # of little shared memory
)
_MEMORY_SHARE = 1.03  # of a device copy's rate, loads alone reach (2 x H200, 8 MB to 1 GB of keys and values)
_SM_SHARE = 1.6  # of its part of the memory's rate, an SM gets where others rest
_LOADS_US = 1.2  # until the first keys are there, and from the last ones to a state
_MERGE_US = 1.0  # until states have been polled and merged
_ROUND_US = 0.7  # another position of a program
# a tile of keys takes at least this long; loads of one that is not far ahead (drawn rows, 2 x H100: .45 to .5, 1.0 to 1.25)
_STEP_US, _LATENCY_US = 0.45, 1.1
_LIKELY = 0.5  # of all tokens, where lengths are given
_LEAST_MERGED = 256  # elements of a result that a program merges at least


def merges(
    node: BoundNode, topology: Topology, splits: int | None = None, tile: TileShape | None = None
) -> tuple[Collective, ...]:
    """Ways to merge the states of a node, by the model the best ones; with so many `splits` and this `tile`, if they are given.
    If none of these is legal there is one that is not, of which whoever builds it knows the reason."""
    assert isinstance(node.operation, Merged)
    return _merges(node.operation, node.output.dtype, topology, splits or 0, tile)


@lru_cache(64)
def _merges(how: Merged, dtype: str, topology: Topology, splits: int, tile: TileShape | None) -> tuple[Collective, ...]:
    found, merging = list[Collective](), Merging("", how, (), "")
    tried = [(one, splits or many) for one, many in _tried(how, dtype, topology.gpu, topology.num_ranks, tile)]
    for protocol in (Protocol.LL,) if isinstance(how.how, UserFold) else (Protocol.LAMPORT, Protocol.LL):
        every = [Collective(OwnKernel(), protocol, splits=many, tile=one) for one, many in dict.fromkeys(tried)]
        ways = [one for one in every if not why_no_merge(merging, one, dtype, topology)]
        timed = sorted(ways, key=lambda one: likely_us(state_merge(merging, one, topology), dtype, topology))
        found += timed[:1] or (every[-1:] if splits or tile or not peer_atomics(topology) else [])
    return tuple(found)


def _tried(how: Merged, dtype: str, gpu: Gpu, ranks: int, given: TileShape | None) -> Iterator[tuple[TileShape, int]]:
    """Tiles with numbers of splits that are worth trying, or those of a tile that is `given`."""
    sequences, heads, width = how.shape
    if isinstance(how.how, UserFold):
        yield from tiles_of_fold(how, gpu, ranks, given)
        return
    if not how.keys:
        yield given or TileShape(_GIVEN_ROWS, width, 0, 4, 1, 2), 1
        return
    rows = heads_of_tile(heads // how.keys)
    folds = [TileShape(rows, block, width, *rest) for block, *rest in _FOLDS]
    for tile in [given] if given else [one for one in folds if not why_no_fold(one, dtype, gpu)]:
        slots, blocks = gpu.num_sms * tile.per_sm, -(-how.tokens // tile.n)
        tiles = sequences * how.keys * -(-heads // how.keys // tile.m)
        whole = max(1, slots // tiles)  # all are on their way at once
        for splits in dict.fromkeys((whole, max(1, whole // 2), whole + 1, max(1, 2 * slots // tiles), 1)):
            if splits <= blocks:
                yield tile, splits


def heads_of_tile(shared: int) -> int:
    """Rows of a tile for so many heads that share keys, which are read once for all of them."""
    return min(_MOST_ROWS, max(SMALLEST_ROWS, 1 << (shared - 1).bit_length()))


def why_no_fold(tile: TileShape, dtype: str, gpu: Gpu) -> str:
    """Why a program cannot fold tiles of this shape, or nothing."""
    shared = 2 * tile.stages * tile.n * tile.k * DTYPE_BYTES[dtype] + _RESERVED
    if tile.per_sm * shared > gpu.shared_bytes_per_sm:
        many = f" for each of {tile.per_sm} programs" if tile.per_sm > 1 else ""
        return (
            f"keys and values of {tile.stages} tiles take {shared:,} bytes of shared memory{many}, which an SM has not"
        )
    return ""


def _whole(extent: int) -> int:
    """Of registers for so many elements."""
    return 1 << (extent - 1).bit_length()


def why_no_merge(merging: Merging, by: Collective, dtype: str, topology: Topology) -> str:
    """Why a merge cannot be carried out so, or nothing."""
    assert by.tile is not None, "a merge has a tile"
    how = merging.operation
    if not how.alone and not peer_atomics(topology):
        return f"{merging.name}: {by.why_not_without_atomics}; the links of {topology.name} carry none"
    if isinstance(how.how, UserFold):
        return why_no_fold_of_user(merging.name, how, by, topology.gpu, topology.num_ranks)
    if not how.keys and by.splits > 1:
        return f"{merging.name} merges states that are given, which have one split"
    blocks = -(-how.tokens // by.tile.n)
    if how.keys and by.splits > blocks:
        return f"{how.tokens:,} tokens are {blocks} tiles of {by.tile.n}, and {by.splits} programs cannot share them"
    if how.keys and (fact := why_no_fold(by.tile, dtype, topology.gpu)):
        return fact
    launch = state_merge(merging, by, topology)
    rows, cols = launch.merged_tile(topology.num_ranks, dtype)
    states = 1 << (topology.num_ranks * launch.splits - 1).bit_length()
    packets = min(states * rows * cols, _whole(launch.rows) * launch.shape[2]) // launch.in_packet(dtype)
    if by.protocol is Protocol.LAMPORT and packets < launch.warps * WARP:
        threads = launch.warps * WARP
        return f"tiles of {merging.name} have {packets} packets for {threads} threads, of which each empties its own"
    return ""


def state_merge(merging: Merging, by: Collective, topology: Topology, free_sms: int = 0) -> StateMerge:
    """The launch of a merge, on all SMs or on those that nothing else holds while it waits."""
    tile, how = by.tile, merging.operation
    assert tile is not None, "a merge has a tile"
    rows, block, warps = tile.m, tile.n, tile.warps
    if not how.keys:
        rows, block = _given_rows(how, tile.m, topology.num_ranks), 0
        warps = max(1, min(warps, rows * how.shape[2] // (4 * WARP)))  # a thread has some elements
    by_programs = by.protocol, by.splits, rows, block
    found = StateMerge(merging.name, how, merging.reads, *by_programs, 1, warps, tile.stages, tile.per_sm)
    wanted = max(found.tiles * found.splits, math.prod(found.own(topology.num_ranks)) // _LEAST_MERGED)
    sms = free_sms or topology.gpu.num_sms
    programs = max(1, min(sms * tile.per_sm, wanted))
    return replace(found, programs=programs, per_sm=1 if programs <= sms else tile.per_sm)  # alone, each has an SM


def _given_rows(how: Merged, most: int, ranks: int) -> int:
    """Heads of a tile of given states: a power of two that divides those of a rank."""
    heads = how.shape[1] // ranks if how.dim == 1 else how.shape[1]
    return math.gcd(heads, most)


def states_us(launch: StateMerge, dtype: str, topology: Topology) -> float:
    """What a merge takes, with its launch, where all sequences have all tokens: keys and values from memory, and packets."""
    gpu, how, ranks = topology.gpu, launch.how, topology.num_ranks
    us = gpu.kernel_launch_us + _LOADS_US + _own_us(launch, dtype, gpu)
    one_by_one = merging_us(launch, ranks) if isinstance(how.how, UserFold) else 0.0
    if how.alone:  # programs of a rank exchange states, if there are several
        return us + (one_by_one + _MERGE_US) * (launch.splits > 1)
    sent = _packets(launch, dtype) * PACKET_BYTES * (ranks - 1) / (1 if how.dim is None else ranks)
    link = PACKET_SHARE * topology.slowest_link_gb_per_s * num_links(topology) * 1e3
    there = max(level.signal_us for level in topology.levels)
    return us + one_by_one + sent / link + there + _MERGE_US


def _own_us(launch: StateMerge, dtype: str, gpu: Gpu) -> float:
    """To make the states of a rank, or to load those that are given."""
    if isinstance(launch.how.how, UserFold):
        return folding_us(launch, gpu, _rate(gpu))
    return (
        _rounds_us(launch, dtype, gpu) if launch.how.keys else math.prod(launch.shape) * DTYPE_BYTES[dtype] / _rate(gpu)
    )


def _packets(launch: StateMerge, dtype: str) -> float:
    """Of the states of a rank: of a mean and its logarithm, or of each part."""
    sequences, heads, width = launch.shape
    if isinstance(launch.how.how, UserFold):
        return launch.splits * heads * len(launch.how.how.parts)
    bytes_of = _STATE_BYTES if launch.how.keys else DTYPE_BYTES[dtype]
    return launch.splits * sequences * heads * (width * bytes_of / launch.protocol.data_bytes + 1)


def likely_us(launch: StateMerge, dtype: str, topology: Topology) -> float:
    """The mean of that, and of what it takes where sequences have any number of tokens: the longest ones end last, alone."""
    full, gpu = states_us(launch, dtype, topology), topology.gpu
    if not isinstance(launch.how.how, DecodeAttention) or not launch.how.how.lengths or launch.shape[0] == 1:
        return full
    sequences, _, width = launch.shape
    read = 2 * sequences * launch.how.keys * launch.how.tokens * width * DTYPE_BYTES[dtype]
    on_an_sm, one_round = -(-launch.programs // gpu.num_sms), launch.tiles * launch.splits <= launch.programs
    longest = _steps(launch) * _step_us(launch, dtype, on_an_sm, gpu) if one_round else 0.0
    return full + (max(_LIKELY * read / _rate(gpu), longest) - _rounds_us(launch, dtype, gpu)) / 2


def _rate(gpu: Gpu) -> float:
    """Bytes a microsecond that loads reach."""
    return _MEMORY_SHARE * gpu.memory_gb_per_s * 1e3


def _steps(launch: StateMerge) -> int:
    """Tiles of keys of a split."""
    blocks = -(-launch.how.tokens // launch.block)
    return -(-blocks // launch.splits)


def _step_us(launch: StateMerge, dtype: str, active: int, gpu: Gpu) -> float:
    """A tile of keys takes its share of the rate, what its products take, or what loads take that are as many stages ahead."""
    tile, sms = 2 * launch.block * launch.shape[2] * DTYPE_BYTES[dtype], min(gpu.num_sms, active)
    least, rate = max(_STEP_US, _LATENCY_US / max(1, launch.stages - 1)), _rate(gpu)
    return max(least, tile * active / min(rate, sms * _SM_SHARE * rate / gpu.num_sms))


def _rounds_us(launch: StateMerge, dtype: str, gpu: Gpu) -> float:
    """Round by round of the programs, of sequences with all tokens."""
    rounds, rest = divmod(launch.tiles * launch.splits, launch.programs)
    each = ((launch.programs, rounds), (rest, 1 if rest else 0))
    return sum(
        times * (_ROUND_US + _steps(launch) * _step_us(launch, dtype, active, gpu)) for active, times in each if times
    )
