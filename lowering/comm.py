"""Communication role -> Triton: programs that move the chunks of an exchange beside the compute programs."""

from __future__ import annotations

from lowering.dialect import Dialect
from lowering.names import TRITON, element, element_bytes, is_wide, pointer
from lowering.numbers import Numbers
from lowering.operands import LoopScope
from lowering.positions import rank_at
from lowering.signalling import slot_of, take, word
from lowering.slots import neighbour, print_slot_notify, print_slot_wait, print_use
from lowering.source import Source
from tilelink.ir.nodes import CommRole, Exchange, Kind, Transfer
from tilelink.ir.order import Nest
from tilelink.ir.schedule import Schedule

_BLOCK_BYTES = 32768  # per step of a program: loads of so many are in flight at once, then stores


def comm_loop(schedule: Schedule, dialect: Dialect, numbers: Numbers, role: CommRole, body: Source) -> list[str]:
    """Print the loop over (peer, chunk) into `body`; returns the parameters that it needs."""
    exchange = schedule.exchange(role.exchange)
    scope = LoopScope(schedule, dialect, numbers)
    scope.need("rank", "call")
    if exchange.slots:
        _print_items(body, scope, exchange, role)
        return list(scope.parameters)
    ranks = numbers.ranks()
    peers = f"for step in range({ranks} - 1):"
    chunks = f"for chunk in range({numbers.chunks(exchange)}):"
    outer, inner = (peers, chunks) if exchange.order.nest is Nest.RANK_MAJOR else (chunks, peers)
    with body.block(outer), body.block(inner):
        # chunk by chunk, every program starts with another peer: all links are used at once
        step = "step" if exchange.order.nest is Nest.RANK_MAJOR else f"(step + program) % ({ranks} - 1)"
        body.line(f"peer = {rank_at(exchange.order.ranks, step, ranks)}")
        _print_move(body, scope, exchange, role)
    return list(scope.parameters)


def _print_items(out: Source, scope: LoopScope, exchange: Exchange, role: CommRole) -> None:
    """Items in turn, each by one program: wait for its slot at the peer, store it there, tell the peer."""
    dtype, size = scope.dtype(exchange.source), exchange.chunk_rows * exchange.cols
    part = exchange.rows * exchange.cols
    block = min(_BLOCK_BYTES // element_bytes(dtype), 1 << (size - 1).bit_length())
    peers = scope.dialect.peers(exchange.target)
    scope.need(pointer(exchange.source), peers)
    numbers = scope.numbers
    chunk, items = numbers.chunk_elements(exchange), numbers.chunks(exchange)
    out.line(f"peer = {neighbour(scope, exchange.by)}")
    with out.block(f"for item in range(program, {items}, {numbers.movers(exchange, role.programs)}):"):
        print_use(out, scope, exchange, "item")
        for wait in role.before:
            print_slot_wait(out, scope, wait, peers)
        there = scope.dialect.at_peer(scope.taken(peers), "peer", TRITON[dtype])
        out.line(f"source = {pointer(exchange.source)} + {element('item', chunk, part + block)}")
        out.line(f"target = {there} + {element('slot', chunk, exchange.slots * size)}")
        length = _length(scope, exchange, "item", block)
        out.call("copy_share(", ["target", "source", length, "0", "1", numbers.block(exchange, block)])
        for notify in role.after:
            print_slot_notify(out, scope, notify, "peer")


def _print_move(out: Source, scope: LoopScope, exchange: Exchange, role: CommRole) -> None:
    """Wait for the source, copy a share of the chunk, count it; the last share of a push raises the signal there."""
    schedule, name = scope.schedule, exchange.name
    push, scatter = exchange.transfer is Transfer.PUSH, exchange.kind is Kind.SCATTER
    buffer = schedule.buffer(exchange.source)
    dtype, part = TRITON[buffer.dtype], exchange.rows * exchange.cols
    if push and schedule.has_signal(f"{name}_count"):
        place = word(scope, f"{name}_count", slot_of(scope, exchange, "peer" if scatter else "0", "chunk"))
        take(out, scope, pointer(exchange.source), [f"wait_count({place}, {_tiles(scope, exchange)})"])
    if not push:
        ready = word(scope, f"{name}_ready", slot_of(scope, exchange, "peer", "chunk"))
        take(out, scope, scope.dialect.peers(exchange.source), [f"wait_epoch({ready}, call)"])
    block = _BLOCK_BYTES // element_bytes(buffer.dtype)
    numbers, programs = scope.numbers, scope.numbers.movers(exchange, role.programs)
    first = element("chunk", numbers.chunk_elements(exchange), part + role.programs * block)
    parts, size = numbers.part_elements(exchange), schedule.num_ranks * part
    of_peer, of_rank = (element(rank, parts, size) for rank in ("peer", "rank"))
    here, there = _ends(scope, exchange)
    at_peer = scope.dialect.at_peer(there, "peer", dtype)
    if push:
        out.line(f"source = {here}{f' + {of_peer}' if scatter else ''} + {first}")
        out.line(f"target = {at_peer} + {of_rank} + {first}")
    else:
        out.line(f"source = {at_peer}{f' + {of_rank}' if scatter else ''} + {first}")
        out.line(f"target = {here} + {of_peer} + {first}")
    scope.awaited.clear()
    length = _length(scope, exchange, "chunk", role.programs * block)
    out.call("copy_share(", ["target", "source", length, "program", programs, numbers.block(exchange, block)])
    if push:
        place = word(scope, f"{name}_sent", slot_of(scope, exchange, "peer", "chunk"))
        arrived = schedule.signal(f"{name}_arrived")
        scope.need(scope.dialect.peer_words)
        with out.block(f"if count_arrival({place}) == {programs} - 1:"):
            slot = slot_of(scope, exchange, "rank", "chunk")
            out.line(scope.dialect.notify("peer", f"{numbers.word(arrived)} + {slot}"))
    else:
        out.line(f"count_arrival({word(scope, f'{name}_arrived', slot_of(scope, exchange, 'peer', 'chunk'))})")


def _length(scope: LoopScope, exchange: Exchange, chunk: str, step: int) -> str:
    """Expression for the number of elements of chunk `chunk`, in 64 bits where a loop over it in steps of `step` needs them:
    it counts up to one step more."""
    size, part = exchange.chunk_rows * exchange.cols, exchange.rows * exchange.cols
    name = scope.numbers.chunk_elements(exchange)
    if exchange.rows % exchange.chunk_rows:
        return f"tl.minimum({name}, {scope.numbers.part_elements(exchange)} - {element(chunk, name, part + step)})"
    return f"tl.cast({name}, tl.int64)" if is_wide(size + step) else name


def _ends(scope: LoopScope, exchange: Exchange) -> tuple[str, str]:
    """(local pointer, parameter through which peers are reached)."""
    local, remote = exchange.source, exchange.target
    if exchange.transfer is Transfer.PULL:
        local, remote = remote, local
    parameters = pointer(local), scope.dialect.peers(remote)
    scope.need(*parameters)
    return scope.taken(parameters[0]), scope.taken(parameters[1])


def _tiles(scope: LoopScope, exchange: Exchange) -> str:
    """Expression for the number of tiles that complete chunk `chunk`."""
    numbers = scope.numbers.source_arrivals(exchange)
    text = numbers[-1]
    for chunk in reversed(range(len(numbers) - 1)):
        text = f"tl.where(chunk == {chunk}, {numbers[chunk]}, {text})"
    return text
