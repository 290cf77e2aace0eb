"""Steps of an all_gather in packets across nodes: along rails first, then inside of nodes.

    packs its block, puts it to its rails      the rank of the same place on each other node: packets tell by themselves
    stores its block at the ranks beside it
    takes blocks of its rails as they come     and stores them at the ranks beside it
    takes all other blocks

What is put is read by a network card, so that it lies here in packets, too. It is stored to again two calls later: a rank
comes to that call only when packets of each rail have come in the next one, and so those of this one have been read there.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.elaborate.packets import PEER, STEP, Blocks
from tilelink.ir.calls import PacketCollective
from tilelink.ir.schedule import Schedule
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import For, Load, Move, Step, Store

OWNER = Index("owner")
_FEW = 8  # other nodes, for which loops are unrolled


def blocks_to_put(schedule: Schedule, launch: PacketCollective) -> Blocks:
    """Whole rows, or parts of one, so that a put is one run of packets."""
    return Blocks(schedule, replace(launch, block=launch.put_block), "PUT_BLOCK")


def put(schedule: Schedule, launch: PacketCollective) -> Phase:
    """The own blocks to the rails."""
    blocks, packets = blocks_to_put(schedule, launch), _packets(launch)
    here = blocks.packets(packets, rank, None)
    there = Move((here,), (blocks.packets(packets, rank, None, PEER),))
    packed = Load("own", blocks.of(launch.operand, None)), Store("own", here)
    return blocks.phase("own blocks to the rails", *packed, _to_rails(schedule, launch, "peer", there))


def handed_on(schedule: Schedule, launch: PacketCollective) -> tuple[Phase, ...]:
    """Blocks to the ranks of the node, and from them."""
    blocks, packets, size = Blocks(schedule, launch), _packets(launch), launch.per_node

    def kept(value: str, owner: Number) -> Store:
        return Store(value, blocks.of(launch.out, owner))

    def beside(value: str, owner: Number) -> tuple[Step, ...]:
        there = Store(value, blocks.packets(packets, owner, None, PEER))
        return _beside(launch, "peer", rank // size, there)

    def taken(owner: Number) -> tuple[Step, ...]:
        return Load("come", blocks.packets(packets, owner, None)), kept("come", owner)

    own = Load("own", blocks.of(launch.operand, None)), *beside("own", rank), kept("own", rank)
    come = _to_rails(schedule, launch, "owner", *taken(OWNER), *beside("come", OWNER))
    found = [blocks.phase("own blocks to the ranks of the node", *own)]
    found.append(blocks.phase("blocks of the rails, to the ranks of the node", come))
    if size > 1:
        nodes = schedule.num_ranks // size
        node = For(
            "away", nodes, _beside(launch, "owner", Index("node"), *taken(OWNER)), (("node", _turned(nodes, 0, size)),)
        )
        found.append(blocks.phase("blocks of all other ranks", node))
    return tuple(found)


def _packets(launch: PacketCollective) -> str:
    return f"{launch.out}_packets"


def _turned(nodes: int, first: int, size: int) -> Number:
    """The node that is `away` and `first` more nodes behind the own one."""
    return (rank // size + first + Index("away")) % nodes


def _to_rails(schedule: Schedule, launch: PacketCollective, name: str, *body: Step) -> For:
    """`name`: the rank of the same place on each other node."""
    size = launch.per_node
    nodes = schedule.num_ranks // size
    let = ((name, _turned(nodes, 1, size) * size + rank % size),)
    return For("away", nodes - 1, body, let, unrolled=nodes <= _FEW)


def _beside(launch: PacketCollective, name: str, node: Number, *body: Step) -> tuple[Step, ...]:
    """`name`: each rank of `node` that has another place than this one."""
    size = launch.per_node
    let = ((name, node * size + (rank % size + 1 + STEP) % size),)
    return (For("step", size - 1, body, let, unrolled=True),) if size > 1 else ()
