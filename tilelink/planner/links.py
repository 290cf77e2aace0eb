"""Times of transfers from the descriptor: how long a chunk takes, and when each chunk arrives."""

from __future__ import annotations

import math

from tilelink.ir.calls import PacketCollective
from tilelink.ir.enums import PACKET_BYTES, Protocol
from tilelink.ir.movers import ChunkMover, Issuer, Transfer
from tilelink.ir.nodes import Exchange
from tilelink.ir.order import Nest
from tilelink.ir.routed import Placed, Routed
from topologies.topology import Fabric, Topology

_FUSED_CHUNK_US = 1.0  # from the last tile of a chunk to its signal
FUSED_LOAD_SHARE = 0.75  # of a link, loads from peers reach; measured on 4 x H200
SUM_LOAD_SHARE = 0.85  # the same of tiles that only add; fitted to 2 x H200
SIGNAL_COPY_US = 2.1  # a 4-byte copy between GPUs by a copy engine, measured on 2 x H200
_COPY_DRAG_US = 1.5  # a transfer of a copy engine with its signal slows what is computed beside it
# until the first rows that warps move are there, of each exchange: 10 ragged rows of 50 to 5,834 tokens next to what is planned
# otherwise, where they were 4 us slower and predicted 2 us faster, or level (2 x H200)
_WARPS_START_US = 1.5
_WARPS_DRAG = 0.1  # of the time that their bytes are on the link; fitted to 2 x H200, 4,096 to 16,384 tokens
_ITEM_US = 2.0  # a producer or consumer waits, meets and notifies; not measured
_OUT_OF_STEP_SHARE = 0.82  # of the rate of copies between ranks in step; fitted to 4 x H200
_PULL_START_US = 14.0  # waiting for the owner's signal before each chunk; fitted to 4 x H200
# collectives by packets, fitted to 128 KB to 4 MB of LL packets a peer on 2 x H200: of what a link carries;
# and of a launch, what a kernel behind a matmul costs
PACKET_SHARE, _PACKET_LAUNCH_SHARE = 0.76, 0.7
PUT_BLOCK = (
    4096  # packets that a program puts to each node at a time: 32 KB, more than half of a NIC's rate. Not measured
)
_PACKETS_US, _PACKETS_GB_PER_S = 1.6, 3.6  # until packets of a tile are there; of them that a program sends (2 x H200)
_INDEX_US, _COUNT_US, _ID_US = 2.6, 2.2, 9e-5  # tables by one launch, a launch that counts, and each id (one H100)
_LINES_US = 0.2  # what lines take longer than packets of 8 bytes, however many (2 x H200)
_SHOT_US = 1.0  # beginning another shot of packets; 0.6 to 1.9 where one H200 stands for two or four ranks
_ALL_PROGRAMS_US = 1.5  # all programs of a kernel wait for each other; not measured
LIST_US = 1.8  # tables of rows that are sent: a kernel of 1.1 to 1.6, and the gap before it (2 x H100)
# NCCL in a CUDA graph, behind a matmul, fitted to 0.07 to 400 MB on 2 and 4 x H200: a start, a part that grows with the
# bytes until its protocols for large messages take over, and a rate that grows with the number of ranks
_LIBRARY_START_US, _LIBRARY_GROWS_US, _LIBRARY_GROWS_BYTES = 7.0, 9.0, 0.4e6
# a ring goes through each node, and through all of its ranks: NCCL's own model of its latency has these for a hop (LL packets;
# tuning.cc of NCCL 2.30). What is fitted has the hops of one node in it
_NETWORK_HOP_US, _LINK_HOP_US = 2.7, 0.6
_LIBRARY_ROUND_US = 0.75  # an all_reduce goes round twice: so much more for each rank
# what a collective beside a matmul takes longer than alone, above a size; fitted to 2 and 4 x H200
_LIBRARY_LARGE_US, _LIBRARY_SMALL, _LIBRARY_LARGE_BYTES = 18.0, 2 << 20, 12 << 20  # the last one over the ranks
_LIBRARY_RATES = {"all_gather": (0.9, 0.64), "reduce_scatter": (0.9, 0.64), "all_reduce": (0.95, 0.44)}


def rank_rate(topology: Topology, mover: ChunkMover, transfer: Transfer, num_bytes: float) -> float:
    """GB/s with which one mover sends to (or loads from) one peer."""
    return min(topology.slowest_link_gb_per_s, mover.gb_per_s(topology, transfer, num_bytes))


def num_links(topology: Topology) -> int:
    """How many peers a rank can reach at once at full link rate."""
    return topology.num_ranks - 1 if topology.levels[0].fabric is Fabric.FULL_MESH else 1


def chunk_us(topology: Topology, exchange: Exchange, element_bytes: int, *, made: bool) -> float:
    """Duration of each (peer, chunk) transfer of the mover, as a step of one queue. `made`: the chunks
    are made in this call: ranks are not in step then, and two may send to the same one, which is how a rate below that of
    copies in step is accounted for."""
    peers = topology.num_ranks - 1
    if exchange.mover.issuer is Issuer.TILES and exchange.transfer is Transfer.PUSH:
        # its tiles take the time that their stores take, and all peers are told at once
        return _FUSED_CHUNK_US / peers
    num_bytes = exchange.chunk_rows * exchange.chunk_cols * element_bytes
    if exchange.sent is not None:
        num_bytes = round(num_bytes * exchange.sent.likely_share(topology.num_ranks))
    rate = rank_rate(topology, exchange.mover, exchange.transfer, num_bytes)
    rate *= _OUT_OF_STEP_SHARE if made and topology.num_ranks > 2 else 1.0
    bridge = topology.levels[0].fabric is Fabric.HOST_BRIDGE
    shared = topology.levels[0].size if bridge else 1
    floor, start = exchange.mover.start_us(topology)
    start += _PULL_START_US if exchange.transfer is Transfer.PULL else 0.0
    one = max(floor, num_bytes / rate / 1e3 * shared) + start
    at_once = min(peers, num_links(topology))
    if exchange.order.nest is Nest.RANK_MAJOR or at_once == 1:
        return one  # peers that share a port take turns, whatever the order
    # a mesh has a link for each peer: all of them at once
    total = rate * at_once
    if exchange.mover.sms:
        ramp = topology.push_sms if exchange.transfer is Transfer.PUSH else topology.pull_sms
        total = min(total, ramp.at(exchange.mover.sms) * at_once)
    stage = max(floor, peers * num_bytes / total / 1e3 * shared) + start
    return stage / peers


def drag_us(topology: Topology, exchange: Exchange, element_bytes: int) -> float:
    """What copies slow the tiles that are computed meanwhile: those of copy engines by their number, those of warps by how long
    the link is busy, since what the tiles load stands behind what leaves."""
    peers = topology.num_ranks - 1 if exchange.reach is None else exchange.reach
    match exchange.mover.issuer:
        case Issuer.STREAMS:
            nodes = topology.num_nodes if exchange.mover.crosses_nodes else 1
            return _COPY_DRAG_US * (topology.num_ranks - nodes) * exchange.chunks
        case Issuer.WARPS:
            moved = peers * exchange.rows * exchange.cols * element_bytes
            return _WARPS_START_US + _WARPS_DRAG * moved / topology.link_gb_per_s(0, 1) / 1e3
        case _:
            return 0.0


def queue_us(topology: Topology, exchange: Exchange, element_bytes: int, consumers: int) -> float:
    """All items of a bounded exchange: what passes the link, what producers and consumers get through, or as often as a
    slot can go round, whichever is slowest; and one item on its way."""
    num_bytes = exchange.chunk_rows * exchange.cols * element_bytes
    rate = rank_rate(topology, exchange.mover, exchange.transfer, num_bytes)
    one = num_bytes / topology.push_sms.at(1) / 1e3  # an item by one program
    there = topology.levels[0].signal_us + one + _ITEM_US
    busy = [(one + _ITEM_US) / programs for programs in (exchange.mover.sms, consumers)]
    each = max(num_bytes / rate / 1e3, *busy, 2 * there / exchange.slots)
    return exchange.chunks * each + there


def packets_us(
    topology: Topology,
    packets: int,
    shots: int,
    *,
    protocol: Protocol = Protocol.LL,
    within: bool = False,
    beside: bool = False,
    multicast: bool = False,
) -> float:
    """A collective that sends and receives so many packets to and from each peer in each of so many shots, with its launch, or
    with what its programs wait for each other `within` a kernel; `beside` others, what their launch takes longer. A packet takes
    as long whatever of it is data, and a line as 16 of them. By `multicast` a rank sends once what all ranks get, but as many
    packets arrive, and its own ones with them: predicted, and never measured."""
    if topology.num_nodes > 1:
        return _packet_rails_us(topology, packets, protocol, beside=beside, multicast=multicast)
    ranks = topology.num_ranks
    link = topology.slowest_link_gb_per_s * num_links(topology)
    there = max(level.signal_us for level in topology.levels)
    start = _ALL_PROGRAMS_US if within else _PACKET_LAUNCH_SHARE * topology.gpu.kernel_launch_us
    start += _SHOT_US * (shots - 1) + (_LINES_US * shots if protocol is Protocol.LL128 else 0.0)
    arrive = shots * (ranks - 1) + multicast
    passed = arrive * protocol.packet_bytes * packets / (PACKET_SHARE * link) / 1e3
    return passed if beside else start + shots * there + passed


def packet_call_us(topology: Topology, launch: PacketCollective) -> float:
    """The same of a launch."""
    how = {"within": launch.within, "beside": launch.beside, "multicast": launch.multicast}
    return packets_us(topology, launch.packets, launch.shots, protocol=launch.protocol, **how)


def rail_packets(packets: int, protocol: Protocol) -> int:
    """How many a rank puts to each other node, of what are so many packets inside of a node: none of them is a line."""
    return packets * protocol.data_bytes // Protocol.LL.data_bytes if protocol is Protocol.LL128 else packets


def _packet_rails_us(topology: Topology, packets: int, protocol: Protocol, *, beside: bool, multicast: bool) -> float:
    """The same of an all_gather over nodes, by rails: what passes the network, or is handed on inside of a node, whichever takes
    longer; and the first put of all."""
    far = rail_packets(packets, protocol)
    nodes, local = topology.num_nodes, topology.ranks_per_node
    put, passed = 0.0, list[float]()
    for level in topology.levels:
        network = level.fabric is Fabric.NETWORK
        rate = level.gb_per_s * (1 if network else PACKET_SHARE * num_links(topology))
        come = (local - 1 + multicast) * nodes  # parts of ranks
        moved = (nodes - 1) * PACKET_BYTES * far if network else come * protocol.packet_bytes * packets
        passed.append(moved / rate / 1e3)
        put += PACKET_BYTES * min(far, PUT_BLOCK) / rate / 1e3 if network else 0.0
    start = _PACKET_LAUNCH_SHARE * topology.gpu.kernel_launch_us
    return (0.0 if beside else start + sum(level.signal_us for level in topology.levels) + put) + max(passed)


def tile_packets_us(
    topology: Topology, protocol: Protocol, shots: int, num_bytes: float, programs: int, *, cut: bool
) -> float:
    """So many bytes of a tile as packets to peers and back: as fast as one program stores and polls, or as the link lets all of
    them. `cut`: each goes to one rank."""
    ranks, packets = topology.num_ranks, num_bytes / protocol.data_bytes
    sent = shots * packets * PACKET_BYTES * (ranks - 1) / (ranks if cut or shots > 1 else 1)
    link = PACKET_SHARE * topology.link_gb_per_s(0, 1) / programs
    return shots * _PACKETS_US + sent / min(_PACKETS_GB_PER_S, link) / 1e3


def index_us(routed: Routed) -> float:
    """The tables of a routing, with their launches."""
    if routed.programs == 1:
        return _INDEX_US
    return _INDEX_US + _COUNT_US + routed.rows * _ID_US


def places_us(placed: Placed) -> float:
    """The tables of rows that go to places: two launches, as those of a routing that is counted first. Not measured."""
    return _INDEX_US + _COUNT_US + placed.routed.rows * _ID_US


def bus_rate(topology: Topology) -> float:
    """GB/s that rings of a library collective can pass through each rank, before the library's own losses.

    Within a node it is the rate of the slowest link, of all links of a rank at once where each peer has its own. Between
    nodes it is the total of a node's NICs, because the rings of a node leave through all of them (nccl-tests, issue 160).
    """
    inner = [level for level in topology.levels if level.fabric is not Fabric.NETWORK]
    outer = [level.gb_per_s * topology.ranks_per_node for level in topology.levels if level not in inner]
    if not inner:
        return min(outer)
    first, slowest = inner[0], min(level.gb_per_s for level in inner)
    match first.fabric:
        case Fabric.FULL_MESH:
            slowest *= topology.ranks_per_node - 1
        case Fabric.HOST_BRIDGE:
            slowest /= first.size
        case Fabric.SWITCH | Fabric.NETWORK:
            pass
    return min([slowest, *outer])


def library_us(topology: Topology, function: str, out_bytes: int) -> float:
    """A library collective whose largest tensor on a rank has `out_bytes` bytes."""
    ranks = topology.num_ranks
    most, lost = _LIBRARY_RATES[function]
    rate = bus_rate(topology) * (most - lost / ranks)
    moved = out_bytes * (ranks - 1) / ranks * (2 if function == "all_reduce" else 1)
    grown = _LIBRARY_GROWS_US * (1.0 - math.exp(-moved / ranks / _LIBRARY_GROWS_BYTES))
    above = max(0.0, out_bytes - _LIBRARY_SMALL)
    large = _LIBRARY_LARGE_US * (1.0 - math.exp(-above * ranks / _LIBRARY_LARGE_BYTES))
    start = _LIBRARY_START_US + (_LIBRARY_ROUND_US * (ranks - 2) if function == "all_reduce" else 0.0)
    if topology.num_nodes > 1:
        hops = topology.num_nodes * _NETWORK_HOP_US + (ranks - topology.ranks_per_node) * _LINK_HOP_US
        start += hops * (2 if function == "all_reduce" else 1)
    return start + grown + large + moved / rate / 1e3
