"""Relations that one call carries out -> launches: of the library, or of one kernel whose packets number the call."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.calls import CollectiveCall, LibraryCollective, ListPlaces, ListRows, PacketCollective, SortRows
from tilelink.ir.counting import block_of_packets, blocks_of_packets, packets_held, packets_sent
from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.enums import WARP, Protocol
from tilelink.ir.graph import Relation, TileGraph
from tilelink.ir.nodes import Begin, Exchange, Kernel, Kind, Launch, MoveRows
from tilelink.ir.routed import Placed, Routed
from tilelink.planner.layout import Illegal, Problem
from tilelink.planner.links import PUT_BLOCK, rail_packets
from tilelink.planner.rules import NOTHING_ELSE, why_not_in_order
from topologies.topology import Topology

_BLOCK = 512  # packets that a program of a collective moves at a time, one a thread (of 128 to 1,024 best on 2 x H200)
_MOST_PER_SM = 4  # programs of 16 warps: 2,048 threads of 32 registers fill an SM of each GPU whose links carry atomics
_MOST_PUTS = 8  # programs: a NIC takes no more requests by being asked by more of them
FUNCTIONS = {Kind.GATHER: "all_gather", Kind.SCATTER: "reduce_scatter", Kind.REDUCE: "all_reduce"}


def collective(
    relation: Relation, source: str, dtype: str, free_sms: int, topology: Topology
) -> LibraryCollective | PacketCollective:
    """The launch that makes `relation` of the buffer `source`; one that moves packets takes as many of the free SMs as it has
    blocks to move, and shares them among several programs if there are more. Raises Illegal."""
    if relation.kind is Kind.GATHER and relation.summed:
        raise Illegal("a gather adds nothing")
    function = FUNCTIONS[relation.kind]
    if not relation.by_packets:
        return LibraryCollective(function, relation.name, source)
    packets = packets_sent(relation, dtype)
    block = _BLOCK // relation.how.protocol.threads
    blocks = blocks_of_packets(relation, dtype, block)
    if free_sms < (needed := min(topology.num_nodes, 2)):  # of several nodes, a program that puts and one that hands on
        raise Illegal(
            f"packets of {relation.name} need free SMs: {needed}; other communication leaves {max(free_sms, 0)}"
        )
    if topology.num_nodes > 1:
        puts = min(_MOST_PUTS, -(-rail_packets(packets, relation.how.protocol) // PUT_BLOCK), free_sms - 1)
        programs = min(free_sms - puts, blocks)
        packed = PacketCollective(
            function, relation.name, source, packets, programs, block, protocol=relation.how.protocol
        )
        local, at_once = topology.ranks_per_node, relation.how.multicast
        return replace(packed, per_node=local, puts=puts, put_block=PUT_BLOCK, multicast=at_once)
    per_sm = min(_MOST_PER_SM, -(-blocks // free_sms))
    programs = min(free_sms * per_sm, blocks)
    by = relation.how.protocol, relation.how.shots
    made = PacketCollective(function, relation.name, source, packets, programs, block, per_sm, *by)
    return replace(made, multicast=relation.how.multicast)


def gather_within(relation: Relation, source: str, dtype: str, kernel: Kernel) -> PacketCollective:
    """The same by all programs of `kernel`, before their tiles. Raises Illegal."""
    if kernel.comm or kernel.joined:
        raise Illegal(
            f"programs of {kernel.name} communicate or go on from other tiles, and {relation.name} comes first"
        )
    if relation.how.protocol is Protocol.LL128:
        raise Illegal(f"lines of {relation.name} are moved by a kernel of their own")
    packets, block = packets_sent(relation, dtype), WARP * kernel.warps  # threads, each of which moves one at a time
    shape = block_of_packets(relation.part, block, relation.how.protocol, DTYPE_BYTES[dtype])
    if packets_held(shape[-2:], relation.how.protocol, DTYPE_BYTES[dtype]) < block:
        raise Illegal(f"the {packets} packets of {relation.name} are fewer than the {block} threads of a program")
    by = relation.how.protocol, relation.how.shots, True
    return PacketCollective("all_gather", relation.name, source, packets, kernel.programs, block, kernel.per_sm, *by)


def side_by_side(launches: list[Launch], graph: TileGraph, sms: int) -> list[Launch]:
    """`launches`, in which gathers by packets that follow each other are one launch: as wide as the one with the fewest packets
    lets their programs be, as long as all blocks are on their way at once."""
    found = list[Launch]()
    for launch in launches:
        run = _run(found)
        if isinstance(launch, PacketCollective) and run and (joined := _in_one_launch([*run, launch], graph, sms)):
            found[-len(run) :] = joined
        else:
            found.append(launch)
    return found


def _run(launches: list[Launch]) -> list[PacketCollective]:
    """The last ones, as far as they are one launch of gathers."""
    run = list[PacketCollective]()
    for launch in reversed(launches):
        if not isinstance(launch, PacketCollective) or launch.within or launch.function != "all_gather":
            break
        run.insert(0, launch)
        if not launch.beside:
            return run
    return []


def _in_one_launch(run: list[PacketCollective], graph: TileGraph, sms: int) -> list[PacketCollective]:
    """Nothing where it cannot be: one gathers what another one has, or their blocks are too many."""
    *before, last = run
    lines = Protocol.LL128 in {one.protocol for one in run}
    if last.function != "all_gather" or last.within or lines or last.operand in {one.out for one in before}:
        return []

    def held(one: PacketCollective, block: int) -> int:
        """Packets of a block in registers, each by a thread of its own."""
        relation = graph.relation(one.out)
        assert relation is not None, "a collective has a relation"
        size = DTYPE_BYTES[graph.values[one.out].dtype]
        return packets_held(block_of_packets(relation.part, block, one.protocol, size)[-2:], one.protocol, size)

    block = max(WARP, min(_BLOCK, *(held(one, _BLOCK) for one in run)))
    if any(held(one, block) < block for one in run) and block > WARP:
        return []
    programs = [-(-one.packets // block) for one in run]
    puts = sum(one.puts for one in run)
    fits = (per_sm for per_sm in range(1, _MOST_PER_SM + 1) if puts + sum(-(-one // per_sm) for one in programs) <= sms)
    per_sm = next(fits, 0)
    if not per_sm:
        return []
    return [
        replace(one, programs=number, block=block, per_sm=per_sm, beside=place > 0)
        for place, (one, number) in enumerate(zip(run, programs, strict=True))
    ]


def moved_first(problem: Problem, exchanges: tuple[Exchange, ...], index: int, kernel: Kernel) -> list[MoveRows]:
    """Rows that programs of `kernel`, of group `index`, move before their tiles: those that it is the first to read. Raises
    Illegal."""
    structure, loops = problem.structure, dict(problem.choices.computes)
    listed = [one for one in exchanges if one.sent is not None]
    here = [one for one in listed if min(map(problem.host, structure.readers(one.name))) == index]
    for one in here:
        relation = structure.graph.relation(one.name)
        assert relation is not None, "it is of an exchange"
        if reason := why_not_in_order(structure, relation, one.mover, loops):
            raise Illegal(reason)
    found = [MoveRows(one.name) for one in here]
    moved = {one.exchange for one in found}
    if found and any(comm.exchange not in moved for comm in kernel.comm):
        raise Illegal(f"programs of {kernel.name} communicate, and rows of {found[0].exchange} are moved first")
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
    listed = [one.sent for one in exchanges if one.sent is not None]
    for one in (SortRows(routed, height, own_first) for (routed, height), own_first in made.items()):
        found.insert(_behind_ids(found, one.routed.ids), one)
    begins = sum(isinstance(launch, Begin) for launch in found)
    for sent in reversed(listed):
        if isinstance(sent, Placed):
            found.insert(_behind_ids(found, sent.routed.ids), ListPlaces(sent))
            continue
        if sent.pulled or sent.by_node:
            found.insert(_behind_ids(found, sent.every), ListRows(sent))
        if not sent.pulled:
            found.insert(begins, ListRows(sent, far=sent.by_node))
    return found


def _behind_ids(launches: list[Launch], ids: str) -> int:
    """Where ids are there: behind the call that gathers them, or behind other tables of the first ones."""
    there = [at for at, launch in enumerate(launches) if isinstance(launch, CollectiveCall) and launch.out == ids]
    first = next((at for at, launch in enumerate(launches) if not isinstance(launch, SortRows)), 0)
    behind = there[-1] + 1 if there else first
    while behind < len(launches) and isinstance(other := launches[behind], PacketCollective) and other.beside:
        behind += 1
    return behind
