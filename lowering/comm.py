"""Communication role -> Triton: programs that move the chunks of an exchange beside the compute programs."""

from __future__ import annotations

from lowering.names import TRITON, element_bytes
from lowering.operands import TileScope
from lowering.signalling import chunk_tiles, slot_of, word
from lowering.source import Source
from lowering.tiles import rank_at
from tilelink.ir.nodes import Axis, CommRole, ComputeRole, Exchange, Kernel, Kind, Transfer
from tilelink.ir.order import Nest, RankOrder, TileOrder
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import IfOwn, Notify, Step

_BLOCK_BYTES = 16384  # per step of a program: 16 bytes a thread, several in flight


def comm_loop(schedule: Schedule, role: CommRole, body: Source) -> list[str]:
    """Print the loop over (peer, chunk) into `body`; returns the parameters that it needs."""
    exchange = schedule.exchange(role.exchange)
    scope = TileScope(schedule, _no_tiles(role))
    scope.need("rank", "call")
    peers = f"for step in range({schedule.num_ranks - 1}):"
    chunks = f"for chunk in range({exchange.chunks}):"
    outer, inner = (peers, chunks) if exchange.order.nest is Nest.RANK_MAJOR else (chunks, peers)
    with body.block(outer), body.block(inner):
        # chunk by chunk, every program starts with another peer: all links are used at once
        step = "step" if exchange.order.nest is Nest.RANK_MAJOR else f"(step + program) % {schedule.num_ranks - 1}"
        body.line(f"peer = {rank_at(exchange.order.ranks, step)}")
        _print_move(body, scope, exchange, role)
    return list(scope.parameters)


def _no_tiles(role: CommRole) -> ComputeRole:
    """A scope wants a role; this one has no tiles."""
    order = RankOrder(1, 1, 0)
    return ComputeRole(role.exchange, role.programs, (), TileOrder("", "", order, order, Nest.RANK_MAJOR, 1), ())


def _print_move(out: Source, scope: TileScope, exchange: Exchange, role: CommRole) -> None:
    """Wait for the source, copy a share of the chunk, count it; the last share of a push raises the signal there."""
    schedule, name = scope.schedule, exchange.name
    push, scatter = exchange.transfer is Transfer.PUSH, exchange.kind is Kind.SCATTER
    buffer = schedule.buffer(exchange.source)
    dtype, part = TRITON[buffer.dtype], exchange.rows * exchange.cols
    if push and schedule.has_signal(f"{name}_count"):
        place = word(scope, f"{name}_count", slot_of(exchange, "peer" if scatter else "0", "chunk"))
        out.line(f"wait_count({place}, {_tiles(schedule, exchange)})")
    if not push:
        out.line(f"wait_epoch({word(scope, f'{name}_ready', slot_of(exchange, 'peer', 'chunk'))}, call)")
    first = f"chunk * {exchange.chunk_rows * exchange.cols}"
    here, there = _ends(scope, exchange)
    if push:
        out.line(f"source = {here}{f' + peer * {part}' if scatter else ''} + {first}")
        out.line(f"target = on_peer({there}, peer, {dtype}) + rank * {part} + {first}")
    else:
        out.line(f"source = on_peer({there}, peer, {dtype}){f' + rank * {part}' if scatter else ''} + {first}")
        out.line(f"target = {here} + peer * {part} + {first}")
    size = str(exchange.chunk_rows * exchange.cols)
    if exchange.rows % exchange.chunk_rows:
        size = f"tl.minimum({size}, {part} - {first})"
    block = _BLOCK_BYTES // element_bytes(buffer.dtype)
    out.line(f"copy_share(target, source, {size}, program, {role.programs}, {block})")
    if push:
        place = word(scope, f"{name}_sent", slot_of(exchange, "peer", "chunk"))
        arrived = schedule.signal(f"{name}_arrived")
        scope.need("signal_peers")
        with out.block(f"if count_arrival({place}) == {role.programs} - 1:"):
            slot = slot_of(exchange, "rank", "chunk")
            out.line(f"notify(on_peer(signal_peers, peer, tl.int32) + {arrived.first} + {slot}, call)")
    else:
        out.line(f"count_arrival({word(scope, f'{name}_arrived', slot_of(exchange, 'peer', 'chunk'))})")


def _ends(scope: TileScope, exchange: Exchange) -> tuple[str, str]:
    """(local pointer, table of peer addresses)."""
    local, remote = exchange.source, exchange.target
    if exchange.transfer is Transfer.PULL:
        local, remote = remote, local
    scope.need(f"{local}_ptr", f"{remote}_peers")
    return f"{local}_ptr", f"{remote}_peers"


def _tiles(schedule: Schedule, exchange: Exchange) -> str:
    """Expression for the number of tiles that complete chunk `chunk`."""
    counts = source_tiles(schedule, exchange)
    if len(set(counts)) == 1:
        return str(counts[0])
    text = str(counts[-1])
    for chunk in reversed(range(len(counts) - 1)):
        text = f"tl.where(chunk == {chunk}, {counts[chunk]}, {text})"
    return text


def source_tiles(schedule: Schedule, exchange: Exchange) -> list[int]:
    """Per chunk, how many arrivals its count reaches: tiles that write to it, or 1 for a library call."""
    for kernel in schedule.kernels():
        found = _find_notify(kernel, exchange.name)
        if found is not None and kernel.compute is not None:
            step, own_axes = found
            return [tiles_of(kernel.compute, step, exchange, chunk, own_axes) for chunk in range(exchange.chunks)]
    return [1] * exchange.chunks


def tiles_of(role: ComputeRole, step: Notify, exchange: Exchange, chunk: int, own_axes: tuple[str, ...]) -> int:
    own = step.rows in own_axes
    count = chunk_tiles(role.axis(step.rows), step, exchange, chunk, own)
    for axis in _others(role, step):
        whole = axis.name == step.slot or axis.name in own_axes
        count *= axis.tiles * (1 if whole else axis.segments)
    return count


def _others(role: ComputeRole, step: Notify) -> list[Axis]:
    return [axis for axis in role.axes if not axis.reduction and axis.name != step.rows]


def _find_notify(kernel: Kernel, exchange: str) -> tuple[Notify, tuple[str, ...]] | None:
    def search(steps: tuple[Step, ...], own: tuple[str, ...]) -> tuple[Notify, tuple[str, ...]] | None:
        for step in steps:
            match step:
                case Notify(exchange=name) if name == exchange:
                    return step, own
                case IfOwn(axis, mine, others):
                    found = search(mine, (axis,)) or search(others, own)
                    if found is not None:
                        return found
        return None

    return search(kernel.compute.body, ()) if kernel.compute is not None else None
