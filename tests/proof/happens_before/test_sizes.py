"""At real sizes the proof costs what a plan may wait for. Limits are three times what a shared core needs."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.machine_speed import limit
from tests.schedule.operators import (
    DONE,
    IN,
    OUT,
    SYM,
    finish,
    finished,
    m,
    n,
    peer_after,
    ranks,
    segment,
    tile,
    two_level_rs,
)
from tilelink.proof.happens_before.check import checked
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Buffer, Region, Signal
from tilelink.schedule.roles import CopyEngine, Launch, Phase, Role, Schedule, Sms
from tilelink.schedule.steps import Compute, For, If, Load, Move, Notify, Store, Wait

k, chunk, peer = Index("k"), Index("chunk"), Index("peer")
DOT = Compute(("acc",), "dot", ("a", "b", "acc"))
BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64


def block(buffer: str, *start: Number, at: Number = rank) -> Region:
    *lead, row, column = start
    return Region(buffer, (*lead, row * BLOCK_M, column * BLOCK_N), (*(1 for _ in lead), BLOCK_M, BLOCK_N), at)


def product(left: Region, inner: int) -> For:
    right = Region("w", (k * BLOCK_K, n * BLOCK_N), (BLOCK_K, BLOCK_N))
    return For("k", inner // BLOCK_K, (Load("a", left), Load("b", right), DOT))


def gemm_rs(size: int, rows: int, columns: int, inner: int, programs: int = 132) -> Schedule:
    """GEMM + ReduceScatter, `rows` x `columns` of all ranks in tiles of 128 x 256."""
    each, across = rows // size // BLOCK_M, columns // BLOCK_N
    order = (
        ("segment", (rank + 1 + tile // (each * across)) % size),
        ("m", tile // across % each),
        ("n", tile % across),
    )
    sums = (
        Wait("arrived", (peer_after(size),), call, ("parts",)),
        Load("part", block("parts", peer_after(size), m, n)),
    )
    own = (For("step", size - 1, sums), Store("acc", block("out", m, n)))
    sent = (
        Store("acc", block("parts", rank, m, n, at=segment)),
        Notify("arrived", (rank,), segment, call, each * across),
    )
    left = Region("x", ((segment * each + m) * BLOCK_M, k * BLOCK_K), (BLOCK_M, BLOCK_K))
    body = (product(left, inner), If(segment, rank, own, sent))
    role = Role("gemm", Sms(programs), (finished(size), Phase(size * each * across, body, order), finish(size)))
    buffers = (
        Buffer("x", IN, (rows, inner), "float16"),
        Buffer("w", IN, (inner, columns), "float16"),
        Buffer("parts", SYM, (size, rows // size, columns), "float16"),
        Buffer("out", OUT, (rows // size, columns), "float16"),
    )
    signals = (DONE, Signal("arrived", (size,)))
    return Schedule("gemm_rs", ranks(size), buffers, signals, (Launch("main", (role,)),))


def ag_gemm(size: int, rows: int, columns: int, inner: int, chunks: int = 4, programs: int = 132) -> Schedule:
    """AllGather + GEMM: a copy engine pushes chunks of the rows of a rank."""
    each, across = rows // size // BLOCK_M, columns // BLOCK_N
    long = rows // size // chunks
    there = Region("x_full", (rank * (rows // size) + chunk * long, 0), (long, inner), peer)
    move = Move((Region("x", (chunk * long, 0), (long, inner)),), (there,), Notify("came", (rank, chunk), peer, call))
    let = (("peer", (rank - 1 - tile // chunks) % size), ("chunk", tile % chunks))
    push = Role("push", CopyEngine(), (finished(size), Phase((size - 1) * chunks, (move,), let)))
    order = (("segment", (rank + tile // (each * across)) % size), ("m", tile // across % each), ("n", tile % across))
    wait = Wait("came", (segment, m * BLOCK_M // long), call, ("x_full",))
    near = Region("x", (m * BLOCK_M, k * BLOCK_K), (BLOCK_M, BLOCK_K))
    far = Region("x_full", ((segment * each + m) * BLOCK_M, k * BLOCK_K), (BLOCK_M, BLOCK_K))
    own, others = (product(near, inner),), (wait, product(far, inner))
    body = (If(segment, rank, own, others), Store("acc", block("out", segment * each + m, n)))
    gemm = Role("gemm", Sms(programs), (Phase(size * each * across, body, order),))
    buffers = (
        Buffer("x", IN, (rows // size, inner), "float16"),
        Buffer("w", IN, (inner, columns), "float16"),
        Buffer("x_full", SYM, (rows, inner), "float16"),
        Buffer("out", OUT, (rows, columns), "float16"),
    )
    launches = (
        Launch("copies", (push,)),
        Launch("main", (gemm,)),
        Launch("main", (Role("finish", Sms(1), (finish(size),)),), ("copies",)),
    )
    return Schedule("ag_gemm", ranks(size), buffers, (DONE, Signal("came", (size, chunks))), launches)


def with_programs(schedule: Schedule, name: str, programs: int) -> Schedule:
    def role(one: Role) -> Role:
        return replace(one, engine=Sms(programs)) if one.name == name else one

    launches = tuple(replace(one, roles=tuple(map(role, one.roles))) for one in schedule.launches)
    return replace(schedule, launches=launches)


def seconds(schedule: Schedule, period: int) -> float:
    best = float("inf")
    for _ in range(2):
        begin = time.process_time()
        outcome = checked(schedule)
        best = min(best, time.process_time() - begin)
        assert outcome.refutation is None and (outcome.rank_period, outcome.calls) == (period, 3)
    return best


def test_a_real_gemm_rs_is_proved_at_once() -> None:
    assert seconds(gemm_rs(4, 8192, 8192, 8192), 1) < limit(0.3)


@pytest.mark.slow
def test_eight_ranks() -> None:
    assert seconds(gemm_rs(8, 16384, 8192, 8192), 1) < limit(0.6)
    assert seconds(ag_gemm(8, 16384, 8192, 8192), 1) < limit(0.6)


@pytest.mark.slow
def test_a_thousand_ranks_on_two_levels() -> None:
    assert seconds(with_programs(two_level_rs(128, 8).schedule, "scatter", 16), 8) < 15
