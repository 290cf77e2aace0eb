"""Spelling of slots: which slot and use an item has, and the waits and notifies of producers and consumers."""

from __future__ import annotations

from lowering.names import pointer
from lowering.operands import LoopScope, TileScope
from lowering.signalling import take, word
from lowering.source import Source
from tilelink.ir.nodes import Exchange
from tilelink.ir.steps import SlotNotify, SlotWait


def print_use(out: Source, scope: LoopScope, exchange: Exchange, item: str) -> None:
    """Print the slot of `item`, and the number of this use of it."""
    scope.need("call")
    slots, items = scope.numbers.slots(exchange), scope.numbers.chunks(exchange)
    out.line(f"slot = {item} % {slots}")
    out.line(f"use = use_of_slot(call, {item}, {items}, {slots})")


def print_slot_wait(out: Source, scope: LoopScope, step: SlotWait, name: str) -> None:
    """Wait until the slot is free, or filled; `name` points to what is stored or loaded behind it."""
    take(out, scope, name, [f"wait_use({word(scope, step.signal, 'slot')}, {_use(step.plus)})"])


def print_slot_notify(out: Source, scope: LoopScope, step: SlotNotify, peer: str) -> None:
    """Tell `peer` that the slot is filled, or free again."""
    first = scope.numbers.word(scope.schedule.signal(step.signal))
    scope.need(scope.dialect.peer_words)
    out.line(scope.dialect.notify(peer, f"{first} + slot", _use(step.plus)))


def neighbour(scope: LoopScope, by: int) -> str:
    """Expression for the rank `by` further."""
    ranks, ahead = scope.numbers.ranks(), by % scope.schedule.num_ranks
    further = f"({ranks} - {scope.schedule.num_ranks - ahead})" if by < 0 and ahead else str(ahead)
    return f"(rank + {further}) % {ranks}"


def _use(plus: int) -> str:
    return f"use {'+' if plus > 0 else '-'} {abs(plus)}" if plus else "use"


def print_items(out: Source, scope: TileScope) -> None:
    """Where tiles are the items of a bounded exchange, print slot and use of the tile."""
    steps = [step for step in scope.role.body if isinstance(step, SlotWait | SlotNotify)]
    for name, rows in dict.fromkeys((step.exchange, step.rows) for step in steps):
        exchange, numbers = scope.schedule.exchange(name), scope.numbers
        print_use(out, scope, exchange, f"{rows}_tile")
        items, tiles = numbers.chunks(exchange), numbers.tiles(scope.role, scope.axis(rows))
        numbers.require(f"{tiles} == {items}", f"a tile is an item of {name}")


def print_slot_step(out: Source, scope: TileScope, step: SlotWait | SlotNotify) -> None:
    """The wait or notify of a consumer, whose peer is the sender."""
    exchange = scope.schedule.exchange(step.exchange)
    match step:
        case SlotWait():
            scope.need(pointer(exchange.target))
            print_slot_wait(out, scope, step, pointer(exchange.target))
        case SlotNotify():
            scope.need("rank")
            print_slot_notify(out, scope, step, neighbour(scope, -exchange.by))
