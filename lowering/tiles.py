"""Compute role -> Triton: the tile loop in its order, and every step of a tile."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from lowering.constants import Group
from lowering.dialect import Dialect
from lowering.late import LateCounts
from lowering.matmul import print_matmuls
from lowering.names import TRITON, element, element_bytes, in_order, places, pointer, value_name
from lowering.numbers import Numbers
from lowering.operands import (
    TileScope,
    address,
    part_name,
    print_base,
    print_descriptor,
    print_origin,
    stride_of,
)
from lowering.pieces import print_pieces
from lowering.positions import print_order
from lowering.signalling import (
    declare,
    delivered,
    print_notify,
    print_peers_wait,
    print_places_wait,
    print_wait,
    waits_in,
    word,
)
from lowering.slices import print_sliced
from lowering.slots import print_items, print_slot_step
from lowering.source import Source
from lowering.sums import print_load, print_sum
from lowering.turns import print_turns
from lowering.words import print_call_number, print_last_call, print_sum_words
from tilelink.ir.nodes import ComputeRole, Memory, turn_cols
from tilelink.ir.ops.elementwise import FUNCTIONS, with_constants
from tilelink.ir.schedule import Schedule
from tilelink.ir.steps import (
    Access,
    Apply,
    AwaitPlaces,
    IfOwn,
    Load,
    MatmulBody,
    Notify,
    Operand,
    Place,
    SlotNotify,
    SlotWait,
    Step,
    Store,
    SumParts,
    SumWords,
    UserBody,
    Wait,
)
from tilelink.ir.user_op import UserOp


def tile_loop(
    schedule: Schedule, dialect: Dialect, numbers: Numbers, role: ComputeRole, body: Source, stages: int
) -> TileScope:
    """Print the loop over tiles into `body`; the scope returned holds the parameters that it needs. `stages`: of operands
    between warpgroups."""
    scope = TileScope(schedule, dialect, numbers, role)
    for axis in role.axes:
        if axis.tile:
            numbers.tile(role, axis)
    if role.warpgroups > 1:
        print_turns(body, scope, stages, _print_steps)
        return scope
    for step in role.body:
        if isinstance(step, SumWords):
            print_call_number(body, scope, step)
    last = role.body[-1]
    if not (role.prefetch and isinstance(last, IfOwn)):
        if role.whole:
            _print_tiles(body, scope, "program", role.whole, _whole_tiles(scope), role.body)
        if role.halved:
            _print_halves(body, scope)
        for step in role.body:
            if isinstance(step, SumWords):
                print_last_call(body, step)
        return scope
    # the compiler pipelines no loop that branches on its tile: tiles of the own segment, which are last, have their own
    axis, rest = role.axis(last.axis), role.body[:-1]
    others = role.num_tiles // axis.segments * (axis.segments - 1)
    total, segments = numbers.num_tiles(role), numbers.segments(role, axis)
    text = f"{total} // {segments} * ({segments} - 1)"
    why = f"tiles of the {axis.name} segments of the other ranks"
    end = numbers.name(numbers.of_role(role, "OTHER_TILES"), others, why, Group.LOOPS, text)
    body.comment(f"tiles of the segments of other ranks along {axis.name}")
    _print_tiles(body, scope, "program", others, end, (*rest, *last.others))
    body.comment(f"tiles of the own segment along {axis.name}")
    _print_tiles(body, scope, _plus_in_turn(scope, others, end), role.num_tiles, total, rest, last)
    return scope


def _whole_tiles(scope: TileScope) -> str:
    """What the number of tiles is called that are computed in one piece."""
    role, numbers = scope.role, scope.numbers
    total = numbers.num_tiles(role)
    if not role.halved:
        return total
    why = f"tiles of {role.name} that are computed in halves along {role.order.minor}: the last ones"
    halved = numbers.name(numbers.of_role(role, "HALVED_TILES"), role.halved, why, Group.LOOPS)
    why = f"tiles of {role.name} that are computed in one piece"
    return numbers.name(numbers.of_role(role, "WHOLE_TILES"), role.whole, why, Group.LOOPS, f"{total} - {halved}")


def _print_halves(body: Source, scope: TileScope) -> None:
    """A function for the tiles that are computed in halves, and its call."""
    role = scope.role
    inner = TileScope(scope.schedule, scope.dialect, scope.numbers, role.in_halves(), in_halves=True)
    printed = Source()
    whole = _whole_tiles(scope)
    halves = f"2 * {scope.numbers.of_role(role, 'HALVED_TILES').upper()}"
    with printed.block(f"for half in {_launch_positions('program', halves, scope)}:"):
        printed.line(f"tile = {whole} + half // 2")
        _print_tile(printed, inner, role.body, None)
    scope.needs_of(inner)
    name, out = f"{role.name}_halves", Source()
    out.line(scope.dialect.decorator())
    arguments = [*in_order(inner.parameters), "program"]
    what = f"Compute the last tiles of {role.name} as halves along {role.order.minor}, for more programs."
    with out.function(name, arguments, what):
        out.lines(printed.text())
    scope.functions.append(out.text())
    body.call(f"{name}(", arguments)


def _launch_positions(first: str, end: str, scope: TileScope) -> str:
    """The positions of a program. Where it prefetches, the compiler runs the loops over tiles and over k as one. Elsewhere it
    would take the loop over tiles for one over k where k is a single step, or where a user's body is: it would fail on
    branches, or load the next tile in front of the wait for it (Triton 3.6). A loop of one stage is left as it is."""
    role, numbers = scope.role, scope.numbers
    matmul = next((step for step in role.body if isinstance(step, MatmulBody)), None)
    single = waits_in(role.body) if matmul is None else role.axis(matmul.axis).tiles == 1
    alone = single and not role.prefetch
    if matmul is not None and role.axis(matmul.axis).tile:
        numbers.one_step(role, role.axis(matmul.axis))
    programs = numbers.programs(role)
    return f"tl.range({first}, {end}, {programs}, {'num_stages=1' if alone else f'flatten={role.prefetch}'})"


def _plus_in_turn(scope: TileScope, position: int, name: str) -> str:
    """The first position from `position` on that belongs to `program`: programs take positions in turn."""
    numbers, programs = scope.numbers, scope.numbers.programs(scope.role)
    ahead = -position % scope.role.programs
    if not ahead:
        numbers.require(f"{name} % {programs} == 0", "the own segment begins with the first program")
        return f"{name} + program"
    why = "the program that would be next takes the first own tile"
    turn = numbers.name(numbers.of_role(scope.role, "FIRST_OWN"), ahead, why, Group.LOOPS, f"(-{name}) % {programs}")
    return f"{name} + (program + {turn}) % {programs}"


def _print_tiles(
    body: Source, scope: TileScope, first: str, tiles: int, end: str, steps: tuple[Step, ...], own: IfOwn | None = None
) -> None:
    """One loop over the launch positions from `first` up to `tiles`, called `end`; all tiles are `own` ones if it is given."""
    role, late = scope.role, None
    counting = [step for step in steps if isinstance(step, Notify)]
    if role.counts_late and own is None and counting:
        late = LateCounts(scope, counting, tiles, end)
        steps = tuple(step for step in steps if not isinstance(step, Notify))
    with body.block(f"for tile in {_launch_positions(first, end, scope)}:"):
        _print_tile(body, scope, steps, own, late)
    if late is not None:
        late.print_last(body)


def _print_tile(
    body: Source, scope: TileScope, steps: tuple[Step, ...], own: IfOwn | None, late: LateCounts | None = None
) -> None:
    """Where the tile at position `tile` lies, and its steps; before it is stored the tile before is counted, if `late`."""
    print_order(body, scope)
    print_items(body, scope)
    scope.awaited.clear()
    printed = Source()
    for step in steps:
        if late is not None and isinstance(step, Store):
            late.print_before(printed)
            late = None
        _print_step(printed, scope, step)
    if own is not None:
        _print_own(printed, scope, own)
    for axis in scope.role.axes:
        if not axis.reduction and f"{axis.name}_offsets" in printed.text():
            body.line(f"{axis.name}_offsets = {axis.name} + tl.arange(0, {scope.tile(axis.name)})")
    body.lines(printed.text())


def _print_step(out: Source, scope: TileScope, step: Step) -> None:
    if isinstance(step, MatmulBody) and step.beside:
        return  # printed with the matmul whose loop it is
    if isinstance(step, MatmulBody | UserBody | SumParts | SumWords | Apply):
        print_origin(out, scope, step.result)
    match step:
        case Wait():
            print_wait(out, scope, step)
        case MatmulBody():
            _print_matmuls(out, scope, step)
        case UserBody():
            _print_user_body(out, scope, step)
        case SumParts():
            print_sum(out, scope, step)
        case SumWords():
            print_sum_words(out, scope, step)
        case Load(result, operand):
            base = print_base(out, scope, operand, f"{operand.buffer}_part")
            where, mask = address(scope, operand, base)
            print_load(out, value_name(result), where, mask, ".to(tl.float32)")
        case Apply(result, function, arguments, left, right):
            operands = with_constants(map(value_name, arguments), left, right)
            text = operands[0] if function == "copy" else FUNCTIONS[function].on(*operands)
            out.line(f"{value_name(result)} = {text}")
        case Store():
            _print_store(out, scope, step)
        case Notify():
            print_notify(out, scope, step)
        case SlotWait() | SlotNotify():
            print_slot_step(out, scope, step)
        case AwaitPlaces():
            print_places_wait(out, scope, step)
        case IfOwn(axis, _, others):
            scope.need("rank")
            with out.block(f"if {axis}_segment == rank:"), scope.inside():
                _print_own(out, scope, step)
            with out.block("else:"), scope.inside():
                _print_steps(out, scope, others)


def _print_steps(out: Source, scope: TileScope, steps: tuple[Step, ...]) -> None:
    """The steps in order; what a warpgroup stores it stores slice by slice."""
    if scope.role.warpgroups == 1:
        for step in steps:
            _print_step(out, scope, step)
        return
    for value, several in groupby(steps, lambda step: step.value if isinstance(step, Store) else ""):
        some = tuple(several)
        if value:
            cols = [axis for axis in scope.role.axes if not axis.reduction][-1]
            stored = [step.operand.buffer for step in some if isinstance(step, Store)]
            width = turn_cols(cols.tile, max(element_bytes(scope.dtype(name)) for name in stored))
            print_sliced(out, scope, some, value, width, _print_step)
        else:
            for step in some:
                _print_step(out, scope, step)


def _print_matmuls(out: Source, scope: TileScope, first: MatmulBody) -> None:
    """The matmul and those in its loop."""
    beside = [step for step in scope.role.body if isinstance(step, MatmulBody) and step.beside == first.result]
    for step in beside:
        print_origin(out, scope, step.result)
    print_matmuls(out, scope, [first, *beside])


def _print_user_body(out: Source, scope: TileScope, body: UserBody) -> None:
    """Call the user's function. Along an axis along which a tensor lies in parts it counts from the start of the part, so that
    the pointers of other tensors are shifted; along any other axis it counts through the whole tensor."""
    op = next(op for op in _user_ops(scope.schedule) if op.name == body.function)
    operands = [operand for _, operand in body.operands]
    in_parts = {axis for operand in operands for axis in operand.index if axis in (operand.slot, *operand.local)}
    arguments: dict[str, str] = {}
    for name, operand in body.operands:
        base = print_base(out, scope, operand, f"{operand.own or operand.buffer}_part")
        for dim, axis in enumerate(operand.index):
            found = scope.axis(axis)
            if found.segments > 1 and axis in in_parts and axis != operand.slot and axis not in operand.local:
                size, stride = scope.numbers.size(scope.role, found), stride_of(scope, operand, dim)
                shift = size if stride == "1" else f"({size} * {stride})"
                base = f"{base} + {element(f'{axis}_segment', shift, scope.elements(operand.buffer))}"
        arguments[name] = base
    for loop_axis in scope.role.axes:
        name, tile = loop_axis.name, f"TILE_{loop_axis.name.upper()}"
        first, end = name, scope.numbers.size(scope.role, loop_axis)
        if loop_axis.segments > 1 and name not in in_parts:
            first, end = f"{name}_segment * {end} + {name}", f"{end} * {loop_axis.segments}"
        arguments |= {name: first, f"num_{name}": end}
        arguments[tile] = scope.tile(name) if loop_axis.tile else "0"
    passed = [f"{name}={arguments[name]}" for name in op.parameters]
    out.call(f"{value_name(body.result)} = {op.name}(", passed)
    out.line(f"{value_name(body.result)} = {value_name(body.result)}.to(tl.float32)")


def _user_ops(schedule: Schedule) -> list[UserOp]:
    return [node.operation for node in schedule.spec.nodes if isinstance(node.operation, UserOp)]


def _print_own(out: Source, scope: TileScope, branch: IfOwn) -> None:
    """The steps of own tiles: all waits, then a call for each slice of columns, then what is counted."""
    scope.own_axes = (branch.axis,)
    sums = next((step for step in branch.own if isinstance(step, SumParts)), None)
    if branch.slices == 1 or sums is None:
        for step in branch.own:
            _print_step(out, scope, step)
        scope.own_axes = ()
        return
    if sums.wait is not None:
        if scope.dialect.tokens:
            scope.declared = delivered(scope, sums.wait)
            declare(out, scope, scope.declared)
        print_peers_wait(out, scope, sums.wait)
        scope.declared = ""
    for step in branch.own:
        if isinstance(step, AwaitPlaces):
            print_places_wait(out, scope, step)
    steps: list[Step] = [replace(step, wait=None) if isinstance(step, SumParts) else step for step in branch.own]
    steps = [step for step in steps if not isinstance(step, AwaitPlaces)]
    sliced = [step for step in steps if not isinstance(step, Notify)]
    cols = [axis for axis in scope.role.axes if not axis.reduction][-1]
    print_sliced(out, scope, sliced, sums.onto, cols.tile // branch.slices, _print_step, branch.axis)
    for step in steps:
        if isinstance(step, Notify):
            _print_step(out, scope, step)
    scope.own_axes = ()


def _print_store(out: Source, scope: TileScope, step: Store) -> None:
    operand, value = step.operand, value_name(step.value)
    dtype = TRITON[scope.dtype(operand.buffer)]
    if operand.access is Access.DESCRIPTOR:
        used, row, col = print_descriptor(out, scope, operand, operand.buffer)
        out.line(f"{used}.store([{row}, {col}], {value}.to({dtype}))")
        return
    if operand.access is Access.PIECES and scope.role.warpgroups > 1:
        print_pieces(out, scope, step, value)
        return
    match step.place:
        case Place.HERE:
            base = print_base(out, scope, operand, f"{operand.buffer}_part")
            _print_masked_store(out, scope, operand, base, value, dtype)
        case Place.OWN:
            scope.need(pointer(operand.buffer), "rank")
            own = element("rank", part_name(scope, operand), scope.elements(operand.buffer))
            out.line(f"{operand.buffer}_here = {pointer(operand.buffer)} + {own}")
            _print_masked_store(out, scope, operand, f"{operand.buffer}_here", value, dtype)
        case Place.PEER:
            _print_remote_store(out, scope, operand, f"{operand.slot}_segment", value, dtype)
        case Place.EVERY_PEER:
            ranks = scope.numbers.ranks()  # not all of them store to one peer at the same time
            with out.block(f"for step in {scope.each(ranks)}:"):
                out.line(f"peer = (rank + step) % {ranks}")
                _print_remote_store(out, scope, operand, "peer", value, dtype)


def _print_masked_store(out: Source, scope: TileScope, operand: Operand, base: str, value: str, dtype: str) -> None:
    where, mask = address(scope, operand, base)
    out.call("tl.store(", [where, f"{value}.to({dtype})", *([f"mask={mask}"] if mask else [])])


def _print_remote_store(out: Source, scope: TileScope, operand: Operand, peer: str, value: str, dtype: str) -> None:
    """Into this rank's part of the target on `peer`."""
    scope.need("rank")
    part = element("rank", part_name(scope, operand), scope.elements(operand.buffer))
    out.line(f"{operand.buffer}_there = {_there(scope, operand.buffer, peer, dtype)} + {part}")
    _print_masked_store(out, scope, operand, f"{operand.buffer}_there", value, dtype)


def _there(scope: TileScope, buffer: str, peer: str, dtype: str) -> str:
    """First element of the buffer on `peer`; of one in a pool, in the place that the peer has told."""
    if scope.schedule.buffer(buffer).memory is not Memory.POOL:
        scope.need(scope.dialect.peers(buffer))
        return scope.dialect.at_peer(scope.dialect.peers(buffer), peer, dtype)
    scope.need(places(buffer))
    exchange = next(found for found in scope.schedule.exchanges if found.target == buffer)
    there = f"told_place({word(scope, f'{exchange.name}_place', peer)})"
    return scope.dialect.in_pool(buffer, there, peer, scope.numbers.ranks(), dtype)
