"""Sums of the parts of all ranks: in which order they are read, and how many of them are on their way at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lowering.names import value_name
from lowering.operands import TileScope, address, print_base
from lowering.signalling import declare, delivered, print_peers_wait, print_wait
from lowering.source import Source
from tilelink.ir.nodes import Kind
from tilelink.ir.steps import Operand, SumParts

_MOST_AT_ONCE = 8  # parts that are loaded without a loop: registers hold no more


def print_sum(out: Source, scope: TileScope, step: SumParts) -> None:
    """Add the parts. Those that are not on top of an own summand are all awaited first, so that all of them are on their way
    at once."""
    operand, result = step.operand, value_name(step.result)
    axes = [axis for axis in scope.role.axes if not axis.reduction]
    shape = ", ".join(scope.tile(axis.name) for axis in axes) + ("," if len(axes) == 1 else "")
    out.line(f"{result} = {value_name(step.onto)}" if step.onto else f"{result} = tl.zeros(({shape}), tl.float32)")
    if step.wait is not None and not step.onto:
        if scope.dialect.tokens:
            scope.declared = delivered(scope, step.wait)
            declare(out, scope, scope.declared)
        print_peers_wait(out, scope, step.wait)
        scope.declared = ""
    with other_parts(out, scope, operand) if step.onto else _all_parts(out, scope, step), scope.inside():
        if step.wait is not None and step.onto:
            print_wait(out, scope, step.wait, in_loop=True)
        plain = replace(operand, own="") if step.onto else operand
        base = print_base(out, scope, plain, f"{operand.buffer}_part")
        where, mask = address(scope, plain, base)
        print_load(out, f"{operand.buffer}_tile", where, mask, ".to(tl.float32)")
        out.line(f"{result} += {operand.buffer}_tile")


@contextmanager
def _all_parts(out: Source, scope: TileScope, step: SumParts) -> Iterator[None]:
    """An unrolled loop over all parts, so that they are loaded at once. Where only this rank adds them, it goes from its own
    part on. Where every rank does, the order is that of the tile, so that replicated results agree bit by bit. Either way
    peers are not all read by everybody at the same time."""
    segment, ranks = f"{step.operand.slot}_segment", scope.numbers.ranks()
    span = f"tl.static_range({ranks})" if scope.schedule.num_ranks <= _MOST_AT_ONCE else scope.each(ranks)
    alone = step.wait is not None and scope.schedule.exchange(step.wait.exchange).kind is Kind.SCATTER
    scope.need("rank")
    tiles = [f"{axis.name}_tile" for axis in scope.role.axes if not axis.reduction]
    first = "rank" if alone else " + ".join(tiles)
    with out.block(f"for step in {span}:"):
        out.line(f"{segment} = ({first} + step) % {ranks}")
        yield


@contextmanager
def other_parts(out: Source, scope: TileScope, operand: Operand) -> Iterator[None]:
    """A loop over the parts of all peers, starting with the next rank: they are not all read from one peer at once."""
    scope.need("rank")
    ranks = scope.numbers.ranks()
    with out.block(f"for step in {scope.each(ranks, first=1)}:"):
        out.line(f"{operand.slot}_segment = (rank + step) % {ranks}")
        yield


def print_load(out: Source, name: str, where: str, mask: str, cast: str = "") -> None:
    """`name = tl.load(where)`, zeros where the mask is false; `cast` is appended."""
    out.call(f"{name} = tl.load(", [where, *([f"mask={mask}", "other=0.0"] if mask else [])], f"){cast}")
