"""Spelling of waits and notifies inside a tile: which words a tile waits for, and which it counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lowering.names import pointer
from lowering.operands import LoopScope, TileScope
from lowering.source import Source
from tilelink.ir.counting import row_pieces
from tilelink.ir.nodes import Axis, CommSms, Exchange, Scope
from tilelink.ir.steps import (
    Access,
    AwaitPlaces,
    MatmulBody,
    Notify,
    Place,
    SlotWait,
    Step,
    SumParts,
    Wait,
)
from tilelink.ir.walk import flat, reads


def waits_in(steps: Iterable[Step]) -> bool:
    """Whether one of `steps` waits for a signal, by itself or in a branch: what is loaded behind it must not be loaded sooner."""
    return any(
        isinstance(step, Wait | SlotWait | AwaitPlaces)
        or (isinstance(step, MatmulBody) and bool(step.waits))
        or (isinstance(step, SumParts) and step.wait is not None)
        for step in flat(tuple(steps))
    )


def word(scope: LoopScope, name: str, slot: str) -> str:
    """Address of slot `slot` of signal `name` on this rank."""
    signal = scope.schedule.signal(name)
    words = "counts" if signal.scope is Scope.LOCAL else "signals"
    scope.need(words)
    first = scope.numbers.word(signal) if signal.first else "0"
    return " + ".join([words, *(part for part in (first, slot) if part != "0")])


def slot_of(scope: LoopScope, exchange: Exchange, part: str, chunk: str) -> str:
    """Index of (part, chunk) among the words of a signal."""
    if exchange.chunks == 1:
        return part
    return f"{part} * {scope.numbers.chunks(exchange)} + {chunk}" if part != "0" else chunk


def take(out: Source, scope: LoopScope, name: str, waits: list[str], *, declared: bool = False) -> None:
    """Print `waits`. Where they return tokens, a variable takes them that stands for the pointer or descriptor `name` in
    what follows; `declared`: it has been printed before, outside a branch or loop."""
    if not scope.dialect.tokens:
        for wait in waits:
            out.line(wait)
        return
    if not declared:
        declare(out, scope, name)
    for wait in waits:
        out.call(f"{scope.awaited[name]} = dl.consume_token(", [scope.awaited[name], wait])


def declare(out: Source, scope: LoopScope, name: str) -> None:
    """Print the variable that takes the tokens of waits for what `name` points to."""
    if scope.dialect.tokens:
        scope.awaited[name] = f"{name.removesuffix('_ptr').removesuffix('_desc')}_here"
        out.line(f"{scope.awaited[name]} = {name}")


def delivered(scope: TileScope, wait: Wait) -> str:
    """Pointer or descriptor through which the tile reads what the exchange brings; it becomes a parameter."""
    exchange = scope.schedule.exchange(wait.exchange)
    buffer = exchange.target or exchange.source
    for step in flat(scope.role.body):
        for operand, _ in reads(step):
            if operand.buffer != buffer:
                continue
            if operand.access is Access.DESCRIPTOR:
                return scope.descriptor(buffer, operand.index)
            name = scope.dialect.peers(buffer) if operand.remote else pointer(buffer)
            scope.need(name)
            return name
    raise AssertionError(f"{wait.signal} is awaited in a role that reads nothing of {buffer}")


def print_wait(out: Source, scope: TileScope, wait: Wait, *, in_loop: bool = False) -> None:
    """Wait for the chunks of the tile's part, or of all parts; the own part needs no waiting.

    `in_loop`: a loop over the parts of all peers is open already.
    """
    exchange = scope.schedule.exchange(wait.exchange)
    scope.need("rank")
    segment = f"{wait.slot}_segment"
    name = delivered(scope, wait) if scope.dialect.tokens else ""
    if name and scope.declared != name:
        declare(out, scope, name)

    def lines(chunk: str) -> list[str]:
        printed = Source()
        take(printed, scope, name, [_wait(scope, wait, exchange, segment, chunk)], declared=True)
        return printed.text().splitlines()

    if in_loop:
        _print_chunks(out, scope, exchange, wait.rows, wait.slot, lines)
    elif wait.every:
        with out.block(f"for {segment} in {scope.each(scope.numbers.ranks())}:"):
            _print_part_wait(out, scope, wait, exchange, lines)
    else:
        _print_part_wait(out, scope, wait, exchange, lines)


def print_peers_wait(out: Source, scope: TileScope, wait: Wait) -> None:
    """Wait for the chunks of the parts of all peers. Epochs are polled together, where no loads take tokens from them."""
    exchange, ranks = scope.schedule.exchange(wait.exchange), scope.numbers.ranks()
    scope.need("rank")
    if wait.target or scope.dialect.tokens:
        with out.block(f"for step in {scope.each(ranks, first=1)}:"):
            out.line(f"{wait.slot}_segment = (rank + step) % {ranks}")
            print_wait(out, scope, wait, in_loop=True)
        return
    scope.need("call")

    def lines(chunk: str) -> list[str]:
        place, stride = word(scope, wait.signal, slot_of(scope, exchange, "0", chunk)), scope.numbers.chunks(exchange)
        printed = Source()
        printed.call("wait_epochs(", [place, "call", "rank", f"STRIDE={stride}", f"NUM_RANKS={ranks}"])
        return printed.text().splitlines()

    _print_chunks(out, scope, exchange, wait.rows, wait.slot, lines)


def print_places_wait(out: Source, scope: TileScope, step: AwaitPlaces) -> None:
    """Wait until every rank has told the place of its output, and so has begun this call."""
    scope.need("call")
    words = word(scope, step.signal, "0")
    out.line(f"wait_places({words}, call, NUM_RANKS={scope.numbers.ranks()})")


def _print_part_wait(
    out: Source, scope: TileScope, wait: Wait, exchange: Exchange, lines: Callable[[str], list[str]]
) -> None:
    with out.maybe("" if wait.own else f"if {wait.slot}_segment != rank:"):
        _print_chunks(out, scope, exchange, wait.rows, wait.slot, lines)
        if wait.fence and not scope.dialect.tokens:  # a descriptor that takes a token is behind a fence
            out.line("fence_descriptors()")


def _wait(scope: TileScope, wait: Wait, exchange: Exchange, segment: str, chunk: str) -> str:
    place = word(scope, wait.signal, slot_of(scope, exchange, segment, chunk))
    if wait.target:
        moved = isinstance(exchange.mover, CommSms)  # by programs, each of which counts
        return f"wait_count({place}, {scope.numbers.movers(exchange, wait.target) if moved else wait.target})"
    scope.need("call")
    return f"wait_epoch({place}, call)"


def _print_chunks(
    out: Source, scope: TileScope, exchange: Exchange, rows: str, slot: str, lines: Callable[[str], list[str]]
) -> None:
    """For each chunk that the tile touches along `rows`: `lines(chunk)`."""
    if exchange.chunks == 1:
        for text in lines("0"):
            out.line(text)
        return
    if not rows:
        with out.block(f"for chunk in {scope.each(scope.numbers.chunks(exchange))}:"):
            for text in lines("chunk"):
                out.line(text)
        return
    axis, local = scope.axis(rows), rows == slot or rows in scope.own_axes
    first, end = row_span(scope, axis, local)
    size = scope.numbers.chunk_rows(exchange)
    if scope.numbers.in_one_chunk(scope.role, axis, exchange, local=local) and not _may_be_empty(scope, axis):
        row = first if first.isidentifier() else f"({first})"
        for text in lines(f"{row} // {size}"):
            out.line(text)
        return
    with out.block(f"for chunk in range(({first}) // {size}, ({end} - 1) // {size} + 1):"):
        for text in lines("chunk"):
            out.line(text)


def _may_be_empty(scope: TileScope, axis: Axis) -> bool:
    """Whether the tile may have no rows: the second half of a tile that ends behind its segment."""
    return scope.in_halves and axis.name == scope.role.order.minor and axis.extent % (2 * axis.tile) != 0


def row_span(scope: TileScope, axis: Axis, local: bool) -> tuple[str, str]:
    """First row of the tile and the end of it, in rows of a part."""
    name, tile, size = axis.name, scope.tile(axis.name), scope.numbers.size(scope.role, axis)
    base = "" if local or axis.segments == 1 else f"{name}_segment * {size} + "
    whole = axis.extent % axis.tile == 0 and not _may_be_empty(scope, axis)
    end = f"{name} + {tile}" if whole else f"tl.minimum({name} + {tile}, {size})"
    return f"{base}{name}", f"{base}{end}"


def print_notify(out: Source, scope: TileScope, step: Notify, tiles: str = "") -> None:
    """Count the tile for each chunk that it touches; the last tile of a chunk raises the signal, if there is one. `tiles`
    is 0 where there is no tile to count after all."""
    exchange = scope.schedule.exchange(step.exchange)
    part = f"{step.slot}_segment" if step.slot else "0"

    def lines(chunk: str) -> list[str]:
        place = word(scope, step.count, slot_of(scope, exchange, part, chunk))
        if not step.then:
            return [f"count_up({place}{tiles and ', '}{tiles})"]
        scope.need("rank", "call", scope.dialect.peer_words)
        then = scope.schedule.signal(step.then)
        there = f"{scope.numbers.word(then)} + {slot_of(scope, exchange, 'rank', chunk)}"
        last = f"if count_arrival({place}) == {tiles_of_chunk(scope, step, exchange, chunk)} - 1:"
        if step.place is Place.PEER:
            return [last, f"    {scope.dialect.notify(part, there)}"]
        return [last, f"    {scope.dialect.notify_all(there, scope.numbers.ranks())}"]

    _print_chunks(out, scope, exchange, step.rows, step.slot, lines)


def tiles_of_chunk(scope: TileScope, step: Notify, exchange: Exchange, chunk: str) -> str:
    """How many tiles write to chunk `chunk`: a number if all chunks have as many."""
    numbers, role = scope.numbers, scope.role
    found = numbers.arrivals(exchange, role, step, scope.own_axes)
    if found is not None:
        return found
    axis, size = scope.axis(step.rows), numbers.chunk_rows(exchange)
    rows, _ = row_pieces(role, step, exchange, scope.own_axes)
    piece = numbers.rows(exchange) if rows != axis.extent else numbers.size(role, axis)
    tile = scope.tile(axis.name)
    tiles = numbers.tiles(role, axis) if rows == axis.extent else f"({piece} + {tile} - 1) // {tile}"
    first = f"({chunk}) * {size}"
    end = f"tl.minimum({first} + {size}, {numbers.rows(exchange)})"
    others = numbers.other_tiles(role, step, scope.own_axes)
    return f"tiles_in_rows({first}, {end}, {piece}, {tiles}, {tile}){others and f' * ({others})'}"
