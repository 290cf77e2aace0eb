"""What a tile of a matmul takes by itself: tensor cores, shared memory, and what memory has to bring. Constants are fitted to
2 and 4 x H200."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tilelink.ir.nodes import ComputeRole, Kernel
from tilelink.ir.routed import Follows, Routed
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import (
    Access,
    AttendBody,
    CombineBody,
    Load,
    MatmulBody,
    Operand,
    Step,
    Store,
    SumParts,
    UserBody,
)
from topologies.topology import Gpu

START_US = 1.2  # fill and drain of the software pipeline of one tile
PREFETCHED_START_US = 0.7  # the same where the next tile's loads are under way before this one is stored
# at which descriptors of all SMs fill rows with zeros, and how sharply a tile turns to waiting for that: 64 to 192 rows in tiles
# of 64 and 128, 7,168 by 4,096 and 11,264 by 8,192 columns, within 12 % (one H200); lower tiles show nothing of it (2 x H200)
_ZEROS_GB_PER_S, _ZEROS_SOFTNESS, _HIGH = 1_730.0, 2.5, 64
MEMORY_SHARE = 0.95  # of what a copy reaches, the loads of matmuls (16 to 256 rows, 2 x H200)
_STREAM_SHARE = 0.72  # of it, loops that load and store
_COMBINE_SHARE, _OWN_SHARE = 0.5, 0.52  # of it, sums over choices; of that, of rows of own experts
_TURNS_SHARE = 1.0  # of the best GEMM rate, 128 x 128 tiles of warpgroups in turns (one H200)
TURN_US = 0.2  # between the products of two warpgroups
# they take so much longer for each doubling of k beyond this, but for the first rounds: programs do not keep step, so that the L2
# has not what others have loaded (GEMM+RS and GEMM+AR of 1,024 to 8,192 rows, k of 5,504 to 26,624, within 2 %; 2 x H200)
_STRAY_SHARE, _STRAY_K, _ROUNDS_IN_STEP = 0.05, 7168, 4
_SHARED_GB_PER_S = 205  # through the shared memory of an SM: 128 bytes a clock, at clocks that many rows leave
SOFTNESS = 8.0  # how sharply a loop turns from bound by memory to bound by what SMs do
_EXPERT_SOFTNESS = 3.0  # the same of tiles with weights of their own
_REDUCTION_STEP_US = 0.27  # a step along k takes at least this long, however small the tile
_LOAD_US = 1.2  # from the load of a step's operands to its matmul, under load; one stage is multiplied meanwhile
# the same two of tiles with weights of their own: 140 times of loops, on 2 x H200 and 2 x H100
_EXPERT_STEP_US, _EXPERT_LOAD_US, _ROW_US = 0.17, 0.9, 0.006  # and for each row, which is found by a table
# of what an SM does for such a tile, where rows follow each other and come through a descriptor: 1,650 us of 1,780 for gate and
# up of 8 experts with 4,096 x 14,336 weights, 378 of 407 for 128 experts with 2,048 x 768, where memory takes part (one H100)
_IN_ORDER = 0.92
_ROWS_GB_PER_S = 80.0  # at which a tile of rows of an expert stores them (42 loops on 2 x H200, 7 on one H100)
_AGAIN_US = 5.0  # until loads are under way again, of a loop that waits for memory and begins another tile
_KEPT = 0.5  # of the L2: a right operand of so many bytes stays there until read again; of one twice as large, nothing
_ACCUMULATORS = 128  # fp32 sums a thread, with which the tensor cores are fed best
_ACCUMULATOR_EXPONENT, _INTENSITY_EXPONENT = 0.06, 0.16
_INTENSITY = 85.3  # m n / (m + n) of a 128 x 256 tile: flops an operand element
_TALL = 0.94  # tiles of more rows than columns


def stream_share(per_sm: int) -> float:
    """Of the memory rate, what a loop reaches that loads and stores: of several programs on an SM one loads while others add or
    store (2 x H100)."""
    return 1.0 - (1.0 - _STREAM_SHARE) / per_sm


def rows_share(per_sm: int, routed: Routed | None, *, combines: bool) -> float:
    """The same of a loop that finds rows by a routing. One that `combines` those of all choices loads one row behind the other.
    Rows of own experts are loaded when it is known which they are (one H100, 2 x H100)."""
    if routed is None or not combines:
        return stream_share(1 if routed is not None and routed.parts > 1 else per_sm)
    return (1.0 - (1.0 - _COMBINE_SHARE) / per_sm) * (_OWN_SHARE if routed.parts > 1 else 1.0)


def tile_share(m: int, n: int, warps: int) -> float:
    """Share of the best GEMM rate that a tile shape reaches: sums a thread holds, operand bytes a flop."""
    held = min(1.0, m * n / (32 * warps) / _ACCUMULATORS) ** _ACCUMULATOR_EXPONENT
    share = held * (m * n / (m + n) / _INTENSITY) ** _INTENSITY_EXPONENT
    return float(min(1.0, share) * (1.0 if n >= m else _TALL))


@dataclass(frozen=True, slots=True)
class Programs:
    """What programs run the tiles; `beside` others that communicate."""

    warps: int
    stages: int
    per_sm: int
    beside: bool


def programs_of(kernel: Kernel) -> Programs:
    return Programs(kernel.warps, kernel.stages, kernel.per_sm, bool(kernel.beside))


@dataclass(frozen=True, slots=True)
class Work:
    """What a tile multiplies: `bodies` loops over `reduction` elements in steps of `step`, each of so many `matmuls`."""

    m: int
    n: int
    dims: int  # of the tile
    matmuls: int
    bodies: int
    reduction: int
    step: int
    turns: bool  # two warpgroups, in turns
    others: bool  # each tile reads weights of its own
    in_order: bool = False  # and rows that follow each other, through a descriptor


class TileParts(NamedTuple):
    """Microseconds of a tile by what takes them; their sum is what a tile takes."""

    computed: float  # tensor cores, or the shared memory that feeds them
    memory: float  # what loads and stores of memory take beyond that
    remote: float  # what loads from peers take beyond that
    sends: float  # stores to peers that hold it up
    loads: float  # of other operands behind the matmul
    beside: float  # what programs that communicate slow it
    start: float  # fill and drain of the software pipeline, or the change between warpgroups
    again: float  # until loads are under way again
    counts: float  # its signals
    packets: float  # to peers and back


def compute_us(work: Work, on: Programs, dtype: str, gpu: Gpu) -> float:
    """What an SM does for a tile while all else is there."""
    most = max(flops_us(work, on, dtype, gpu), _shared_us(work, on, dtype), steps_us(work, on))
    return most * _IN_ORDER if work.in_order else most


def stray(work: Work, rounds: int) -> float:
    """Times what products of warpgroups in turns take where programs keep step, of so many rounds."""
    if not work.turns or work.reduction <= _STRAY_K:
        return 1.0
    return 1.0 + _STRAY_SHARE * math.log2(work.reduction / _STRAY_K) * max(0.0, 1.0 - _ROUNDS_IN_STEP / rounds)


def steps_us(work: Work, on: Programs) -> float:
    """What the steps along k take at least, since loads take their time and stages hold few."""
    step, load, under_way = _REDUCTION_STEP_US, _LOAD_US, max(1, on.stages - 1)
    if work.others:
        step, load, under_way = _EXPERT_STEP_US, _EXPERT_LOAD_US + _ROW_US * work.m, on.stages
    return work.bodies * work.reduction / work.step * max(step, load / under_way)


def flops_us(work: Work, on: Programs, dtype: str, gpu: Gpu) -> float:
    """What the tensor cores take for it."""
    # matmuls in one loop feed the tensor cores like one that is so many times as wide
    m, n = work.m, work.n * work.matmuls
    share = _TURNS_SHARE if work.turns else tile_share(m, n, on.warps)
    rate = gpu.tflops(dtype) * gpu.gemm_efficiency * share / gpu.num_sms / on.per_sm
    return work.bodies * 2 * m * n * work.reduction / rate / 1e6


def _shared_us(work: Work, on: Programs, dtype: str) -> float:
    """What passes the shared memory of an SM: operands are stored there once, and read for each 64 rows of the product,
    which is what an instruction of Hopper's tensor cores computes."""
    if work.dims != 2 or max(work.m, work.n) < 64:
        return 0.0
    m, n = work.m, work.n * work.matmuls
    rows, cols = (n, m) if m < 64 else (m, n)
    beside = max(1.0, on.warps / 4 / (rows / 64))  # groups of four warps that share rows read them each
    passed = (rows + cols) + rows / 64 * (64 * beside + cols)
    return work.bodies * passed * work.reduction * DTYPE_BYTES[dtype] / (_SHARED_GB_PER_S / on.per_sm) / 1e3


def least_tile_us(work: Work, on: Programs, dtype: str, gpu: Gpu, memory: float, *, prefetch: bool) -> float:
    """What a tile of a matmul takes at least, of which a round loads `memory` us from memory or more."""
    computed = compute_us(work, on, dtype, gpu)
    if work.turns:
        return max(computed, memory) + TURN_US
    start = PREFETCHED_START_US if prefetch else START_US
    return softly(computed + start, memory) if work.others else softly(computed, memory) + start


def softly(one: float, other: float, softness: float = SOFTNESS) -> float:
    """The longer of two times, neither of which hides the other completely."""
    return float((one**softness + other**softness) ** (1 / softness))


def of_experts_us(work: Work, on: Programs, dtype: str, gpu: Gpu, memory: float, rows: float, rounds: float) -> float:
    """What a tile takes that has `rows` rows and weights of its own, of which a round loads `memory` us on average. Nothing of it
    is under way before the last one is stored: memory waits for programs, and programs wait for memory. The last of `rounds` may
    have less tiles than programs, and memory waits for these."""
    whole, rest = int(rounds), rounds % 1
    stored = rows * work.n * DTYPE_BYTES[dtype] / _ROWS_GB_PER_S / 1e3
    busy = compute_us(work, on, dtype, gpu) + stored + START_US
    load = memory * math.ceil(rounds) / rounds
    last = softly(busy, rest * load, _EXPERT_SOFTNESS) if rest else 0.0
    return (whole * softly(busy, load, _EXPERT_SOFTNESS) + last) / math.ceil(rounds)


def read_again(size: int, gpu: Gpu) -> float:
    """Bytes of a right operand that are read from memory when it is read once more. It is read from the beginning each
    time, so that of a large one what comes evicts what is wanted next."""
    return min(float(size), max(0.0, 2.0 * (size - _KEPT * gpu.l2_bytes)))


def again_us(computed: float, memory: float, rounds: int) -> float:
    """Until loads of a tile are under way that is computed for `computed` us behind another one, which loads for `memory` us."""
    return 0.0 if memory <= computed else _AGAIN_US * (rounds - 1) / rounds


def matmul_memory_us(num_bytes: float, gpu: Gpu) -> float:
    """To load so much from memory, for a matmul."""
    return num_bytes / (gpu.memory_gb_per_s * MEMORY_SHARE) / 1e3


def times_remote(step: Step, ranks: int) -> float:
    """How many times what a tile has a step with remote operands loads from peers."""
    match step:
        case SumParts():
            return ranks - 1
        case CombineBody(routed=routed):
            return routed.choices * (ranks - 1) / ranks
    return 1


def loops_over_k(steps: Iterable[Step]) -> int:
    """Those of a tile, one after the other."""
    return sum(
        isinstance(one, UserBody | AttendBody) or (isinstance(one, MatmulBody) and not one.beside) for one in steps
    )


def finds_in_order(steps: Iterable[Step]) -> bool:
    """Whether rows by experts follow each other, and come through a descriptor."""
    left = (one.left for one in steps if isinstance(one, MatmulBody))
    return any(Follows.PLACE in one.along and one.access is Access.DESCRIPTOR for one in left)


def with_zeros(us: float, role: ComputeRole, size: int) -> float:
    """What a tile of so many us takes, where descriptors fill rows of left operands that do not exist. `size`: bytes of an
    element."""
    missing = 0
    for step in role.body:
        if not isinstance(step, MatmulBody) or step.beside or step.left.access is not Access.DESCRIPTOR:
            continue
        rows, k = (role.axis(name) for name in step.left.index)
        if rows.routed is None and not rows.inwards and rows.tile >= _HIGH:
            others = role.num_tiles // rows.tiles  # tiles with these rows
            missing += (rows.tiles * rows.tile - rows.extent) * k.extent * k.segments * size * others
    zeros = missing / _ZEROS_GB_PER_S / 1e3 / (role.num_tiles / role.programs)
    return softly(us, zeros, _ZEROS_SOFTNESS)


def operands_of(step: Step) -> Iterator[Operand]:
    """What a step of a tile loads or stores."""
    match step:
        case MatmulBody(left=left, right=right):
            yield from (left, right)
        case UserBody(operands=operands):
            yield from (operand for _, operand in operands)
        case SumParts(operand=operand) | Store(operand=operand) | Load(operand=operand):
            yield operand
        case CombineBody(rows=rows, weights=weights, ids=ids):
            yield from (rows, weights, ids)
        case AttendBody(queries=queries, keys=keys, values=values):
            yield from (queries, keys, values)
        case _:
            return
