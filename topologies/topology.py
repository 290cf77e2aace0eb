"""What a planner may know about a machine: facts only, no policy.

Rates are in GB/s of 1e9 bytes and usable rather than marketing; times are in microseconds. Where a number
comes from is kept beside it, under its dotted key, in `Topology.provenance`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum

from topologies.errors import NoSuchPair, UnknownDtype, did_you_mean


class Fabric(Enum):
    SWITCH = "switch"  # any pair runs at the full rate of its two ports: NVSwitch
    FULL_MESH = "full mesh"  # one link a pair, so full rate needs all peers at once: xGMI
    HOST_BRIDGE = "host bridge"  # everything behind a bridge shares its rate: PCIe, sockets
    NETWORK = "network"  # a NIC for each rank; no loads and stores to a peer's memory


class Vendor(Enum):
    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the fabric. Levels are listed from inside out."""

    name: str  # "nvswitch", "xgmi", "pcie", "infiniband"; no two levels of a topology share it
    fabric: Fabric
    size: int  # how many units of the level below are joined: GPUs of a node, nodes
    gb_per_s: float  # switch, network: in (= out) of one rank; mesh: one link, one direction; bridge: shared
    signal_us: float  # release store on one rank to acquire load on another
    multicast: bool  # one store or reduce-load reaches all ranks through the switch
    peer_atomics: bool  # a kernel may do atomics on a peer's mapped memory

    @property
    def unit_gb_per_s(self) -> float:
        """GB/s that are left to each unit while all are busy: units share the rate of a bridge."""
        return self.gb_per_s / self.size if self.fabric is Fabric.HOST_BRIDGE else self.gb_per_s


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    vendor: Vendor
    arch: str  # "sm_90", "gfx942"
    num_sms: int  # NVIDIA's SMs, AMD's CUs
    dense_tflops: tuple[tuple[str, float], ...]  # peak without sparsity, by dtype
    memory_gb_per_s: float  # of a device copy, reads plus writes
    l2_bytes: int  # sum over the dies
    shared_bytes_per_sm: int
    num_dies: int  # L2 domains: workgroup i lands on die i mod num_dies
    num_copy_engines: int
    tensor_descriptors: bool  # TMA-like descriptor loads in hardware
    stream_wait_value: bool  # the driver can make a stream wait on any word of device memory
    gemm_efficiency: float  # achieved over dense peak, of a good GEMM on large shapes
    kernel_launch_us: float  # what one more dependent kernel costs on a busy stream or in a replayed graph
    comm_beside_compute: bool  # a copy kernel can run beside another launch (AMD: copy engines only)

    def tflops(self, dtype: str) -> float:
        """Dense peak in TFLOP/s for `dtype`. Raises UnknownDtype where the descriptor has none."""
        peaks = dict(self.dense_tflops)
        if dtype not in peaks:
            raise UnknownDtype(dtype=dtype, gpu=self.name, hint=did_you_mean(dtype, peaks), legal=", ".join(peaks))
        return peaks[dtype]


@dataclass(frozen=True, slots=True)
class Ramp:
    """Bandwidth against something that buys it: bytes of one copy, SMs that copy."""

    points: tuple[tuple[float, float], ...]  # (x, GB/s), at least one, x positive and strictly increasing

    def at(self, x: float) -> float:
        """GB/s at `x`: linear in log2 x between two points, clamped at the ends."""
        (low_x, low), (last_x, last) = self.points[0], self.points[-1]
        if x <= low_x:
            return low
        if x >= last_x:
            return last
        for high_x, high in self.points[1:]:
            if x == high_x:
                return high
            if x < high_x:
                share = math.log2(x / low_x) / math.log2(high_x / low_x)
                between = low + (high - low) * share
                # rounding must not leave the segment, or the curve would not be monotone where its points are
                return min(max(between, min(low, high)), max(low, high))
            low_x, low = high_x, high
        return last


@dataclass(frozen=True, slots=True)
class Topology:
    """`num_ranks` GPUs of one kind and what joins them.

    `topologies.load` cuts `levels` to the group: an outer level that the group does not reach is gone, and
    the product of the sizes is `num_ranks`. Ranks fill inner levels first: 0..7 are one node, 8..15 the next.
    """

    name: str
    num_ranks: int
    gpu: Gpu
    levels: tuple[Level, ...]
    copy_engine: Ramp  # x = bytes of one copy to one peer; back to back, the start of each included
    copy_engine_start_us: float  # what a copy of no bytes takes: a floor, not to be added to bytes / rate
    push_sms: Ramp  # x = SMs storing to peers; total of one rank over all links it uses
    pull_sms: Ramp  # x = SMs loading from peers; total of one rank over all links it uses
    provenance: tuple[tuple[str, str], ...]  # (dotted key, origin), one for each of numbers(self)

    @property
    def ranks_per_node(self) -> int:
        """Ranks that reach each other without a network."""
        joined = math.prod(level.size for level in self.levels if level.fabric is not Fabric.NETWORK)
        return min(self.num_ranks, joined)

    @property
    def multicast(self) -> bool:
        """Whether one store reaches all ranks of a node."""
        return all(level.multicast for level in self.levels if level.fabric is not Fabric.NETWORK)

    @property
    def whole_lines(self) -> bool:
        """Whether lines of 128 bytes that a warp stores come whole to ranks of the node, as NCCL takes for granted of NVLink."""
        inside = (level for level in self.levels if level.fabric is not Fabric.NETWORK)
        return self.gpu.vendor is Vendor.NVIDIA and all(level.peer_atomics for level in inside)

    @property
    def ranks_per_half(self) -> int:
        """Ranks of a node that its last level joins to others of it, as sockets are joined: all of a node with one level."""
        inside = [level.size for level in self.levels if level.fabric is not Fabric.NETWORK]
        return min(self.num_ranks, math.prod(inside[:-1])) if len(inside) > 1 else self.ranks_per_node

    @property
    def num_nodes(self) -> int:
        return math.ceil(self.num_ranks / self.ranks_per_node)

    def level_between(self, rank: int, peer: int) -> Level:
        """The innermost level that joins `rank` and `peer`. Raises NoSuchPair."""
        if rank != peer and min(rank, peer) >= 0 and max(rank, peer) < self.num_ranks:
            joined = 1
            for level in self.levels:
                joined *= level.size
                if rank // joined == peer // joined:
                    return level
        raise NoSuchPair(
            rank=rank,
            peer=peer,
            topology=self.name,
            num_ranks=self.num_ranks,
            last_rank=self.num_ranks - 1,
        )

    @property
    def slowest_link_gb_per_s(self) -> float:
        """GB/s of the slowest link between any two ranks."""
        joined, rates = 1, list[float]()
        for level in self.levels:
            if level.size > 1 and joined < self.num_ranks:
                rates.append(level.gb_per_s)
            joined *= level.size
        return min(rates)

    def link_gb_per_s(self, rank: int, peer: int) -> float:
        """GB/s from `rank` to `peer`, one direction, when no other pair is active. Raises NoSuchPair."""
        return self.level_between(rank, peer).gb_per_s


def numbers(topology: Topology) -> tuple[tuple[str, float | Ramp], ...]:
    """Every number of the descriptor under its dotted key, GPU first, then levels, then copying.

    A ramp counts as one number: it was measured, or guessed, as a whole. `num_ranks` is not among them: the
    caller chose it.
    """
    found = _scalars("gpu", topology.gpu)
    found += [(f"gpu.dense_tflops.{dtype}", peak) for dtype, peak in topology.gpu.dense_tflops]
    for level in topology.levels:
        found += _scalars(f"levels.{level.name}", level)
    return (
        *found,
        ("copy_engine", topology.copy_engine),
        ("copy_engine_start_us", topology.copy_engine_start_us),
        ("push_sms", topology.push_sms),
        ("pull_sms", topology.pull_sms),
    )


def _scalars(prefix: str, facts: Gpu | Level) -> list[tuple[str, float | Ramp]]:
    found: list[tuple[str, float | Ramp]] = []
    for field in fields(facts):
        value: object = getattr(facts, field.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found.append((f"{prefix}.{field.name}", value))
    return found
