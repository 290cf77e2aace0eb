"""Steps of what libraries compute and carry out: whole operations, matmuls chunk by chunk, attention part by part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tilelink.elaborate import signals
from tilelink.elaborate.positions import TILE, rank_at
from tilelink.elaborate.regions import chunk_rows, part, whole_region
from tilelink.ir.calls import CollectiveCall, LibraryOp
from tilelink.ir.nodes import Exchange
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import Attend, Matmul
from tilelink.ir.steps import Operand
from tilelink.schedule.index import Index, Number, call, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.names import FunctionName
from tilelink.schedule.roles import Host, Phase, Role
from tilelink.schedule.steps import (
    ATTENTION,
    CAUSAL_ATTENTION,
    MERGED_ATTENTION,
    Call,
    For,
    If,
    Notify,
    Step,
    Wait,
)

CHUNK = Index("chunk")


def library_op(schedule: Schedule, launch: LibraryOp) -> Role:
    """One call; or of a matmul one for each (part, chunk), behind the wait for it, before it is counted; or of attention one for
    each part."""
    exchanges = [schedule.exchange(name) for name in launch.split]
    match launch.how:
        case Matmul() if exchanges:
            phase = _by_chunks(schedule, launch, exchanges[0])
        case Attend() as how if exchanges:
            phase = _by_parts(schedule, launch, how, exchanges)
        case how:
            phase = Phase(1, (_call(schedule, launch, how),))
    return Role(launch.out.buffer, Host(), (phase,))


def _by_parts(schedule: Schedule, launch: LibraryOp, how: Attend, exchanges: list[Exchange]) -> Phase:
    """Attention over the own keys, then over each other part, which is merged into what there is: parts of a mask come in the
    order of ranks downwards, so that each rank ends with the first one."""
    segment, ranks = Index("owner"), schedule.num_ranks
    out, logs = _whole(schedule, launch.out), whole_region(schedule, launch.logs)
    queries, *given = launch.operands
    sizes: tuple[Number, ...] = (how.sequences, how.width)

    def keys(own: bool) -> Iterator[Region]:
        yield _whole(schedule, queries)
        for operand, exchange in zip(given, exchanges, strict=True):
            box: list[Number] = [exchange.rows, exchange.cols]
            alone = own and operand.own
            yield part(schedule, operand.own if alone else operand.buffer, None if alone else segment, [0, 0], box)

    def called(function: FunctionName, operands: Iterable[Region], *first: Number) -> Call:
        return Call(function, (out, logs), tuple(operands), numbers=(*sizes, *first), scale=how.scale)

    own = called(CAUSAL_ATTENTION, keys(True), 0) if how.causal else called(ATTENTION, keys(True))
    waits = list[Step]()
    for exchange in exchanges:
        word, until = signals.awaited(schedule, exchange)
        if exchange.chunks == 1:
            waits.append(Wait(word, (segment, 0), until))
        else:
            waits.append(For(CHUNK.op, exchange.chunks, (Wait(word, (segment, CHUNK), until),)))
    theirs = (*waits, called(MERGED_ATTENTION, (*keys(False), out, logs)))
    body: tuple[Step, ...] = (If(segment, rank, (own,), theirs),)
    if not how.causal:
        return Phase(ranks, body, ((segment.op, rank_at(launch.order, TILE)),))
    return Phase(ranks, (If(Index("max", (segment - rank, 0)), 0, body),), ((segment.op, ranks - 1 - TILE),))


def _call(schedule: Schedule, launch: LibraryOp, how: Matmul | Attend) -> Call:
    """All of it. With a causal mask attention is told which of the keys the first query is of."""
    out, operands = _whole(schedule, launch.out), tuple(_whole(schedule, one) for one in launch.operands)
    if isinstance(how, Matmul):
        own = (whole_region(schedule, one.own) for one in launch.operands[:1] if one.own)
        return Call(_product(how), (out,), (*operands, *own))
    sizes: tuple[Number, ...] = (how.sequences, how.width)
    if how.causal:
        sizes += (rank * (operands[0].extent[0] // how.sequences) if how.apart else 0,)
    logs = (whole_region(schedule, launch.logs),) if launch.logs else ()
    return Call(CAUSAL_ATTENTION if how.causal else ATTENTION, (out, *logs), operands, numbers=sizes, scale=how.scale)


def _product(how: Matmul) -> FunctionName:
    return "matmul_transposed" if how.transposed else "matmul"


def _by_chunks(schedule: Schedule, launch: LibraryOp, exchange: Exchange) -> Phase:
    """A matmul for each (part, chunk) of the exchange."""
    assert isinstance(launch.how, Matmul), "nothing else is computed chunk by chunk"
    left, right = launch.operands[0], _whole(schedule, launch.operands[1])
    function, segment = _product(launch.how), Index("owner")
    first, rows = chunk_rows(exchange, CHUNK)

    def rows_of(operand: Operand, buffer: str, number: Number | None) -> Region:
        """Those of a chunk, and all columns that are read."""
        shape = schedule.buffer(buffer).shape
        row, (col, end) = (operand.first[0], operand.window[1]) if operand.window else (0, (0, shape[-1]))
        if number is None or len(shape) == 3:
            return part(schedule, buffer, number, [row + first, col], [rows, end - col])
        return part(schedule, buffer, None, [row + number * exchange.rows + first, col], [rows, end - col])

    out = rows_of(launch.out, launch.out.buffer, segment)
    there = Call(function, (out,), (rows_of(left, left.buffer, segment), right))
    multiply: tuple[Step, ...] = (there,)
    if left.own:
        own = Call(function, (out,), (rows_of(left, left.own, None), right))
        multiply = (If(segment, rank, (own,), (there,)),)
    waits: tuple[Step, ...] = ()
    if launch.wait is not None:
        word, until = signals.awaited(schedule, exchange)
        waits = (If(segment, rank, (), (Wait(word, (segment, CHUNK), until),)),)
    counted = (Notify(signals.counted(exchange.name), (segment, CHUNK), rank, call),) if launch.counted else ()
    let = ((segment.op, rank_at(launch.order, TILE // exchange.chunks)), ("chunk", TILE % exchange.chunks))
    return Phase(schedule.num_ranks * exchange.chunks, (*waits, *multiply, *counted), let)


def _whole(schedule: Schedule, operand: Operand) -> Region:
    """All of the operand that is read: of the whole buffer, or of a window in it."""
    whole = whole_region(schedule, operand.buffer)
    if not operand.window:
        return whole
    lead = len(whole.start) - len(operand.window)
    ends = tuple(end - first for first, end in operand.window)
    return replace(whole, start=(*whole.start[:lead], *operand.first), extent=(*whole.extent[:lead], *ends))


def library_collective(schedule: Schedule, launch: CollectiveCall) -> Role:
    """By the library: its own ranks meet in it, and it reads and writes the memory of its own rank as far as this tells."""
    regions = (whole_region(schedule, launch.out),), (whole_region(schedule, launch.operand),)
    return Role(launch.out, Host(), (Phase(1, (Call(launch.function, *regions),)),))
