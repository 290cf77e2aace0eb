"""Steps of an all_gather in packets across nodes: along rails first, then inside of nodes.

    packs its block, puts it to its rails      the rank of the same place on each other node: packets tell by themselves
    stores its block at the ranks beside it
    takes blocks of its rails as they come     and stores them at the ranks beside it
    takes all other blocks

What is put is read by a network card, so that it lies here in packets, too. It is stored to again two calls later: a rank
comes to that call only when packets of each rail have come in the next one, and so those of this one have been read there.

A network brings words of 8 bytes whole, and none to all ranks at once. Lines, and packets that go to all ranks of a node by
one store, therefore have a buffer of their own; what rails bring lies in `_rails`, in packets of LL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelink.elaborate.packets import PEER, STEP, Blocks
from tilelink.ir.calls import PacketCollective
from tilelink.ir.enums import Protocol
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.memory import Buffer, Memory
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import For, Load, Move, Step, Store

OWNER = Index("owner")
_FEW = 8  # other nodes, for which loops are unrolled


def blocks_to_put(schedule: Schedule, launch: PacketCollective) -> Blocks:
    """Whole rows, or parts of one, so that a put is one run of packets."""
    return Blocks(schedule, replace(launch, block=launch.put_block, protocol=Protocol.LL), "PUT_BLOCK")


def apart(launch: PacketCollective) -> bool:
    """Whether what is stored inside of a node is not what rails bring."""
    return launch.protocol is not Protocol.LL or launch.multicast


def buffers(schedule: Schedule, launch: PacketCollective) -> Iterator[Buffer]:
    """What rails bring, where that is not what ranks of a node store."""
    if launch.per_node and apart(launch):
        shape = (2, schedule.num_ranks, *blocks_to_put(schedule, launch).part_shape)
        yield Buffer(_rails(launch), Memory.SYMMETRIC, shape, schedule.buffer(launch.out).dtype, Protocol.LL)


def put(schedule: Schedule, launch: PacketCollective) -> Phase:
    """The own blocks to the rails."""
    blocks, rails = blocks_to_put(schedule, launch), _rails(launch)
    here = blocks.packets(rails, rank, None)
    there = Move((here,), (blocks.packets(rails, rank, None, PEER),))
    packed = Load("own", blocks.of(launch.operand, None)), Store("own", here)
    return blocks.phase("own blocks to the rails", *packed, _to_rails(schedule, launch, "peer", there))


def handed_on(schedule: Schedule, launch: PacketCollective) -> tuple[Phase, ...]:
    """Blocks to the ranks of the node, and from them. By one store they go to the own rank, too, which takes them like others."""
    blocks, size, at_once = Blocks(schedule, launch), launch.per_node, launch.multicast
    packets = f"{launch.out}_packets"

    def kept(value: str, owner: Number) -> tuple[Step, ...]:
        return () if at_once else (Store(value, blocks.of(launch.out, owner)),)

    def beside(value: str, owner: Number) -> tuple[Step, ...]:
        there = Store(value, blocks.packets(packets, owner, None, PEER))
        return _beside(launch, "peer", rank // size, there, multicast=at_once)

    own = Load("own", blocks.of(launch.operand, None)), *beside("own", rank), *kept("own", rank)
    taken = Load("come", blocks.packets(_rails(launch), OWNER, None))
    come = _to_rails(schedule, launch, "owner", taken, *kept("come", OWNER), *beside("come", OWNER))
    found = [blocks.phase("own blocks to the ranks of the node", *own)]
    found.append(blocks.phase("blocks of the rails, to the ranks of the node", come))
    if size > 1:
        nodes = schedule.num_ranks // size
        others = Load("come", blocks.packets(packets, OWNER, None)), Store("come", blocks.of(launch.out, OWNER))
        of_node = _beside(launch, "owner", Index("node"), *others, own=at_once)
        node = For("away", nodes, of_node, (("node", _turned(nodes, 0, size)),))
        found.append(blocks.phase("blocks of all other ranks", node))
    return tuple(found)


def _rails(launch: PacketCollective) -> str:
    return f"{launch.out}_rails" if apart(launch) else f"{launch.out}_packets"


def _turned(nodes: int, first: int, size: int) -> Number:
    """The node that is `away` and `first` more nodes behind the own one."""
    return (rank // size + first + Index("away")) % nodes


def _to_rails(schedule: Schedule, launch: PacketCollective, name: str, *body: Step) -> For:
    """`name`: the rank of the same place on each other node."""
    size = launch.per_node
    nodes = schedule.num_ranks // size
    let = ((name, _turned(nodes, 1, size) * size + rank % size),)
    return For("away", nodes - 1, body, let, unrolled=nodes <= _FEW)


def _beside(
    launch: PacketCollective, name: str, node: Number, *body: Step, multicast: bool = False, own: bool = False
) -> tuple[Step, ...]:
    """`name`: each rank of `node` that has another place than this one; with the `own` place, last. By `multicast` all of them
    at once."""
    size = launch.per_node
    first, count = 0 if multicast else 1, size if multicast or own else size - 1
    let = ((name, node * size + (rank % size + first + STEP) % size),)
    return (For("step", count, body, let, unrolled=True, multicast=multicast),) if count else ()
