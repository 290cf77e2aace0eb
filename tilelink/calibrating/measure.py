"""The numbers of a descriptor, one function a group of them: what is enqueued, how it is timed, what follows from the time.

All ranks call each function in the same order. Rates are in GB/s of 1e9 bytes, times in microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from tilelink.calibrating.crossing import Crossing
from tilelink.calibrating.errors import BytesDiffer, GemmBeatsPeak, WordsLost
from tilelink.calibrating.finding import Finding
from tilelink.calibrating.sampling import gb_per_s, rising, rounded, slowest_us, tflops
from tilelink.measuring.device import Call, Device
from topologies.topology import Ramp, Topology

MIB = 1 << 20
SM_COPY_BYTES, BLOCK_BYTES = 64 * MIB, 32 * 1024  # what one program loads, then stores; emitted programs do so, too
GRAPH_BYTES = 16 * MIB  # the driver copies larger ones in a graph in another, slower way
DEVICE_COPY_BYTES = 1 << 30
START_BYTES = 4
FEW, MANY = 64, 320  # kernels in a graph
ROUND_TRIPS, POLLS = 2000, 1 << 22  # a wait ends after a few seconds
GEMM_SIZE = 8192
LOAD_US, SAMPLE_US = 100_000.0, 20_000.0
_BATCH_BYTES, _FEWEST, _MOST = 256 * MIB, 2, 128  # of the copies between two events
_START_COPIES, _SM_COPIES = 256, 4


class Work(Protocol):
    """What a rank can enqueue; each method returns a call for `Device.time` and `Device.capture`."""

    def push(self, peer: int, num_bytes: int) -> Call:
        """A copy engine writes so many bytes to the peer."""

    def copy(self, peers: Sequence[int], programs: int, *, push: bool) -> Call:
        """So many programs copy `copied_bytes` to the peers, or from them."""

    def clear(self) -> None:
        """Zeros where copies arrive on this rank."""

    def wrong_words(self, owners: Sequence[int]) -> int:
        """Words of this rank that are not those of the ranks whose parts should have arrived by `copy`, after it has ended."""

    def words(self, peer: int, place: int, *, first: bool, atomic: bool) -> Call:
        """ROUND_TRIPS round trips of word `place`. Compiled and loaded when this returns: a kernel that waits must not be in the
        way of loading the peer's."""

    def words_lost(self) -> bool:
        """Whether such a call has given up."""

    def device_copy(self) -> Call:
        """DEVICE_COPY_BYTES from here to here."""

    def small_kernel(self) -> Call:
        """A kernel of one program that changes one element."""

    def gemm(self) -> Call:
        """A square bf16 matmul of GEMM_SIZE by the library."""


def nothing() -> tuple[()]:
    """The call of a rank that only waits."""
    return ()


def _repeated(call: Call, calls: int) -> Call:
    def batch() -> tuple[()]:
        for _ in range(calls):
            call()
        return ()

    return batch


def _graph(device: Device, call: Call, calls: int) -> Call:
    call()  # what loads a kernel or allocates memory must not happen in a capture
    return device.capture(call, calls)


def copied_bytes(peers: int) -> int:
    """Bytes that the copy kernel moves: whole blocks, as many for each peer."""
    return SM_COPY_BYTES // BLOCK_BYTES // peers * peers * BLOCK_BYTES


def engine_rate(device: Device, work: Work, crossing: Crossing, num_bytes: int) -> float:
    """GB/s of pushes of so many bytes back to back, in a graph up to GRAPH_BYTES."""
    calls = max(_FEWEST, min(_MOST, _BATCH_BYTES // num_bytes))
    return gb_per_s(num_bytes, _engine_us(device, work, crossing, num_bytes, calls))


def _engine_us(device: Device, work: Work, crossing: Crossing, num_bytes: int, calls: int) -> float:
    peer = crossing.neighbours[device.rank]
    if peer is None:
        return slowest_us(device, nothing, here=False) / calls
    one = work.push(peer, num_bytes)
    batch = _graph(device, one, calls) if num_bytes <= GRAPH_BYTES else _repeated(one, calls)
    return slowest_us(device, batch) / calls


def copy_engine(device: Device, work: Work, crossing: Crossing, sizes: Sequence[int]) -> list[Finding]:
    """The ramp over bytes of one copy, its last rate as that of the level, and the time of a copy of almost no bytes."""
    points = [(float(size), engine_rate(device, work, crossing, size)) for size in sizes]
    start = _engine_us(device, work, crossing, START_BYTES, _START_COPIES)
    who = crossing.said()
    large = f", above {GRAPH_BYTES // MIB} MiB without one" if max(sizes) > GRAPH_BYTES else ""
    ramp = Ramp(rising(points))
    return [
        Finding("copy_engine", ramp, f"pushes back to back in a CUDA graph{large}, {who}"),
        Finding("copy_engine_start_us", rounded(start), f"pushes of {START_BYTES} bytes in a CUDA graph, {who}"),
        _level(crossing, ramp.points[-1][1], sizes[-1]),
    ]


def level_rate(device: Device, work: Work, crossing: Crossing, num_bytes: int) -> Finding:
    """The rate of a large copy."""
    return _level(crossing, rounded(engine_rate(device, work, crossing, num_bytes)), num_bytes)


def _level(crossing: Crossing, rate: float, num_bytes: int) -> Finding:
    how = f"copy engine push of {num_bytes // MIB} MiB, {crossing.said()}"
    return Finding(f"levels.{crossing.level.name}.gb_per_s", rate, how)


def sm_copies(device: Device, work: Work, crossing: Crossing, counts: Sequence[int], *, push: bool) -> Finding:
    """The ramp over SMs that copy to peers, or from them. Raises BytesDiffer on all ranks alike."""
    peers = crossing.peers[device.rank]
    num_bytes = copied_bytes(max(map(len, crossing.peers)))
    work.clear()
    device.meet()
    points = []
    for count in counts:
        batch = _graph(device, work.copy(peers, count, push=push), _SM_COPIES) if peers else nothing
        us = slowest_us(device, batch, here=bool(peers)) / _SM_COPIES
        points.append((float(count), gb_per_s(num_bytes, us)))
    device.meet()
    way = "push" if push else "pull"
    owners = crossing.senders(device.rank) if push else peers
    wrong = [int(text) for text in device.exchange(str(work.wrong_words(owners)))]
    if any(wrong):
        rank, words = max(enumerate(wrong), key=lambda one: one[1])
        raise BytesDiffer(rank=rank, how=way, words=words)
    how = f"{num_bytes // MIB} MiB by a Triton kernel, {crossing.said()}"
    return Finding(f"{way}_sms", Ramp(rising(points)), how)


def signal(device: Device, work: Work, crossing: Crossing, place: int) -> Finding:
    """Half of the round trip of a word between two kernels. Raises WordsLost on all ranks alike."""
    first, second = crossing.pair
    here = device.rank in crossing.pair
    batch: Call = nothing
    if here:
        peer = second if device.rank == first else first
        one = work.words(peer, place, first=device.rank == first, atomic=crossing.level.peer_atomics)
        batch = device.capture(one, 1)  # not called before: the peer may not be there yet
    us = slowest_us(device, batch, here=here)
    lost = device.exchange("lost" if here and work.words_lost() else "")
    if any(lost):
        raise WordsLost(rank=first, peer=second, level=crossing.level.name, polls=POLLS)
    by = "system-scope atomics" if crossing.level.peer_atomics else "stores"
    how = f"half of a round trip by {by}, ranks {first} and {second}"
    return Finding(f"levels.{crossing.level.name}.signal_us", rounded(us / ROUND_TRIPS / 2), how)


def memory(device: Device, work: Work) -> Finding:
    """Reads plus writes of a copy inside the GPU."""
    batch = _repeated(work.device_copy(), 4)
    batch()
    us = slowest_us(device, batch) / 4
    return Finding(
        "gpu.memory_gb_per_s", rounded(gb_per_s(2 * DEVICE_COPY_BYTES, us)), "device copy of 1 GiB, slowest GPU"
    )


def launches(device: Device, work: Work) -> Finding:
    """What one more kernel of a graph takes, from two graphs, so that the start of a graph does not count."""
    one = work.small_kernel()
    few, many = (slowest_us(device, _graph(device, one, count)) for count in (FEW, MANY))
    us = max((many - few) / (MANY - FEW), 0.01)
    return Finding("gpu.kernel_launch_us", rounded(us), "kernels of one program that follow each other in a CUDA graph")


def gemm(device: Device, work: Work, topology: Topology) -> Finding:
    """Of the dense peak, by the library behind 100 ms of the same matmul. Raises GemmBeatsPeak on all ranks alike."""
    batch = _graph(device, work.gemm(), 1)
    one = slowest_us(device, batch, rounds=1)
    calls = max(1, math.ceil(SAMPLE_US / one))
    load = max(1, math.ceil(LOAD_US / one / calls))
    us = slowest_us(device, _repeated(batch, calls), lead_in=load, batches=2) / calls
    found, peak = tflops(2.0 * GEMM_SIZE**3, us), topology.gpu.tflops("bf16")
    if found > peak:
        raise GemmBeatsPeak(measured=rounded(found), peak=peak)
    how = f"cuBLAS bf16 {GEMM_SIZE}^3 behind 100 ms of itself, {found:.0f} of {peak:g} TFLOP/s, slowest GPU"
    return Finding("gpu.gemm_efficiency", rounded(found / peak), how)


def sm_counts(shipped: Ramp, shipped_sms: int, num_sms: int) -> list[int]:
    """Where the shipped ramp has points; a ramp up to all SMs of its GPU goes up to all of this one."""
    counts = [int(x) for x, _ in shipped.points if x < shipped_sms and x <= num_sms]
    ends = shipped.points[-1][0] >= shipped_sms
    return sorted({*counts, num_sms}) if ends or not counts else counts
