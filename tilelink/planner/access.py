"""How a tile of a group reads and writes buffers, and what it waits for and notifies: derived from the access maps."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.errors import LARGEST_SIZE
from tilelink.ir.graph import GraphAxis, Interval, Map, Relation, Sum, TileOp, in_part
from tilelink.ir.nodes import Axis, Kind
from tilelink.ir.routed import Follows, Placed
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import (
    Access,
    AwaitPlaces,
    Notify,
    Operand,
    Place,
    Store,
    SumPackets,
    Wait,
    cut_axes,
)
from tilelink.ir.user_op import UserOp
from tilelink.planner.layout import Illegal, Problem, make_exchange, source_of


@dataclass(frozen=True, slots=True)
class Space:
    """Tile space of a role: per axis the number of segments and the tile extent (0: not tiled)."""

    extents: dict[str, int]  # of one segment
    segments: dict[str, int]
    tiles: dict[str, int]
    local: tuple[str, ...] = ()  # axes whose own segment is all there is (tiles folded into another role)
    own_first: bool = False  # tiles of own tokens come before rows of others do
    inwards: frozenset[str] = frozenset()  # axes whose last tiles are shifted inwards (`Axis.inwards`)
    descending: frozenset[str] = frozenset()  # axes whose tiles come from the last one on

    def ragged(self, axis: str) -> bool:
        """The last tile of a segment reaches past its end. What has no axis is one element."""
        return bool(axis) and axis not in self.inwards and self.extents[axis] % max(1, self.tiles.get(axis, 0)) > 0

    def axis(self, of: GraphAxis) -> Axis:
        """The axis of a role that is cut so."""
        cut = self.extents[of.name], self.segments[of.name], self.tiles[of.name]
        return Axis(of.name, *cut, of.reduction, of.routed, of.name in self.inwards, of.name in self.descending)

    def whole_tiles(self, axis: str) -> bool:
        """No tile along `axis` reaches past the end of its segment into the next one."""
        return self.segments.get(axis, 1) == 1 or not self.ragged(axis)


def slot_axis(op: TileOp, read: Map, relation: Relation) -> str:
    """The axis along which parts of the relation lie in the op's tile space."""
    return read.axis_of(0) if relation.stacked else read.axis_of(relation.dim)


def part_index(read: Map, relation: Relation) -> tuple[str, ...]:
    """Axis of each dimension of a part."""
    dims = range(1 if relation.stacked else 0, len(read.index))
    return tuple(read.axis_of(dim) for dim in dims)


def reads_whole(op: TileOp, read: Map, relation: Relation) -> bool:
    """Whether all parts are read as one tensor: by a user's body that reduces over them, and by who finds rows by a routing."""
    if any(read.along):
        return True
    return isinstance(op.operation, UserOp) and op.axis(slot_axis(op, read, relation)).reduction


def read_operand(problem: Problem, op: TileOp, read: Map, space: Space, rename: dict[str, str]) -> Operand:
    """The operand for one read of `op`; `rename` maps its axes to those of the role."""
    relation = problem.graph.relation(read.value)
    index = tuple(rename.get(axis, axis) for axis in read.axes)
    window = problem.graph.window(op, read)
    if relation is not None and relation.kind is Kind.SHIFT:
        return Operand(relation.name, index, Access.POINTER, item=index[0])
    if any(read.along):
        along = tuple(None if by is None else by.how for by in read.along)
        access, shape = Access.POINTER, problem.graph.values[read.value].shape
        ragged = any(space.extents[axis] % max(1, space.tiles.get(axis, 0)) for axis in index[1:])
        if along[0] is Follows.EXPERT and not ragged and shape[0] * shape[1] <= LARGEST_SIZE:
            access = access_of(problem, read.value, index[1:], space, shape[1:])
        if relation is not None and relation.kind is Kind.RETURN:
            exchange = make_exchange(problem, relation)
            buffer, remote = exchange.target or exchange.source, not exchange.target
            return Operand(buffer, index, access, local=space.local, remote=remote, along=along)
        if relation is not None and not relation.library:
            sent = make_exchange(problem, relation).sent
            if isinstance(sent, Placed):
                access = access_of(problem, read.value, index, space, (sent.places, *shape[1:]))
                return Operand(read.value, index, access, local=space.local, along=(Follows.PLACE, *along[1:]))
        own = _own_rows(problem, relation) if space.own_first and relation is not None else ""
        return Operand(read.value, index, access, own=own, local=space.local, along=along)
    if relation is None or relation.plain or reads_whole(op, read, relation):
        access = access_of(problem, read.value, index, space, problem.graph.values[read.value].shape, window)
        return Operand(read.value, index, access, local=space.local, window=window)
    slot = rename.get(slot_axis(op, read, relation), slot_axis(op, read, relation))
    index = tuple(rename.get(axis, axis) for axis in part_index(read, relation))
    window = in_part(window, relation)
    access = access_of(problem, read.value, index, space, relation.part, window)
    if len(index) == 2 and space.ragged(index[0]) and not op.axis(part_index(read, relation)[0]).reduction:
        access = Access.POINTER  # to a descriptor the next part begins where rows of this one end
    if relation.library:
        return Operand(relation.name, index, access, slot=slot, local=space.local, window=window)
    exchange = make_exchange(problem, relation)
    parts = problem.num_ranks if relation.kind is Kind.SCATTER else 1
    if not exchange.target:
        access, local = Access.POINTER, space.local
        return Operand(exchange.source, index, access, slot, own_slots=parts, local=local, remote=True, window=window)
    own = "" if exchange.own_copied else exchange.source
    return Operand(exchange.target, index, access, slot, own, parts, space.local, window=window)


def _own_rows(problem: Problem, relation: Relation) -> str:
    """The buffer that holds rows of own tokens and no others. Raises Illegal."""
    exchange = make_exchange(problem, relation)
    if exchange.source in ("", exchange.target):
        raise Illegal(f"own rows of {relation.name} are stored among those of peers, and have no tensor of their own")
    return exchange.source


def access_of(
    problem: Problem,
    value: str,
    index: tuple[str, ...],
    space: Space,
    shape: tuple[int, ...],
    window: tuple[Interval, ...] = (),
) -> Access:
    """Descriptors where the GPU has them, rows start at multiples of 16 bytes, no tile crosses a part or the end of a window
    in it, and the rows of the parts of all ranks are few enough for the coordinates of a descriptor, which have 32 bits."""
    if any(map(space.ragged, cut_axes(index, shape, window))):
        return Access.POINTER
    row_bytes = shape[-1] * DTYPE_BYTES[problem.graph.values[value].dtype]
    tiled = len(index) == 2 and all(space.tiles.get(axis, 0) >= 8 for axis in index)
    counted = tiled and problem.num_ranks * shape[0] <= LARGEST_SIZE
    inner = counted and space.tiles[index[1]] <= 256 and space.tiles[index[0]] <= 256
    aligned = inner and row_bytes % 16 == 0 and all(space.whole_tiles(axis) for axis in index)
    # columns of a segment start anywhere in the row, which must be a multiple of 16 bytes as well
    size = DTYPE_BYTES[problem.graph.values[value].dtype]
    start = space.extents[index[1]] * size if aligned else 0
    even = aligned and (space.segments.get(index[1], 1) == 1 or start % 16 == 0)
    even = even and not (window and window[-1][0] * size % 16)
    return Access.DESCRIPTOR if even and problem.topology.gpu.tensor_descriptors else Access.POINTER


def read_wait(problem: Problem, op: TileOp, read: Map, rename: dict[str, str]) -> Wait | None:
    """What the tile waits for before it reads, or None if everything is there when the kernel starts."""
    relation = problem.graph.relation(read.value)
    if relation is None or relation.library or relation.kind is Kind.SHIFT:
        return None
    exchange = make_exchange(problem, relation)
    axis = slot_axis(op, read, relation)
    rows_axis = part_index(read, relation)[0]
    whole = not rows_axis or op.axis(rows_axis).reduction or any(read.along)
    rows = "" if whole else rename.get(rows_axis, rows_axis)
    every = reads_whole(op, read, relation) or isinstance(op.operation, Sum)
    return Wait(exchange.name, rename.get(axis, axis), rows, every, own=exchange.sent is not None)


def send_steps(
    problem: Problem, op: TileOp, relation: Relation, space: Space, rename: dict[str, str]
) -> tuple[AwaitPlaces | Store | Notify | SumPackets, ...]:
    """Store the tile into the source of `relation` (or straight to the peers) and count it; or add it to those of the peers,
    and store the sum."""
    index = tuple(rename.get(op.write.axis_of(dim), op.write.axis_of(dim)) for dim in range(len(op.write.index)))
    slot = index[relation.dim] if relation.kind is Kind.SCATTER else ""
    if relation.in_tiles:
        shares = problem.num_ranks if slot else 1
        operand = Operand(relation.name, index, Access.POINTER, own_slots=shares, cut=slot)
        assert relation.by_packets, "tiles that add send packets"
        total = SumPackets(relation.name, op.name, index, slot, relation.how.protocol, relation.how.shots)
        return total, Store(relation.name, operand, Place.HERE)
    if relation.library:
        slot = slot if problem.structure.source_in_parts(relation) else ""
        operand = Operand(source_of(problem, relation), index, Access.POINTER, slot=slot, local=space.local)
        return (Store(op.name, operand, Place.HERE),)
    exchange = make_exchange(problem, relation)
    if relation.kind is Kind.RETURN:
        along = tuple(None if by is None else by.how for by in op.write.along)
        operand = Operand(exchange.source or exchange.target, index, Access.POINTER, along=along)
        return (Store(op.name, operand, Place.HERE if exchange.source else Place.TOKEN),)
    target = Place.PEER if relation.kind is Kind.SCATTER else Place.EVERY_PEER
    if exchange.met:
        operand = Operand(exchange.target, index, Access.POINTER, local=space.local)
        if not exchange.source:
            store = Store(op.name, operand, Place.EVERY_PEER)
            return (AwaitPlaces(exchange.name), store) if problem.structure.pooled(relation) else (store,)
        return Store(op.name, operand, Place.OWN), Notify(exchange.name, slot, index[0], target)
    if not exchange.source:
        operand = Operand(exchange.target, index, Access.POINTER, slot=slot, local=space.local)
        notify = Notify(exchange.name, slot, index[0], target)
        return Store(op.name, operand, target), notify
    operand = Operand(exchange.source, index, Access.POINTER, slot=slot, local=space.local)
    return Store(op.name, operand, Place.HERE), Notify(exchange.name, slot, index[0], target)
