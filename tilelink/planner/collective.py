"""Relations that one call carries out -> launches: of the library, or of one kernel whose packets number the call."""

from __future__ import annotations

from tilelink.ir.calls import CollectiveCall, LibraryCollective, ListRows, PacketCollective, SortRows
from tilelink.ir.counting import block_shape, in_registers, packets_sent
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.enums import WARP
from tilelink.ir.graph import Relation
from tilelink.ir.nodes import Begin, Exchange, Kernel, Kind, Launch, PushRows
from tilelink.ir.routed import Routed
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.rules import NOTHING_ELSE

_BLOCK = 512  # packets that a program of a collective moves at a time, one a thread (of 128 to 1,024 best on 2 x H200)
_MOST_PER_SM = 4  # programs of 16 warps: 2,048 threads of 32 registers fill an SM of each GPU whose links carry atomics
FUNCTIONS = {Kind.GATHER: "all_gather", Kind.SCATTER: "reduce_scatter", Kind.REDUCE: "all_reduce"}


def collective(relation: Relation, source: str, dtype: str, free_sms: int) -> LibraryCollective | PacketCollective:
    """The launch that makes `relation` of the buffer `source`; one that moves packets takes as many of the free SMs as it has
    blocks to move, and shares them among several programs if there are more. Raises Illegal."""
    if relation.kind is Kind.GATHER and relation.summed:
        raise Illegal("a gather adds nothing")
    function = FUNCTIONS[relation.kind]
    if not relation.by_packets:
        return LibraryCollective(function, relation.name, source)
    packets = packets_sent(relation, dtype)
    blocks = -(-packets // _BLOCK)
    per_sm = min(_MOST_PER_SM, -(-blocks // max(1, free_sms)))
    programs = max(1, min(free_sms * per_sm, blocks))  # what does not fit at all is refuted
    by = relation.protocol, relation.shots
    return PacketCollective(function, relation.name, source, packets, programs, _BLOCK, per_sm, *by)


def gather_within(relation: Relation, source: str, dtype: str, kernel: Kernel) -> PacketCollective:
    """The same by all programs of `kernel`, before their tiles. Raises Illegal."""
    if kernel.comm or kernel.joined:
        raise Illegal(
            f"programs of {kernel.name} communicate or go on from other tiles, and {relation.name} comes first"
        )
    packets, block = packets_sent(relation, dtype), WARP * kernel.warps  # threads, each of which moves one at a time
    in_packet = relation.protocol.data_bytes // DTYPE_BYTES[dtype]
    if in_registers(block_shape(relation.part, block * in_packet)[-2:]) < block * in_packet:
        raise Illegal(f"the {packets} packets of {relation.name} are fewer than the {block} threads of a program")
    by = relation.protocol, relation.shots, True
    return PacketCollective("all_gather", relation.name, source, packets, kernel.programs, block, kernel.per_sm, *by)


def pushed_first(problem: Problem, exchanges: tuple[Exchange, ...], index: int, kernel: Kernel) -> list[PushRows]:
    """Rows that programs of `kernel`, of group `index`, push before their tiles: those that it is the first to read. Raises
    Illegal."""
    listed = [one.name for one in exchanges if one.sent is not None]
    found = [PushRows(name) for name in listed if min(map(problem.host, problem.structure.readers(name))) == index]
    if found and kernel.comm:
        raise Illegal(f"programs of {kernel.name} communicate, and rows of {found[0].exchange} are pushed first")
    if found and kernel.compute is not None and kernel.compute.warpgroups > 1:
        raise Illegal(NOTHING_ELSE)
    return found


def with_tables(launches: list[Launch], exchanges: tuple[Exchange, ...]) -> list[Launch]:
    """`launches` with the tables of routings: of rows that are sent, first; for the tiles of all loops, as soon as the ids are
    there. Loops whose tiles have one height share tables; it is the same to the others if own tokens come first for one."""
    roles = [one.compute for one in launches if isinstance(one, Kernel) and one.compute is not None]
    made: dict[tuple[Routed, int], bool] = {}
    for role in roles:
        for axis in role.axes:
            if axis.routed is not None:
                made[axis.routed, axis.tile] = made.get((axis.routed, axis.tile), False) or role.own_first
    found = list(launches)
    for one in (SortRows(routed, height, own_first) for (routed, height), own_first in made.items()):
        there = [
            at for at, launch in enumerate(found) if isinstance(launch, CollectiveCall) and launch.out == one.routed.ids
        ]
        first = next((at for at, launch in enumerate(found) if not isinstance(launch, SortRows)), 0)
        found.insert(there[-1] + 1 if there else first, one)
    begins = sum(isinstance(launch, Begin) for launch in found)
    found[begins:begins] = [ListRows(one.sent) for one in exchanges if one.sent is not None]
    return found
