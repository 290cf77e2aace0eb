"""Matmuls of a tile -> Triton: one loop over k, for one matmul or for several that share the tiles of their left operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lowering.names import value_name
from lowering.operands import TileScope, address, print_base, print_descriptor
from lowering.positions import rank_at
from lowering.signalling import print_wait, waits_in
from lowering.source import Source
from lowering.sums import print_load
from tilelink.ir.dtype import DTYPES
from tilelink.ir.nodes import Axis
from tilelink.ir.steps import Access, MatmulBody, Operand

_WGMMA_ROWS = 64

Tile = Callable[[], str]  # prints what it needs and returns the expression of the tile


def print_matmuls(out: Source, scope: TileScope, bodies: Sequence[MatmulBody]) -> None:
    """Accumulate over the reduction axis, all in the loop of the first; with parts along it, part by part as they arrive."""
    first = bodies[0]
    axis = scope.axis(first.axis)
    m, n = (a for a in scope.role.axes if not a.reduction)
    turned = _turned(scope, bodies)
    shape = (n, m) if turned else (m, n)
    for body in bodies:
        extents = ", ".join(scope.tile(side.name) for side in shape)
        out.line(f"{value_name(body.result)} = tl.zeros(({extents}), tl.float32)")
    _print_parts(out, scope, bodies, axis, turned)
    if turned:
        for body in bodies:
            out.line(f"{value_name(body.result)} = tl.trans({value_name(body.result)})")


def _turned(scope: TileScope, bodies: Sequence[MatmulBody]) -> bool:
    """Whether columns of the product become rows of what is computed: Hopper's tensor cores read operands in shared memory for
    no fewer than 64 rows."""
    m, n = (a.tile for a in scope.role.axes if not a.reduction)
    hopper = scope.schedule.machine.arch.startswith("sm_9")
    return hopper and m < _WGMMA_ROWS <= n and DTYPES[scope.dtype(bodies[0].left.buffer)].tensor_cores


def _print_parts(out: Source, scope: TileScope, bodies: Sequence[MatmulBody], axis: Axis, turned: bool) -> None:
    first = bodies[0]
    if axis.segments > 1:
        scope.need("rank")
        order = scope.role.order.minor_ranks
        numbers = scope.numbers
        segments, ranks = numbers.segments(scope.role, axis), numbers.ranks()
        # where a part is a single step the compiler would take this loop for that over k, and load in front of its waits
        alone = axis.tiles == 1 and waits_in(first.waits)
        positions = f"tl.range({segments}, num_stages=1)" if alone else f"range({segments})"
        with out.block(f"for {axis.name}_place in {positions}:"), scope.inside():
            out.line(f"{axis.name}_segment = {rank_at(order, f'{axis.name}_place', ranks)}")
            for wait in first.waits:
                print_wait(out, scope, wait)
            _print_reduction(out, scope, bodies, axis, turned)
        return
    for wait in first.waits:
        print_wait(out, scope, wait)
    _print_reduction(out, scope, bodies, axis, turned)


def _print_reduction(out: Source, scope: TileScope, bodies: Sequence[MatmulBody], axis: Axis, turned: bool) -> None:
    first, step, size = bodies[0], scope.tile(axis.name), scope.numbers.size(scope.role, axis)
    load_left = _print_operand(out, scope, first.left, "left")
    loads = [_print_operand(out, scope, body.right, "right") for body in bodies]
    precision = "" if DTYPES[scope.dtype(first.left.buffer)].tensor_cores else ', input_precision="ieee"'
    with out.block(f"for {axis.name} in range(0, {size}, {step}):"):
        loaded = (first.left, *(body.right for body in bodies))
        if any(operand.access is Access.POINTER for operand in loaded):
            out.line(f"{axis.name}_offsets = {axis.name} + tl.arange(0, {step})")
        left = load_left()
        if len(bodies) > 1 and first.left.access is Access.DESCRIPTOR:
            tile = f"{_name(first.left, 'left')}_tile"
            out.line(f"{tile} = {left}")
            left = tile
        for body, load in zip(bodies, loads, strict=True):
            result = value_name(body.result)
            right = load()
            if body.transposed != turned:
                right = f"tl.trans({right})"
            operands = f"{right}, tl.trans({left})" if turned else f"{left}, {right}"
            out.line(f"{result} = tl.dot({operands}, {result}{precision})")


def _print_operand(out: Source, scope: TileScope, operand: Operand, side: str) -> Tile:
    """Print what precedes the loop; returns how the loop loads a tile."""
    name = _name(operand, side)
    if operand.access is Access.DESCRIPTOR:
        used, row, col = print_descriptor(out, scope, operand, name)
        return lambda: f"{used}.load([{row}, {col}])"
    where, mask = address(scope, operand, print_base(out, scope, operand, f"{name}_part"))

    def load() -> str:
        print_load(out, f"{name}_tile", where, mask)
        return f"{name}_tile"

    return load


def _name(operand: Operand, side: str) -> str:
    return f"{operand.own or operand.buffer}_{side}"
