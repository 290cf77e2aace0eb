"""A role whose tiles are computed by warpgroups in turns -> Gluon: what each group does, and the ring between them."""

from __future__ import annotations

from collections.abc import Callable

from lowering.names import TRITON, in_order, value_name
from lowering.operands import TileScope, print_descriptor, print_origin
from lowering.pieces import leaves_in_pieces
from lowering.positions import print_order
from lowering.signalling import print_wait
from lowering.source import Source
from tilelink.ir.steps import MatmulBody, Operand, Step, Wait
from tilelink.ir.walk import flat
from tilelink.ir.warpgroups import GROUP_WARPS

PrintSteps = Callable[[Source, TileScope, tuple[Step, ...]], None]

_REGISTERS = (240, 24)  # of a thread of the groups that multiply, and of the one that loads: 504 for a thread of each


def print_turns(body: Source, scope: TileScope, places: int, print_steps: PrintSteps) -> None:
    """Print into `body` the ring of `places` places for a step of k, and the groups that fill and empty it."""
    role = scope.role
    at, matmul = next((i, step) for i, step in enumerate(role.body) if isinstance(step, MatmulBody))
    ring = (f"{matmul.left.buffer}_ring", f"{matmul.right.buffer}_ring")
    loads = _loads(scope, matmul, tuple(step for step in role.body[:at] if isinstance(step, Wait)), ring)
    multiplies = _multiplies(scope, matmul, role.body[at + 1 :], ring, print_steps)
    stages = scope.numbers.stages(role, places)
    for name, operand in zip(ring, (matmul.left, matmul.right), strict=True):
        block = ", ".join(scope.tile(axis) for axis in operand.index)
        layout = f"{scope.descriptor(operand.own or operand.buffer, operand.index)}.layout"
        dtype = TRITON[scope.dtype(operand.buffer)]
        body.line(f"{name} = gl.allocate_shared_memory({dtype}, [{stages}, {block}], {layout})")
    own = ["turns"]
    if leaves_in_pieces(flat(role.body)):
        _print_leaving(body, scope)
        own.append("leaving")
    body.line(f"loaded, used, turns = ring_barriers({stages}, {role.warpgroups})")
    shared = [*ring, "loaded", "used"]
    with body.block("gl.warp_specialize("), body.block("["):
        for group in range(role.warpgroups):
            arguments = [*multiplies, *shared, *own, "program", str(group)]
            body.call(f"({role.name}_turns, (", arguments, ")),")
        body.call(f"({role.name}_loads, (", [*loads, *shared, "program"], ")),")
    body.line("    ],")
    warps = ", ".join([str(GROUP_WARPS)] * role.warpgroups)
    registers = ", ".join(map(str, [_REGISTERS[0]] * (role.warpgroups - 1) + [_REGISTERS[1]]))
    body.line(f"    [{warps}],  # warps of each warpgroup but the first")
    body.line(f"    [{registers}],  # registers a thread there; the first warpgroup keeps the rest")
    body.line(")")


def _print_leaving(body: Source, scope: TileScope) -> None:
    """Where slices of the groups leave from: pieces of one buffer, as all have the same shape and type."""
    role = scope.role
    name, several = next(iter(scope.tuples.items()))
    found = scope.descriptors[several[0]]
    rows = scope.tile(next(axis.name for axis in role.axes if not axis.reduction))
    shape = ", ".join([f"{role.warpgroups} * {rows} // {found.sizes[0]}", *found.sizes])
    dtype = TRITON[scope.dtype(found.buffer)]
    body.line(f"leaving = gl.allocate_shared_memory({dtype}, [{shape}], {name}[0].layout)")


def _steps(scope: TileScope, matmul: MatmulBody) -> str:
    return scope.numbers.tiles(scope.role, scope.axis(matmul.axis))


def _loads(scope: TileScope, matmul: MatmulBody, waits: tuple[Wait, ...], ring: tuple[str, str]) -> list[str]:
    """The function of the group that loads; its arguments before the ring."""
    role = scope.role
    inner = TileScope(scope.schedule, scope.dialect, scope.numbers, role)
    tiles, programs = scope.numbers.num_tiles(role), scope.numbers.programs(role)
    printed = Source()
    with printed.block(f"for tile in range(program, {tiles}, {programs}):"):
        print_order(printed, inner)
        for wait in waits:
            print_wait(printed, inner, wait)
        left, row, _ = _described(printed, inner, matmul.left, "left")
        right, first, second = _described(printed, inner, matmul.right, "right")
        col = first if matmul.transposed else second
        number = f"tile // {programs}"
        sizes = [f"STEPS={_steps(scope, matmul)}", f"TRANSPOSED={matmul.transposed}"]
        printed.call("load_steps(", [left, row, right, col, *ring, "loaded", "used", number, *sizes])
    what = f"Producer warp: load the operands of the tiles of {role.name}."
    return _function(scope, inner, f"{role.name}_loads", [*ring, "loaded", "used", "program"], printed, what)


def _described(out: Source, scope: TileScope, operand: Operand, side: str) -> tuple[str, str, str]:
    return print_descriptor(out, scope, operand, f"{operand.own or operand.buffer}_{side}")


def _multiplies(
    scope: TileScope, matmul: MatmulBody, behind: tuple[Step, ...], ring: tuple[str, str], print_steps: PrintSteps
) -> list[str]:
    """The function of the groups that multiply; its arguments before the ring."""
    role, groups = scope.role, scope.role.warpgroups
    inner = TileScope(scope.schedule, scope.dialect, scope.numbers, role)
    tiles, programs = scope.numbers.num_tiles(role), scope.numbers.programs(role)
    printed = Source()
    with printed.block(f"for tile in range(program + GROUP * {programs}, {tiles}, {groups} * {programs}):"):
        print_order(printed, inner)
        sizes = ["GROUP", f"STEPS={_steps(scope, matmul)}", f"TRANSPOSED={matmul.transposed}"]
        arguments = [*ring, "loaded", "used", "turns", f"tile // {programs}", *sizes]
        print_origin(printed, scope, matmul.result)
        pieces = leaves_in_pieces(flat(behind))
        printed.call(f"{value_name(matmul.result)}, {'took' if pieces else '_'} = multiply_in_turn(", arguments)
        if pieces:
            printed.line("begun = cycles()")
            with printed.block(f"if tile >= {tiles} - {programs}:"):
                printed.line("took = 0  # the last tile: the other consumer has no product to disturb")
        print_steps(printed, inner, behind)
    what = "Consumer warpgroup GROUP: compute every other tile of this program, and run its epilogue."
    own = ["turns", "leaving"] if leaves_in_pieces(flat(behind)) else ["turns"]
    given = [*ring, "loaded", "used", *own, "program", "GROUP: gl.constexpr"]
    return _function(scope, inner, f"{role.name}_turns", given, printed, what)


def _function(scope: TileScope, inner: TileScope, name: str, given: list[str], body: Source, what: str) -> list[str]:
    scope.needs_of(inner)
    out, arguments = Source(), in_order(inner.parameters)
    out.line(scope.decorator())
    with out.function(name, [*arguments, *given], what):
        out.lines(body.text())
    scope.functions.append(out.text())
    return arguments
