"""How many arrivals complete a chunk: derived once from the role that counts, for tiles, programs and streams alike."""

from __future__ import annotations

import math

from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.enums import Protocol
from tilelink.ir.graph import Relation
from tilelink.ir.nodes import Axis, ComputeRole, Exchange
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import IfOwn, Notify, Step

_EMPTY_LINES = 0.125  # of the lines of a row, places that are left empty to have wider blocks


def chunk_arrivals(role: ComputeRole, step: Notify, exchange: Exchange, own_axes: tuple[str, ...]) -> list[int]:
    """Per chunk of a part, how many tiles of `role` touch it. `own_axes`: axes whose segment is the own one at `step`."""
    extent, per_segment = row_pieces(role, step, exchange, own_axes)
    tile = role.axis(step.rows).tile
    counts = []
    for chunk in range(exchange.chunks):
        first = chunk * exchange.chunk_rows
        last = min(first + exchange.chunk_rows, exchange.rows) - 1
        low = first // extent * per_segment + first % extent // tile
        high = last // extent * per_segment + last % extent // tile
        counts.append((high - low + 1) * other_tiles(role, step, own_axes))
    return counts


def row_pieces(role: ComputeRole, step: Notify, exchange: Exchange, own_axes: tuple[str, ...]) -> tuple[int, int]:
    """(rows, row tiles) of one piece of a part: the part itself, or a segment of it if rows are cut for another reason."""
    axis = role.axis(step.rows)
    local = step.rows == step.slot or step.rows in own_axes
    extent = exchange.rows if local else axis.extent
    return extent, -(-extent // axis.tile)


def in_one_chunk(axis: Axis, exchange: Exchange, *, local: bool, loads: bool = False) -> bool:
    """Whether each tile along the rows' axis lies in one chunk. `local`: positions count from the start of a part. `loads`: of
    all that a tile loads, not of what it stores."""
    if loads and axis.inwards and exchange.chunks > 1:
        return False
    whole = local or axis.segments == 1
    starts_even = whole or axis.extent % exchange.chunk_rows == 0 or exchange.chunk_rows % axis.extent == 0
    return exchange.chunks == 1 or (exchange.chunk_rows % axis.tile == 0 and starts_even)


def other_tiles(role: ComputeRole, step: Notify, own_axes: tuple[str, ...]) -> int:
    """Tiles along the written axes other than the rows' that lie in one part."""
    count = 1
    for axis in role.axes:
        if not axis.reduction and axis.name != step.rows:
            whole = axis.name == step.slot or axis.name in own_axes
            count *= axis.tiles * (1 if whole else axis.segments)
    return count


def source_arrivals(schedule: Schedule, exchange: Exchange) -> list[int]:
    """Per chunk, what its count reaches: the tiles that write to it, or 1 for a library call."""
    found = counting_step(schedule, exchange)
    return [1] * exchange.chunks if found is None else chunk_arrivals(found[0], found[1], exchange, found[2])


def counting_step(schedule: Schedule, exchange: Exchange) -> tuple[ComputeRole, Notify, tuple[str, ...]] | None:
    """The role and the step that count tiles of the source, and the axes whose segment is the own one there."""
    for kernel in schedule.kernels():
        role = kernel.compute
        found = _find_notify(role.body, exchange.name, ()) if role is not None else None
        if found is not None and role is not None:
            return role, *found
    return None


def _find_notify(
    steps: tuple[Step, ...], exchange: str, own_axes: tuple[str, ...]
) -> tuple[Notify, tuple[str, ...]] | None:
    for step in steps:
        match step:
            case Notify(exchange=name) if name == exchange:
                return step, own_axes
            case IfOwn(axis, own, others):
                found = _find_notify(own, exchange, (axis,)) or _find_notify(others, exchange, own_axes)
                if found is not None:
                    return found
    return None


def packets_sent(relation: Relation, dtype: str) -> int:
    """Packets in what a rank sends to a peer, in each shot."""
    assert relation.by_packets, "packets have a protocol"
    shares = relation.num_ranks if relation.how.shots > 1 else 1
    size = DTYPE_BYTES[dtype]
    if relation.how.protocol is Protocol.LL128:
        return -(-lines_of(relation.part, size) // shares)
    return math.prod(relation.part) * size // relation.how.protocol.data_bytes // shares


def lines_of(shape: tuple[int, ...], element_bytes: int) -> int:
    """Lines that a tensor takes: each of its rows is in whole ones."""
    *rows, cols = shape
    return math.prod(rows) * -(-cols * element_bytes // Protocol.LL128.data_bytes)


def block_of_packets(shape: tuple[int, ...], packets: int, protocol: Protocol, element_bytes: int) -> tuple[int, ...]:
    """Of a block of at most so many packets of a tensor. The last line of a row may stick out of it; blocks are as wide as they
    can be without many places for lines that do not exist."""
    each = protocol.data_bytes // element_bytes
    if protocol is not Protocol.LL128:
        return block_shape(shape, packets * each)
    lines = -(-shape[-1] // each)
    widths = [1 << bits for bits in range(min(packets, lines).bit_length())]
    places = {width: -(-lines // width) * width for width in widths}
    wide = max(width for width in widths if places[width] <= (1 + _EMPTY_LINES) * lines)
    *rows, lines = block_shape((*shape[:-1], wide), packets)
    return (*rows, lines * each)


def blocks_of_packets(relation: Relation, dtype: str, packets: int) -> int:
    """How many blocks of so many packets a rank sends to a peer in each shot."""
    protocol, size = relation.how.protocol, DTYPE_BYTES[dtype]
    if protocol is not Protocol.LL128:
        return -(-packets_sent(relation, dtype) // packets)
    along = zip(relation.part, block_of_packets(relation.part, packets, protocol, size), strict=True)
    found = math.prod(-(-extent // block) for extent, block in along)
    return -(-found // (relation.num_ranks if relation.how.shots > 1 else 1))


def packets_held(block: tuple[int, ...], protocol: Protocol, element_bytes: int) -> int:
    """Packets that registers hold for a block of at most two dimensions."""
    each = protocol.data_bytes // element_bytes
    if protocol is not Protocol.LL128:
        return in_registers(block) // each
    return in_registers((*block[:-1], -(-block[-1] // each)))


def block_shape(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Of a block of at most so many elements of a tensor: whole rows, or a part of one. Registers hold powers of two."""
    sizes = list[int]()
    for place, size in enumerate(reversed(shape)):
        sizes.insert(0, min(most, size) if place < 2 else 1)
        most = max(most >> (sizes[0] - 1).bit_length(), 1)
    return tuple(sizes)


def in_registers(block: tuple[int, ...]) -> int:
    """Elements that registers hold for a block."""
    return math.prod(1 << (size - 1).bit_length() for size in block)
