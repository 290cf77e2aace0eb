"""Group -> compute role: the steps of a tile, in the space and order of `tile_order.py`."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.choices import TritonLoop
from tilelink.ir.counting import in_one_chunk
from tilelink.ir.enums import Tail
from tilelink.ir.graph import Copy, Map, Relation, Sum, TileOp
from tilelink.ir.movers import Transfer
from tilelink.ir.nodes import Buffer, ComputeRole, Kind, turn_cols
from tilelink.ir.order import Cut, Nest
from tilelink.ir.spec import DTYPE_BYTES, Attend, Combine, Elementwise, Matmul
from tilelink.ir.steps import (
    Access,
    Apply,
    AwaitPlaces,
    CombineBody,
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
    SumPackets,
    SumParts,
    UserBody,
    Wait,
    matmuls_together,
    tile_name,
)
from tilelink.ir.user_op import UserOp
from tilelink.ir.walk import flat, one_step_behind_wait, points
from tilelink.planner.access import (
    Space,
    access_of,
    read_operand,
    read_wait,
    send_steps,
)
from tilelink.planner.attention_cost import fold_of
from tilelink.planner.cooperative import attend_steps, cooperative
from tilelink.planner.group import Group
from tilelink.planner.last_round import with_tail
from tilelink.planner.layout import Illegal, Problem, item_tile, make_exchange, target_buffer
from tilelink.planner.limits import MOST_TILES
from tilelink.planner.memo import remembered
from tilelink.planner.structure import around
from tilelink.planner.tile_order import renamed, sends, tile_order, tile_space
from tilelink.planner.tiles import Held, few_packets, why_no_attention, why_not
from tilelink.planner.turns import in_turns
from topologies.topology import Gpu

_SLICE_COLS = 64  # of a tile of 128 rows: 3 parts of them and the summand fit in registers
_SUMMAND_BYTES = 4


def compute_role(problem: Problem, index: int, programs: int) -> ComputeRole:
    """The role that computes group `index` and every group that is folded into it; the problem is `seen_by` that group.
    Raises Illegal."""
    found = _role(problem, index, programs)
    if isinstance(found, str):
        raise Illegal(found)
    return found


@remembered  # a search changes one choice at a time, which most roles have nothing to do with
def _role(problem: Problem, index: int, programs: int) -> ComputeRole | str:
    """The role, or why there is none: text has no traceback that would hold all that was built on the way."""
    try:
        return _new_role(problem, index, programs)
    except Illegal as illegal:
        return str(illegal)


def _new_role(problem: Problem, index: int, programs: int) -> ComputeRole:
    loop = loop_of(problem, index)
    if loop.tail is not Tail.WHOLE or loop.late:  # all else is as in the loop that is neither
        name = problem.groups[index].name
        plain = problem.with_loop(name, replace(loop, tail=Tail.WHOLE, late=False))
        role = compute_role(plain, index, programs)
        if loop.tile.warpgroups > 1:
            return in_turns(role, loop, problem.topology.gpu, problem.graph.values[name].dtype, {})
        role = with_tail(role, loop.tail, programs)
        return replace(role, counts_late=counted_late(role)) if loop.late else role
    return _plain_role(problem, index, programs, loop)


def _plain_role(problem: Problem, index: int, programs: int, loop: TritonLoop) -> ComputeRole:
    """The role of whole tiles, which are counted at once."""
    group = problem.groups[index]
    space = tile_space(problem, group, loop)
    folded = [i for i in range(len(problem.groups)) if i != index and problem.host(i) == index]
    if len(folded) > 1:
        raise Illegal(f"{group.name} already adds the parts of another value in its epilogue")
    axes = tuple(map(space.axis, group.anchor.axes))
    order = tile_order(problem, group, space, loop, _summed(problem, folded[0]) if folded else None)
    body = _body(problem, index, space, folded[0] if folded else -1, loop)
    packets = [step for step in flat(body) if isinstance(step, SumPackets)]
    if packets and any(axis.segments > 1 for axis in axes):
        raise Illegal(
            f"tiles of {group.name} go through parts in an order of each rank's own, and their packets meet in one"
        )
    for step in packets:
        dtype, shares = problem.graph.values[step.value].dtype, problem.topology.num_ranks if step.shots > 1 else 1
        if fact := few_packets(loop.tile, dtype, step.protocol, shares):
            raise Illegal(fact)
    role = ComputeRole(group.name, programs, axes, order, prefetch=False, body=body, own_first=loop.own_first)
    if role.num_tiles > MOST_TILES:
        raise Illegal(
            f"{group.name} has {role.num_tiles:,} tiles of this shape, and at most {MOST_TILES:,} can be planned"
        )
    fitted = _fitted(problem, replace(role, programs=min(programs, role.num_tiles)), loop)
    if loop.tile.warpgroups > 1:
        dtype = problem.graph.values[group.name].dtype
        if not group.matmuls:
            return cooperative(fitted, loop, problem.topology.gpu, dtype)
        return in_turns(fitted, loop, problem.topology.gpu, dtype, _at_peers(problem, index))
    return fitted


def _at_peers(problem: Problem, index: int) -> dict[str, Buffer]:
    """What tiles of group `index` may store into at peers, by name."""
    known = around(problem.structure, problem.members(index))
    found = [one for one in problem.structure.relations if one.name in known]
    exchanges = [(one, make_exchange(problem, one)) for one in found]
    return {x.target: target_buffer(problem, one, x) for one, x in exchanges if x.target and not x.slots}


def loop_of(problem: Problem, index: int) -> TritonLoop:
    """The loop of group `index`, with the tile that an item of its queue is, if it has one. Raises Illegal."""
    group = problem.groups[index]
    loop = problem.choices.compute(group.name).loop
    assert isinstance(loop, TritonLoop)
    queue = problem.structure.queue_of(group)
    return replace(loop, tile=item_tile(problem, queue)) if queue is not None else loop


def counted_late(role: ComputeRole) -> bool:
    """True. Raises Illegal where no tile is counted, or the next one is not begun before a tile is stored."""
    last = role.body[-1]
    steps = (*role.body, *(last.others if isinstance(last, IfOwn) else ()))
    if not role.prefetch or not any(isinstance(step, Notify) for step in steps):
        raise Illegal(f"tiles of {role.name} cannot be counted late: they are not counted, or not prefetched")
    return True


def _can_prefetch(problem: Problem, role: ComputeRole) -> bool:
    """Whether the loops over tiles and over k can be run as one.

    There is one loop over k, in one piece, with loads through descriptors, and of more than one step where tiles wait for what
    they load (`one_step_behind_wait`); each tile waits and counts for one chunk at a time, which takes no loop; and nothing
    after the body branches, except on segments that come one after the other.
    One matmul alone, because the compiler waits for each accumulator by itself before tiles are stored, and the assembler
    then lets no product overlap with another one (Triton 3.6: two matmuls in one loop took 1.4 times as long).
    """
    last = role.body[-1]
    if isinstance(last, IfOwn) and (last.axis != role.order.major or role.order.nest is not Nest.RANK_MAJOR):
        return False
    if one_step_behind_wait(role):
        return False
    for at, step in points(0, role):
        if isinstance(step, SumPackets) or (isinstance(step, Notify) and _tells_peers(problem, step)):
            return False
        match step:
            case MatmulBody(left=left, right=right, axis=axis):
                if role.axis(axis).segments > 1 or Access.POINTER in (left.access, right.access):
                    return False
            case Wait(exchange=name, rows=rows, slot=slot) | Notify(exchange=name, rows=rows, slot=slot):
                relation = problem.graph.relation(name)
                assert relation is not None
                local = rows == slot or rows in at.own
                exchange = make_exchange(problem, relation)
                if rows and not in_one_chunk(role.axis(rows), exchange, local=local, loads=isinstance(step, Wait)):
                    return False
    return sum(isinstance(step, MatmulBody) for step in role.body) == 1


def _tells_peers(problem: Problem, step: Notify) -> bool:
    """Whether the tile that completes a chunk raises a word of peers."""
    relation = problem.graph.relation(step.exchange)
    assert relation is not None
    exchange = make_exchange(problem, relation)
    return exchange.transfer is Transfer.PULL or not exchange.source


def _summed(problem: Problem, folded: int) -> Relation:
    """The relation whose parts group `folded` adds in the epilogue of their maker."""
    relation = problem.graph.relation(problem.groups[folded].anchor.reads[0].value)
    assert relation is not None
    return relation


def _body(problem: Problem, index: int, space: Space, folded: int, loop: TritonLoop) -> tuple[Step, ...]:
    group = problem.groups[index]
    steps = _group_steps(problem, group, space, "")
    if folded < 0:
        return steps
    summing, relation = problem.groups[folded], _summed(problem, folded)
    written = tuple(axis.name for axis in group.anchor.axes if not axis.reduction)
    axis = written[relation.dim]
    own_space = replace(space, segments={**space.segments, axis: 1}, local=(axis,))
    exchange = make_exchange(problem, relation)
    if exchange.order.nest is Nest.CHUNK_MAJOR and (relation.dim != 0 or exchange.chunk_rows % space.tiles[axis]):
        # an own tile would wait for a chunk of which peers make some tiles only after their own ones: a circle
        raise Illegal(
            f"chunks of {relation.source} are not whole groups of tiles, so own tiles cannot add parts chunk by chunk"
        )
    send = [s for s in steps if _sends_to(s, exchange.source or exchange.target, exchange.name)]
    rest = tuple(step for step in steps if step not in send)
    inner = _group_steps(problem, summing, own_space, relation.source, written)
    width = turn_cols(loop.tile.n, _SUMMAND_BYTES) if loop.tile.warpgroups > 1 else _SLICE_COLS
    slices = _slices(inner, relation.source, space.tiles[written[-1]], width)
    return (*rest, IfOwn(axis, inner, tuple(send), slices))


def _slices(own: tuple[Step, ...], onto: str, cols: int, width: int) -> int:
    """Slices of columns in which own tiles add parts, if `own` needs nothing of the tile but the own summand."""
    made = {onto}
    for step in own:
        match step:
            case SumParts(result=result) | Load(result=result):
                made.add(result)
            case Apply(result=result, arguments=arguments) if set(arguments) <= made:
                made.add(result)
            case Store(operand=operand) if operand.access is Access.POINTER:
                pass
            case Notify() | AwaitPlaces():
                pass
            case _:
                return 1
    return max(1, cols // width)


def _sends_to(step: Step, buffer: str, exchange: str) -> bool:
    match step:
        case Store(operand=operand):
            return operand.buffer == buffer
        case Notify(exchange=name):
            return name == exchange
    return False


def _group_steps(
    problem: Problem, group: Group, space: Space, onto: str, written: tuple[str, ...] = ()
) -> tuple[Step, ...]:
    """Waits, body, epilogue, stores and notifies of a group. `onto`: the own summand of a folded sum.
    `written` renames the written axes of a folded group to those of its host."""
    steps: list[Step] = []
    stored: list[Step] = []
    values: dict[str, str] = {}
    for number, (op, rename) in enumerate(renamed(group)):
        if written:
            rename = {op.write.axis_of(dim): axis for dim, axis in enumerate(written)}
        beside = group.anchor.name if 0 < number < group.matmuls else ""
        steps += _op_steps(problem, op, space, rename, values, onto, beside)
        values[op.name] = op.name
        if problem.structure.is_kept(op.name):  # another group, a SHIFT or the user needs the plain value
            index = tuple(rename.get(a, a) for a in map(op.write.axis_of, range(len(op.write.index))))
            access = _store_access(problem, op, index, space)
            rows = group.anchor.write.along  # what is folded lies as the anchor does
            along = tuple(None if by is None else by.how for by in rows)
            access = Access.POINTER if any(along) else access
            operand = Operand(op.name, index, access, local=space.local, along=along)
            stored.append(Store(op.name, operand, Place.HERE))
        for relation in sends(problem, op):
            stored += send_steps(problem, op, relation, space, rename)
        if number >= group.matmuls - 1:  # nothing comes between matmuls of one loop
            steps += stored
            stored = []
    return tuple(steps)


def _store_access(problem: Problem, op: TileOp, index: tuple[str, ...], space: Space) -> Access:
    if not isinstance(op.operation, Matmul | Elementwise | Attend) or space.local or space.inwards & set(index):
        return Access.POINTER
    return access_of(problem, op.name, index, space, problem.graph.values[op.name].shape)


def _op_steps(
    problem: Problem, op: TileOp, space: Space, rename: dict[str, str], values: dict[str, str], onto: str, beside: str
) -> list[Step]:
    def operand(read: Map) -> Operand:
        return read_operand(problem, op, read, space, rename)

    outside = [read for read in op.reads if read.value not in values]
    waits = [read_wait(problem, op, read, rename) for read in outside]
    early = [wait for wait in waits if wait is not None]
    match op.operation:
        case Matmul():
            axis = op.axes[2].name
            left, right = (operand(read) for read in op.reads)
            if space.segments[axis] > 1 and space.extents[axis] % space.tiles[axis]:
                # a step of k must not run into the next part, so both operands are masked
                left, right = (_by_pointer(o) for o in (left, right))
            inner = tuple(wait for wait in early if wait.slot == axis or _by_columns(problem, op, wait, space, axis))
            outer = [wait for wait in early if wait not in inner]
            if beside:  # the matmul whose loop it is has waited for the left operand, and the right one is an input
                outer = []
            return [*outer, MatmulBody(op.name, left, right, axis, inner, beside)]
        case UserOp(name=name, reads=reads):
            operands = tuple((reads[i][0], _by_pointer(operand(read))) for i, read in enumerate(op.reads))
            return [*early, UserBody(op.name, name, operands)]
        case Combine():
            rows, weights, ids = (_by_pointer(operand(read)) for read in op.reads)
            routed = next(one for one in problem.graph.routings if one.ids == op.reads[2].value)
            if rows.remote:  # which lie at the ranks of their experts
                routed = routed.on_ranks(problem.num_ranks)
            return [*early, CombineBody(op.name, rows, weights, ids, routed)]
        case Attend() as how:
            return attend_steps(op, how, tuple(map(operand, op.reads)), early, space)
        case Sum():
            wait = early[0] if early else None
            return [SumParts(op.name, _by_pointer(operand(op.reads[0])), wait, onto)]
        case Elementwise() | Copy():
            steps: list[Step] = list(early)
            arguments = []
            for read in op.reads:
                if read.value in values:
                    arguments.append(values[read.value])
                    continue
                name = tile_name(read.value, problem.graph.window(op, read))
                if name not in arguments:
                    steps += _load(problem, read, Load(name, _by_pointer(operand(read))))
                arguments.append(name)
            if isinstance(op.operation, Copy):
                return [*steps, Apply(op.name, "copy", tuple(arguments))]
            written = op.operation
            return [*steps, Apply(op.name, written.function, tuple(arguments), written.left, written.right)]


def _by_columns(problem: Problem, op: TileOp, wait: Wait, space: Space, axis: str) -> bool:
    """Whether the loop over k waits for chunks as it comes to them. Raises Illegal where a step of it has columns of two."""
    relation = problem.graph.relation(wait.exchange)
    assert relation is not None
    exchange = make_exchange(problem, relation)
    if exchange.cut is not Cut.COLUMNS or op.reads[0].value != wait.exchange:
        return False
    if space.own_first:
        raise Illegal(f"tiles of {op.name} with own rows come first, or all of them go by columns of {wait.exchange}")
    if exchange.chunk_cols % space.tiles[axis]:
        fact = f"chunks of {exchange.chunk_cols} columns of {wait.exchange}"
        raise Illegal(f"{fact} are no whole steps of {space.tiles[axis]} of the loop over k of {op.name}")
    return True


def _load(problem: Problem, read: Map, load: Load) -> list[Step]:
    """The load; of an item of a queue, between the wait for it and the word that its slot is free again."""
    relation = problem.graph.relation(read.value)
    if relation is None or relation.kind is not Kind.SHIFT:
        return [load]
    return [SlotWait(relation.name, load.operand.item), load, SlotNotify(relation.name, load.operand.item)]


def _by_pointer(operand: Operand) -> Operand:
    return replace(operand, access=Access.POINTER)


def _fitted(problem: Problem, role: ComputeRole, loop: TritonLoop) -> ComputeRole:
    """The role with what fits the shared memory of one program: stores through descriptors and prefetches while it
    stores, or stores by pointer, or does not prefetch. Raises Illegal for what fits in no way."""
    bodies = [step for step in role.body if isinstance(step, MatmulBody)]
    dtype, fold = problem.graph.values[role.name].dtype, fold_of(role)
    pointers = fold is not None and fold.keys.access is Access.POINTER
    if fold is not None and (fact := why_no_attention(loop.tile, dtype, problem.topology.gpu, by_pointer=pointers)):
        raise Illegal(fact)
    if not bodies:
        return role
    dtypes = [problem.graph.values[body.result].dtype for body in bodies]
    dtype = max(dtypes, key=lambda name: DTYPE_BYTES[name])
    reason = ""
    turns = loop.tile.warpgroups > 1
    ahead = loop.prefetch and not turns and _can_prefetch(problem, role)
    for prefetch in dict.fromkeys((ahead, False)):
        for body in dict.fromkeys((role.body, _stored_by_pointer(role.body))):
            if turns and body != _stored_by_pointer(role.body):
                continue
            tried = replace(role, body=body, prefetch=prefetch)
            reason = _no_room(tried, dtype, problem.topology.gpu, loop)
            if not reason:
                return tried
    raise Illegal(reason)


def _no_room(role: ComputeRole, dtype: str, gpu: Gpu, loop: TritonLoop) -> str:
    stores = [step.operand.access for step in flat(role.body) if isinstance(step, Store)]
    loads = any(isinstance(step, Load | SumParts) for step in flat(role.body))
    scratch = role.prefetch and (loads or Access.POINTER in stores)
    through = Access.DESCRIPTOR in stores
    return why_not(loop.tile, dtype, gpu, Held(matmuls_together(role.body), through, scratch))


def _stored_by_pointer(body: tuple[Step, ...]) -> tuple[Step, ...]:
    """Stores in branches are by pointer anyway."""
    return tuple(replace(step, operand=_by_pointer(step.operand)) if isinstance(step, Store) else step for step in body)
