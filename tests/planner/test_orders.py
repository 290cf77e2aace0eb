"""The hand-written orders of the field come out of the descriptor: nothing but the kind of compute is pinned.

Formulas with r the rank, n ranks, BM rows of a tile, `rows` row tiles of a rank, c row tiles of a chunk.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest

import topologies
from tests.planner.operators import ag_gemm, gemm_rs
from tilelink.ir.movers import Transfer
from tilelink.planner.layout import rank_order
from tilelink.planner.links import chunk_us

if TYPE_CHECKING:
    from tilelink import Overlap, Schedule
    from tilelink.ir.nodes import ComputeRole

NUM_RANKS = 8
SIZES: dict[str, dict[str, Any]] = {
    "ag_gemm": {"M": 8192, "K": 4096, "N": 14336},
    "gemm_rs": {"M": 8192, "K": 14336, "N": 4096},
}
SWITCHES = ("h100-nvswitch", "h200-nvswitch", "a100-nvswitch", "b200-nvswitch")
MESHES = ("mi300x-full-mesh", "mi308x-full-mesh", "mi355x-full-mesh")
CHUNKS = (pytest.param(2, marks=pytest.mark.slow), 4)  # with 4 a part has chunks that are neither first nor last


@cache
def _planned(operator: Overlap, topology: str, chunks: int) -> Schedule:
    """As planned; of scatters, the order that the links suggest, with the addition in the tiles."""
    pins: dict[str, object] = {"compute": "triton", "chunks": chunks}
    if operator is gemm_rs:
        pins |= {"sum": "epilogue", "nest": "rank by rank" if topology in SWITCHES else "chunk by chunk"}
    return operator.plan(topology, NUM_RANKS, pin=pins, **SIZES[operator.name])


def _role(schedule: Schedule) -> ComputeRole:
    """The role that computes the matmul, whose rows are cut in one segment a rank."""
    roles = [kernel.compute for kernel in schedule.kernels() if kernel.compute is not None]
    (role,) = (role for role in roles if role.axis("m").segments == NUM_RANKS)
    return role


def _visited(role: ComputeRole, rank: int) -> list[tuple[int, int]]:
    """(rank of the rows, row tile of it) by first visit."""
    major, minor = role.axis(role.order.major), role.axis(role.order.minor)
    assert (major.name, minor.segments) == ("m", 1)
    sequence = role.order.sequence(major.tiles, minor.tiles, major.segments)
    return list(dict.fromkeys((role.order.ranks.at(rank, place), tile) for place, tile, _ in sequence))


def _row_tiles(role: ComputeRole, rank: int) -> list[int]:
    """Row tiles of the whole tensor by first visit."""
    return [segment * role.axis("m").tiles + tile for segment, tile in _visited(role, rank)]


def _chunk_tiles(schedule: Schedule) -> int:
    """Row tiles of a chunk."""
    (exchange,) = schedule.exchanges
    tile = _role(schedule).axis("m").tile
    assert exchange.chunk_rows % tile == 0
    return exchange.chunk_rows // tile


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("topology", SWITCHES)
def test_gather_on_a_switch(topology: str, chunks: int) -> None:
    """Own shard first, then r+1, r+2, … whole shards: one source after another at the full rate of the port."""
    role = _role(_planned(ag_gemm, topology, chunks))
    rows = role.axis("m").tiles
    for r in range(NUM_RANKS):
        num_m = rows * NUM_RANKS
        assert _row_tiles(role, r) == [(pid_m + r * rows) % num_m for pid_m in range(num_m)]


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("topology", SWITCHES)
@pytest.mark.quick(2)
def test_scatter_on_a_switch(topology: str, chunks: int) -> None:
    """Destinations r+1, r+2, …, own last: every step is a permutation of the ranks."""
    role = _role(_planned(gemm_rs, topology, chunks))
    rows = role.axis("m").tiles
    for r in range(NUM_RANKS):
        num_m = rows * NUM_RANKS
        assert _row_tiles(role, r) == [(pid_m + (r + 1) * rows) % num_m for pid_m in range(num_m)]


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("topology", MESHES)
def test_gather_on_a_full_mesh(topology: str, chunks: int) -> None:
    """Chunk 0 of every rank, chunk 1 of every rank, …, from the own rank on: only all links together fill the rate."""
    schedule = _planned(ag_gemm, topology, chunks)
    role, n, c = _role(schedule), NUM_RANKS, _chunk_tiles(schedule)
    rows = role.axis("m").tiles
    for r in range(n):
        wanted = []
        for pid_m in range(rows * n):
            chunk, source = pid_m // (c * n), (pid_m % (c * n) // c + r) % n
            wanted.append(source * rows + chunk * c + pid_m % c)
        assert _row_tiles(role, r) == wanted


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("topology", MESHES)
def test_scatter_on_a_full_mesh(topology: str, chunks: int) -> None:
    """Destinations chunk by chunk, rotated by r+1, and own rows, which wait for all others, one chunk behind."""
    schedule = _planned(gemm_rs, topology, chunks)
    role, n, c = _role(schedule), NUM_RANKS, _chunk_tiles(schedule)
    rows = role.axis("m").tiles
    for r in range(n):
        visits = []  # (round, destination, chunk)
        for chunk in range(rows // c):
            visits += [(chunk, (r + 1 + step) % n, chunk) for step in range(n - 1)]
            visits += [(chunk + 1, r, chunk)]
        visits.sort(key=lambda visit: (visit[0], visit[1] == r))
        wanted = [dest * rows + chunk * c + tile for _, dest, chunk in visits for tile in range(c)]
        assert _row_tiles(role, r) == wanted


@pytest.mark.parametrize("topology", MESHES)
def test_programs_by_die(topology: str) -> None:
    """The remap for chips of several dies: pid' = (pid mod X)·(P/X) + pid div X."""
    schedule = _planned(ag_gemm, topology, 4)
    dies = topologies.load(topology).gpu.num_dies
    (kernel,) = schedule.kernels()
    assert kernel.compute is not None
    assert kernel.dies.count == dies > 1
    programs = kernel.compute.programs // dies * dies
    for pid in range(programs):
        assert kernel.dies.at(pid, programs) == pid % dies * (programs // dies) + pid // dies
    assert all(kernel.dies.count == 1 for kernel in _planned(ag_gemm, SWITCHES[0], 4).kernels())


def _arrivals(schedule: Schedule, topology: str, rank: int) -> dict[tuple[int, int], float]:
    """When (source, chunk) is at `rank`, by the link model; every rank starts its mover at the same time."""
    (exchange,) = schedule.exchanges
    us = chunk_us(topologies.load(topology, NUM_RANKS), exchange, 2, made=True)
    ends = list(accumulate([us] * ((NUM_RANKS - 1) * exchange.chunks)))
    if exchange.transfer is Transfer.PULL:
        return dict(zip(exchange.order.sequence(rank, exchange.chunks), ends, strict=True))
    found = {}
    for source in range(NUM_RANKS):
        for (peer, chunk), end in zip(exchange.order.sequence(source, exchange.chunks), ends, strict=True):
            if peer == rank:
                found[source, chunk] = end
    return found


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("topology", SWITCHES + MESHES)
def test_tiles_follow_the_arrival_of_chunks(topology: str, chunks: int) -> None:
    schedule = _planned(ag_gemm, topology, chunks)
    role, c = _role(schedule), _chunk_tiles(schedule)
    for rank in range(NUM_RANKS):
        visited = list(dict.fromkeys((source, tile // c) for source, tile in _visited(role, rank)))
        others = [step for step in visited if step[0] != rank]
        arrivals = _arrivals(schedule, topology, rank)
        assert others == sorted(arrivals, key=lambda step: arrivals[step])
        assert visited[0] == (rank, 0)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("topology", SWITCHES + MESHES)
def test_chunks_leave_in_the_order_in_which_tiles_make_them(topology: str, chunks: int) -> None:
    schedule = _planned(gemm_rs, topology, chunks)
    role, c = _role(schedule), _chunk_tiles(schedule)
    (exchange,) = schedule.exchanges
    for rank in range(NUM_RANKS):
        visited = dict.fromkeys((peer, tile // c) for peer, tile in _visited(role, rank) if peer != rank)
        assert tuple(visited) == exchange.order.sequence(rank, exchange.chunks)


@pytest.mark.parametrize("nodes", [2, 4])
def test_orders_over_nodes(nodes: int) -> None:
    """Gathers begin with the own node and, in each node, with the own place; scatters end with both: slow links first."""
    two = topologies.load("h800-2-nodes")
    levels = tuple(replace(one, size=nodes) if one.name == "infiniband" else one for one in two.levels)
    machine = replace(two, levels=levels, num_ranks=nodes * 8)
    for r in range(machine.num_ranks):
        node, local = divmod(r, 8)
        gathered = [(node + i) % nodes * 8 + (local + j) % 8 for i in range(nodes) for j in range(8)]
        scattered = [(node + 1 + i) % nodes * 8 + (local + 1 + j) % 8 for i in range(nodes) for j in range(8)]
        assert list(rank_order(machine, 0).sequence(r)) == gathered
        assert list(rank_order(machine, 1).sequence(r)) == scattered
        assert gathered[0] == scattered[-1] == r


@pytest.mark.parametrize("first", [0, 1])
def test_each_step_over_nodes_is_a_permutation(first: int) -> None:
    """So that no rank, and no NIC, is sent to by two at once."""
    order = rank_order(topologies.load("h800-2-nodes"), first)
    for step in range(16):
        assert sorted(order.at(r, step) for r in range(16)) == list(range(16))
