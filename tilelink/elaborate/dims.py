"""Names for the numbers of a planned schedule: what the planner chose, sizes, and what follows from both.

`Names` gives the schedule with numbers that know their names. Elaboration decides by their values, and computes with them:
`position // (axis.tiles * group)` is an index of names at the end, in which `in_names` puts the names of what follows.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.elaborate.packet_dims import name_blocks
from tilelink.elaborate.packet_rails import blocks_to_put
from tilelink.elaborate.packets import Blocks
from tilelink.elaborate.rank_dims import of_a_node, rank_order
from tilelink.elaborate.signals import declared, moves_of, raised
from tilelink.elaborate.sizes import Key, Sizes, nodes_in
from tilelink.elaborate.states import of_merge
from tilelink.elaborate.tiles import in_tiles
from tilelink.ir import steps as ir
from tilelink.ir.calls import PacketCollective, StateMerge
from tilelink.ir.counting import chunk_arrivals, in_one_chunk
from tilelink.ir.node_sums import in_strips, landings
from tilelink.ir.nodes import Axis, Buffer, CommRole, ComputeRole, Exchange, Kernel
from tilelink.ir.order import Cut, RankOrder
from tilelink.ir.routed import Sent
from tilelink.ir.schedule import Schedule as Planned
from tilelink.ir.walk import changed
from tilelink.schedule.index import Index, Number, names_in
from tilelink.schedule.instance import with_indices
from tilelink.schedule.known import Known, known, origin
from tilelink.schedule.memory import Dim
from tilelink.schedule.roles import Schedule


class Names:
    """`schedule`: the planned one, whose numbers know their names."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.dims: dict[str, Dim] = {}
        self.folded: dict[Index, Index] = {}  # what follows from dims, and what it is called
        self.taken = {buffer.name for buffer in planned.buffers} | {signal.name.upper() for signal in declared(planned)}
        self.roles = [kernel.compute for kernel in planned.kernels() if kernel.compute is not None]
        self.ranks = self.size("NUM_RANKS", planned.num_ranks, "ranks of the group")
        self.sizes, self.named = Sizes(planned), dict[Key, int]()
        self.chain: tuple[int, int] | None = None  # programs of the loops so far in a launch, and their tiles
        # of slices, by what names begin with: number -> the number with a name
        self.firsts = dict[str, dict[int, int]]()
        self.listed: dict[str, Sent] = {}
        self.movers = {comm.exchange: self._movers(comm) for one in planned.kernels() for comm in one.beside}
        exchanges = tuple(self._exchange(one) for one in planned.exchanges)
        self.exchanges = {one.name: one for one in exchanges}
        self.schedule = replace(
            planned,
            machine=replace(planned.machine, num_ranks=self.ranks),
            exchanges=exchanges,
            buffers=tuple(map(self._buffer, planned.buffers)),
        )
        self.schedule = replace(self.schedule, launches=changed(planned.launches, self._node))

    def in_names(self, schedule: Schedule) -> Schedule:
        """`schedule` with names for its numbers, and the dims that it uses."""
        found = set[str]()
        known: dict[Number, Number] = {}

        def change(index: Number) -> Number:
            whole = origin(index)
            if whole not in known:
                known[whole] = self.fold(whole)
                found.update(names_in(known[whole]))
            return known[whole]

        named = with_indices(schedule, change)
        needed = list(found)
        while needed:
            dim = self.dims.get(needed.pop())
            more = names_in(dim.size) - found if dim else frozenset()
            found |= more
            needed += more
        kept = [dim for dim in self.dims.values() if dim.name in found]
        rules = [tuple(by for by in dim.multiples if names_in(by) <= found) for dim in kept]
        dims = [replace(dim, multiples=multiples) for dim, multiples in zip(kept, rules, strict=True)]
        dims.sort(key=lambda dim: (isinstance(dim.size, Index), not dim.chosen, dim.chosen and "TILE_" not in dim.name))
        return replace(named, dims=tuple(dims))

    def fold(self, index: Number) -> Number:
        """`index` with the names of what follows from dims."""
        if isinstance(index, int) or index.is_name:
            return index
        inner = Index(index.op, tuple(map(self.fold, index.args)))
        return self.folded.get(inner, inner)

    # ---- numbers with names

    def size(self, name: str, value: int, title: str, chosen: bool = False) -> int:
        """`value`, called `name`; without a name, if something else has that."""
        name = name.upper()
        if name in self.taken:
            return value
        self.taken.add(name)
        self.dims[name] = Dim(name, value, title, chosen)
        return Known(value, Index(name))

    def choice(self, name: str, value: int, title: str) -> int:
        return self.size(name, value, title, chosen=True)

    def derived(self, name: str, value: int, title: str, text: int | None = None) -> None:
        """What `value` is called wherever it stands. `text`: the same number, as an expression that reads better."""
        index, name = self.fold(origin(value)), name.upper()
        if isinstance(index, int) or index.is_name or index in self.folded or name in self.taken:
            return
        self.taken.add(name)
        self.dims[name] = Dim(name, self.fold(origin(value if text is None else text)), title)
        self.folded[index] = Index(name)

    def rule(self, size: int, by: int) -> None:
        """The steps rely on this: `by` divides `size`."""
        of, one = self.fold(origin(size)), self.fold(origin(by))
        if isinstance(of, Index) and of.is_name and isinstance(one, Index) and one not in self.dims[of.op].multiples:
            dim = self.dims[of.op]
            self.dims[of.op] = replace(dim, multiples=(*dim.multiples, one))

    def extent(self, key: Key) -> int:
        """A size of an axis, a part or a buffer, as it follows from another one."""
        if key not in self.named:
            free, times = self.sizes.of[key]
            value = self.sizes.values[key]
            name, title = self._called(key)
            self.named[key] = value
            if free == key:
                self.named[key] = self.size(name, value, title)
            elif isinstance(base := self.extent(free), Known):
                follows = origin(base if times == 1 else self.ranks * base)
                self.named[key] = self.following(name.upper(), value, follows, title)
        return self.named[key]

    def following(self, name: str, value: int, follows: Number, title: str) -> int:
        if name in self.dims and self.dims[name].size == follows:
            return Known(value, Index(name))
        if name in self.taken:
            return known(value, follows)
        self.taken.add(name)
        self.dims[name] = Dim(name, follows, title)
        return Known(value, Index(name))

    def _called(self, key: Key) -> tuple[str, str]:
        """The name of a size, and what it is."""
        kind, name, place = key
        match kind:
            case "axis":
                before = f"{name}_" if len(self.roles) > 1 else ""
                axis = next(role for role in self.roles if role.name == name).axis(str(place))
                return f"{before}{place}_SIZE", f"extent along {place}{' of one segment' if axis.segments > 1 else ''}"
            case "rows":
                return f"{name}_ROWS", f"rows of a part of {name}"
        dims = len(self.planned.buffer(name).shape)
        assert isinstance(place, int)
        what = {1: "columns", 2: "rows"}.get(dims - place, f"size_{place}")
        suffix = {"columns": "COLS", "rows": "ROWS"}.get(what, what)
        return f"{name}_{suffix}", f"{what.replace('_', ' ')} of {name}"

    # ---- nodes

    def _buffer(self, buffer: Buffer) -> Buffer:
        """A buffer whose sizes are what parts, slots and ranks are."""
        shape = list(buffer.shape)
        ring = next((one for one in self.exchanges.values() if one.slots and one.target == buffer.name), None)
        rooms = dict(landing for one in self.exchanges.values() for landing in landings(one))
        for dim, extent in enumerate(shape):
            if dim == 0 and buffer.name in rooms:
                shape[dim] = rooms[buffer.name]
                continue
            key = ("buffer", buffer.name, dim)
            alone = sum(free == key for free, _ in self.sizes.of.values()) == 1
            if ring is not None and dim < 2 and extent == (ring.slots, ring.chunk_rows)[dim]:
                shape[dim] = (ring.slots, ring.chunk_rows)[dim]
            elif dim == 0 and len(shape) > 2 and alone and extent == self.ranks:
                shape[dim] = self.ranks
            else:
                shape[dim] = self.extent(key)
        return replace(buffer, shape=tuple(shape))

    def _movers(self, comm: CommRole) -> int:
        return self.choice(f"{comm.exchange}_PROGRAMS", comm.programs, f"programs that move {comm.exchange}")

    def _warps(self, comm: CommRole) -> CommRole:
        """Rows that warps move at once."""
        title = f"rows of {comm.exchange} that a warp moves before it tells of them"
        rows, exchange = self.choice(f"{comm.exchange}_MOVED_ROWS", comm.rows, title), self.exchanges[comm.exchange]
        found, whole = replace(comm, rows=rows), not exchange.rows % comm.rows
        self.derived(
            f"{comm.exchange}_MOVES", moves_of(exchange, found), f"moves of a chunk of {comm.exchange} by warps"
        )
        if whole:
            self.rule(exchange.rows, rows)
        return found

    def _exchange(self, exchange: Exchange) -> Exchange:
        name, chunks, slots = exchange.name, exchange.chunks, exchange.slots
        rows = self.extent(("rows", name, 0))
        if chunks > 1:
            title = f"{'items' if slots else 'chunks of a part'} of {name}"
            chunks = self.size(f"{name}_CHUNKS", chunks, title, chosen=not slots)
        if slots:
            slots = self.size(f"{name}_SLOTS", slots, f"slots of the ring buffer {exchange.target}")
        order = changed(exchange.order, self._node)
        sent = self._sent(exchange.sent) if isinstance(exchange.sent, Sent) else exchange.sent
        found = replace(
            exchange, rows=rows, cols=self._cols(exchange), chunks=chunks, slots=slots, order=order, sent=sent
        )
        if chunks > 1:
            rowwise = found.cut is Cut.ROWS
            what, extent, size = (
                ("rows", rows, found.chunk_rows) if rowwise else ("columns", found.cols, found.chunk_cols)
            )
            title = f"{what} of {'an item' if slots else 'a chunk'} of {name}: one signal covers them"
            even = extent // chunks if extent % chunks == 0 else None
            self.derived(f"{name}_CHUNK_{'ROWS' if rowwise else 'COLS'}", size, title, even)
            if extent % size == 0:
                self.rule(extent, size)
        if found.relayed and (cut := in_strips(found)).chunks > chunks:
            self.derived(f"{name}_STRIP_ROWS", cut.chunk_rows, f"rows of {name} that a node adds at a time")
            self.rule(rows, cut.chunk_rows)
        return found

    def _sent(self, sent: Sent) -> Sent:
        """Rows that ranks need, of blocks of tokens."""
        if sent.name not in self.listed:
            tokens = self.extent(("rows", sent.name, 0))
            strips, name = sent.strips, sent.name
            rows = self.size(f"{name}_BLOCK_ROWS", sent.rows, f"tokens of a block, whose rows of {name} are listed")
            self.derived(f"{name}_BLOCKS", tokens // rows, f"blocks of the own rows of {name}")
            if sent.by_node:
                strips = self.size(f"{name}_STRIPS", strips, f"strips in which rows of {name} go to a node")
                self.derived(f"{name}_STRIP_BLOCKS", -(-(tokens // rows) // strips), f"blocks of a strip of {name}")
                if tokens // rows % strips == 0:  # a last strip with fewer blocks has steps of its own
                    self.rule(tokens // rows, strips)
            self.listed[sent.name] = replace(sent, tokens=tokens, rows=rows, strips=strips)
        return self.listed[sent.name]

    def _cols(self, exchange: Exchange) -> int:
        """Columns of a part: those of the buffers that have it."""
        for name, shape in self.sizes.shapes.items():
            if name in (exchange.source, exchange.target) and len(shape) > 1 and shape[-1] == exchange.cols:
                return self.extent(("buffer", name, len(shape) - 1))
        return exchange.cols

    def _node(self, node: object) -> object:
        match node:
            case RankOrder():
                return rank_order(self, node)
            case ir.Operand():
                return self._operand(node)
            case Sent():
                return self._sent(node)
            case CommRole():
                return self._warps(node) if node.inside else replace(node, programs=self.movers[node.exchange])
            case Kernel(compute=ComputeRole() as role):  # whose roles have names
                inside = (replace(one, programs=role.programs) if one.inside else one for one in node.comm)
                return replace(node, comm=tuple(inside))
            case PacketCollective():
                return self._packets(node)
            case ComputeRole():
                return self._role(node)
            case StateMerge():
                made = of_merge(node, int(self.planned.num_ranks))
                numbers = {what: self.size(f"{node.out}_{name}", value, title) for what, name, value, title in made}
                return node.with_numbers(**numbers)
        return node

    def _operand(self, operand: ir.Operand) -> ir.Operand:
        """An operand that lies in windows starts where they do."""
        window = tuple(
            (self._first(operand, dim, first) if first else first, end)
            for dim, (first, end) in enumerate(operand.window)
        )
        own_slots = self.ranks if operand.own_slots == self.ranks else operand.own_slots
        return replace(operand, window=window, own_slots=own_slots)

    def _first(self, operand: ir.Operand, dim: int, first: int) -> int:
        """The place along a dimension where a slice of a buffer begins; slices of one buffer are numbered."""
        what = {1: "column", 2: "row"}.get(len(operand.index) - dim, f"place along dimension {dim}")
        before = f"{operand.buffer}_FIRST_{what.upper().replace(' ', '_')}"
        starts = self.firsts.setdefault(before, {})
        if first not in starts:
            number = f"_{len(starts) + 1}" if starts else ""
            starts[first] = self.size(f"{before}{number}", first, f"first {what} of a slice of {operand.buffer}")
        return starts[first]

    def _packets(self, launch: PacketCollective) -> PacketCollective:
        name_blocks(self, Blocks(self.schedule, launch), "moves")
        programs = self.choice(f"{launch.out}_PACKETS_PROGRAMS", launch.programs, f"programs that move {launch.out}")
        if not launch.per_node:
            return replace(launch, programs=programs)
        name_blocks(self, blocks_to_put(self.schedule, launch), "puts")
        puts = self.choice(f"{launch.out}_PUTS_PROGRAMS", launch.puts, f"programs that put {launch.out} to other nodes")
        return replace(launch, programs=programs, puts=puts, per_node=of_a_node(self, launch.per_node))

    def _role(self, role: ComputeRole) -> ComputeRole:
        before = f"{role.name}_" if len(self.roles) > 1 else ""
        axes = tuple(self._axis(role, axis, before) for axis in role.axes)
        order, halved, split = role.order, role.halved, role.split
        title = f"programs that compute tiles of {role.name}; all are resident"
        goes_on = role.first > 0 and self.chain is not None
        programs = self.chain[0] if goes_on and self.chain else self.choice(f"{before}PROGRAMS", role.programs, title)
        first = self.chain[1] if goes_on and self.chain else role.first
        walk = f"walk along {order.minor} together and share L2" if order.minor else "form a group"
        group = self.choice(f"{before}GROUP_{order.major}", order.group, f"tiles along {order.major} that {walk}")
        if halved:
            halved = self.choice(f"{before}HALVED", halved, f"last tiles of {role.name}, which are computed in halves")
        order = replace(order, group=group)
        if split:
            split = self.choice(
                f"{before}SPLIT", split, f"last tiles of {role.name}, each by {role.splits} programs along k"
            )
        found = replace(role, programs=programs, axes=axes, order=order, halved=halved, split=split, first=first)
        major, minor = found.axis(order.major), found.axis(order.minor) if order.minor else None
        if major.segments > 1 and minor is not None:
            title = f"tiles of {role.name} in one segment along {major.name}"
            self.derived(f"{before}SEGMENT_TILES", major.tiles * (minor.segments * minor.tiles), title)
        self.derived(f"{before}NUM_TILES", found.num_tiles, f"tiles of {role.name}")
        if first:
            self.derived(f"{before}END", first + found.num_tiles, f"positions up to the last tile of {role.name}")
        self.chain = programs, first + found.num_tiles
        if major.tiles % group == 0:
            self.rule(major.tiles, group)
        self._chunks_of(found)
        self._counted(found, found.body, ())
        return found

    def _axis(self, role: ComputeRole, axis: Axis, before: str) -> Axis:
        name, segments, tile = axis.name, axis.segments, axis.tile
        of_segment = " of one segment" if segments > 1 else ""
        most = ", at most" if axis.routed is not None else ""
        size = self.extent(("axis", role.name, name))
        if segments > 1:
            title = f"segments along {name}; a tile lies in one of them"
            same = segments == self.ranks
            segments = self.ranks if same else self.size(f"{before}{name}_SEGMENTS", segments, title)
        if not tile:
            return replace(axis, extent=size, segments=segments)
        title = f"extent along {name} of a tile of {role.name}"
        waits = [step for step in nodes_in(role.body) if isinstance(step, ir.SlotWait)]
        items = [self.exchanges[step.exchange].chunk_rows for step in waits if step.rows == name]
        item = next((rows for rows in items if rows == tile), None)  # a tile is an item, of which there is one
        free = not waits and axis.routed is None  # tables are made for tiles of a height
        tile = item or self.size(f"{before}TILE_{name}", tile, title, chosen=free)
        found = replace(axis, extent=size, segments=segments, tile=tile)
        whole = size % tile == 0 and axis.routed is None
        self.derived(
            f"{before}{name}_TILES",
            found.tiles,
            f"tiles along {name}{of_segment}{most}",
            size // tile if whole else None,
        )
        if whole:
            self.rule(size, tile)
        return found

    def _chunks_of(self, role: ComputeRole) -> None:
        """Tiles that lie in one chunk each, of what they wait for or count."""
        for step in nodes_in(role.body):
            if not isinstance(step, ir.Wait | ir.Notify) or not step.rows:
                continue
            exchange, axis = self.exchanges[step.exchange], role.axis(step.rows)
            if exchange.chunks == 1 or not in_one_chunk(axis, exchange, local=step.rows == step.slot):
                continue
            self.rule(exchange.chunk_rows, axis.tile)
            if step.rows != step.slot and axis.segments > 1 and axis.extent % exchange.chunk_rows == 0:
                self.rule(axis.extent, exchange.chunk_rows)

    def _counted(self, role: ComputeRole, body: tuple[ir.Step, ...], own: tuple[str, ...]) -> None:
        """Where tiles that complete a chunk are a number without names, what they depend on is no choice any more."""
        for step in body:
            match step:
                case ir.IfOwn(axis, mine, others):
                    self._counted(role, mine, (*own, axis))
                    self._counted(role, others, own)
                case ir.Notify():
                    exchange = self.exchanges[step.exchange]
                    counts = chunk_arrivals(role, step, exchange, own)
                    same = len(set(counts)) == 1
                    named = same and isinstance(in_tiles(role, step, exchange, own, counts[0]), Known)
                    if not named and (same or raised(exchange) is None):
                        self._fixed(role, exchange)

    def _fixed(self, role: ComputeRole, exchange: Exchange) -> None:
        for number in (exchange.chunks, *(axis.tile for axis in role.axes if not axis.reduction)):
            for name in names_in(origin(number)):
                self.dims[name] = replace(self.dims[name], chosen=False)
