"""A schedule with routings as one without: rows in the order of their places, for every routing at once.

Tables of a routing keep to laws (`tilelink.ir.routed`): `rows` has each assignment once, `tokens` is the token of each, and
`experts` the expert of all rows of a tile. So what lies in the order of the tables is what lies by assignment, in another order:

    left = x[tokens[p + lane] : +here[i], k]      ->  left = x_by_tokens[p : +height, k]
    left = x[tokens[p + lane] - rank * T : ...]   ->  left = x_own[p : +height, k], which has the first tiles only
    right = w[experts[i], k, n]                   ->  right = w_by_experts[i * K + k, n]
    store h -> h[rows[p + lane] : +here[i], n]    ->  store h -> h_by_rows[p : +height, n]
    h = grouped_matmul(x, w, routing)             ->  h_by_rows[p] = x_by_tokens[p] @ w_by_experts[i * K : +K]
    part = h[(t + lane) * choices + j, n]         ->  part = h_by_choices[t, j * N + n]
    for each peer: store h ->                     ->  for each peer: store h -> h_back[peer, p : +height, n]
        b[rows[p + lane] - peer * T : +here, n]@peer

Calls of `REORDERED` stand for the laws: where a tensor lies whole in one order, it lies whole in the other one. Calls of
`RETURNED` stand for another one, that each row is of an expert of one rank: all rows of a rank's tokens come, if each rank stores
all of its own at each rank, from the first row of its tokens on. Calls of `OWN_ROWS` stand for a third one: the first tiles have
rows of own tokens, which a gather brings as they are. How many such tiles there are, a routing says; here each rank has another
number of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilelink.ir.spec import (
    BoundNode,
    BoundSpec,
    BoundValue,
    Combine,
    Elementwise,
    GroupedMatmul,
    Return,
    Route,
    Spread,
)
from tilelink.proof.contents.listed import with_all_rows
from tilelink.proof.contents.orders import (
    OF_OWN,
    OWN_ROWS,
    REORDERED,
    RETURNED,
    BlockMatmul,
    CombineChoices,
    Reordered,
    Returned,
)
from tilelink.proof.contents.placed import with_rows_by_token
from tilelink.proof.contents.tables import Sorts, is_of, sorts
from tilelink.schedule.index import Index, Number, least, less, names_in, rank, replaced, tables_in
from tilelink.schedule.instance import with_indices
from tilelink.schedule.memory import Buffer, Memory, Region
from tilelink.schedule.roles import Host, Launch, Phase, Role, Schedule
from tilelink.schedule.steps import SORT_ROWS, Call, If, Load, Step, Store
from tilelink.schedule.walk import all_steps, mapped, with_bodies, with_phases


def in_order_of_tables(schedule: Schedule, spec: BoundSpec) -> tuple[Schedule, BoundSpec]:
    """Schedule and spec without tables. `schedule` has numbers for its dims."""
    made = [step for step in all_steps(schedule) if isinstance(step, Call) and step.function == SORT_ROWS]
    if not made and not any(isinstance(node.operation, Combine) for node in spec.nodes):
        return schedule, spec
    return _Reordering(with_all_rows(with_rows_by_token(schedule), spec), spec, made).both()


@dataclass(frozen=True, slots=True)
class _Tables:
    """Of one routing and tile height. `places`: of all tiles that there may be."""

    rows: str
    tokens: str
    experts: str
    here: str
    count: str
    places: int
    tiles: int
    ids: str
    told: Sorts
    own: str = ""  # where rows of own tokens come first

    @property
    def own_tiles(self) -> Number:
        """How many tiles have their rows only: more by one on the next rank, so that this is no multiple of a group's on each."""
        return least(self.tiles // 2 + rank, self.tiles)

    @property
    def height(self) -> int:
        return self.places // self.tiles


class _Reordering:
    def __init__(self, schedule: Schedule, spec: BoundSpec, made: list[Call]) -> None:
        self.schedule, self.spec = schedule, spec
        self.shapes = schedule.shapes
        self.buffers: dict[str, Buffer] = {buffer.name: buffer for buffer in schedule.buffers}
        self.tables: list[_Tables] = []
        for step in made:
            _, _, rows, tokens, experts, here, count, *own = step.tables
            places, tiles = self.shapes[rows][0], self.shapes[experts][0]
            ids, told = step.operands[0].buffer, sorts(schedule, step)  # both of the spec, as `tables.py` has found
            self.tables.append(_Tables(rows, tokens, experts, here, count, places, tiles, ids, told, *own))
        self.new: dict[str, Buffer] = {}
        self.before: list[tuple[str, str]] = []  # (buffer, the same in an order): read there
        self.after: list[tuple[str, str]] = []  # written there
        self.back: list[tuple[str, str]] = []  # rows of it are written there, a copy for each rank
        self.own: dict[tuple[str, str], _Tables] = {}  # rows of own tokens are read there

    def both(self) -> tuple[Schedule, BoundSpec]:
        known: dict[Number, Number] = {Index(one.count, (0,)): one.tiles for one in self.tables}
        known |= {Index(one.own, (0,)): one.own_tiles for one in self.tables if one.own}
        schedule = with_indices(self.schedule, lambda index: _with(index, known))
        schedule = with_bodies(schedule, self._without_guards)
        schedule = with_phases(schedule, lambda _, phase: replace(phase, body=mapped(phase.body, self._step)))
        first = tuple(self._call(f"before_{new}", new, old) for old, new in dict.fromkeys(self.before))
        first += tuple(self._own_rows(new, old, one) for (old, new), one in self.own.items())
        last = tuple(self._call(f"after_{new}", old, new) for old, new in dict.fromkeys(self.after))
        last += tuple(self._call(f"after_{new}", old, new, RETURNED) for old, new in dict.fromkeys(self.back))
        buffers = (*schedule.buffers, *self.new.values())
        return replace(schedule, launches=(*first, *schedule.launches, *last), buffers=buffers, tables=()), self._spec()

    def _call(self, name: str, out: str, source: str, function: str = REORDERED) -> Launch:
        regions = (self._whole(out), self._whole(source))
        step = Call(function, (regions[0],), (regions[1],))
        return Launch("main", (Role(name, Host(), (Phase(1, (step,)),)),))

    def _own_rows(self, out: str, source: str, tables: _Tables) -> Launch:
        """Rows of own tokens in the order of their places, as far as these are those of the first tiles."""
        places, width = tables.own_tiles * tables.height, self.new[out].shape[1]
        step = Call(OWN_ROWS, (Region(out, (0, 0), (places, width)),), (self._whole(source),))
        return Launch("main", (Role(f"before_{out}", Host(), (Phase(1, (step,)),)),))

    def _whole(self, name: str) -> Region:
        shape = self.new[name].shape if name in self.new else self.shapes[name]
        return Region(name, (0,) * len(shape), shape)

    def _without_guards(self, body: tuple[Step, ...]) -> tuple[Step, ...]:
        """Tiles without rows do nothing, so that it does not matter what they would do."""
        here = {one.here for one in self.tables}

        def step(one: Step) -> tuple[Step, ...]:
            if isinstance(one, If) and isinstance(one.left, Index) and one.left.op in here and one.right == 0:
                return one.others if not one.body else (one,)
            return (one,)

        return mapped(body, step)

    # ---- steps
    def _step(self, step: Step) -> tuple[Step, ...]:
        match step:
            case Load(region=region):
                return (replace(step, region=self._region(region, self.before)),)
            case Store(region=region):
                return (replace(step, region=self._region(region, self.after)),)
            case Call(function=function) if function == SORT_ROWS:
                return (replace(step, tables=(), numbers=()),)
        return (step,)

    def _region(self, region: Region, used: list[tuple[str, str]]) -> Region:
        first, before = less(region.start[0])
        if before != 0:
            return (self._returned if used is self.after else self._of_own)(region, first, before)
        if not isinstance(first, Index) or not (tables_in(first) or "lane" in names_in(first)):
            return region
        for one in self.tables:
            if first.op == one.experts:
                _, depth, width = self.shapes[region.buffer]
                name = self._made(region.buffer, "experts", one, (one.tiles * depth, width))
                (tile,), (_, k, n), (_, rows, cols) = first.args, region.start, region.extent
                used.append((region.buffer, name))
                return replace(region, buffer=name, start=(tile * depth + k, n), extent=(least(rows, depth - k), cols))
            if first.op in (one.rows, one.tokens):
                what = "rows" if first.op == one.rows else "tokens"
                name = self._made(region.buffer, what, one, (one.places, self.shapes[region.buffer][1]))
                used.append((region.buffer, name))
                if (extent := self._rows(region, first, one)) is None:
                    return region
                start = (replaced(first.args[0], {"lane": 0}), region.start[1])
                return replace(region, buffer=name, start=start, extent=(extent, region.extent[1]))
        if tables_in(first):
            return region
        return self._choices(region, first, used)

    def _rows(self, region: Region, first: Index, tables: _Tables) -> Number | None:
        """How many places an access has that looks up its rows."""
        place, rows = replaced(first.args[0], {"lane": 0}), region.extent[0]
        if not isinstance(rows, Index) or rows.op != tables.here:
            return None
        wrong = place - rows.args[0] * tables.height  # the tile has so many rows that begins there, or else none
        return tables.height - wrong * wrong * tables.height

    def _returned(self, region: Region, first: Number, before: Number) -> Region:
        """Rows that a rank stores at another one, in the order of its tables. They count from the first row of its tokens."""
        most, width = self.shapes[region.buffer]
        for one in self.tables:
            if not isinstance(first, Index) or first.op != one.rows or before != region.at * most:
                continue
            if (extent := self._rows(region, first, one)) is not None:
                shape = (self.schedule.num_ranks, one.places, width)
                name = self._made(region.buffer, "rows", one, shape)
                self.back.append((region.buffer, name))
                start = (region.at, replaced(first.args[0], {"lane": 0}), region.start[1])
                return replace(region, buffer=name, start=start, extent=(1, extent, region.extent[1]), at=rank)
        return region

    def _of_own(self, region: Region, first: Number, before: Number) -> Region:
        """Rows of own tokens, which count from the first one of this rank."""
        each, width = self.shapes[region.buffer]
        own = tuple((number * each, each) for number in range(self.schedule.num_ranks))
        for one in self.tables:
            if not isinstance(first, Index) or first.op != one.tokens or before != rank * each:
                continue
            if one.told.tokens == own and region.at == rank and (extent := self._rows(region, first, one)) is not None:
                name = self._made(region.buffer, "tokens", one, (one.places, width), own=True)
                self.own[region.buffer, name] = one
                start = (replaced(first.args[0], {"lane": 0}), region.start[1])
                return replace(region, buffer=name, start=start, extent=(extent, region.extent[1]))
        return region

    def _choices(self, region: Region, first: Index, used: list[tuple[str, str]]) -> Region:
        """Rows `(t + lane) * choices + j`, of tokens from t on."""
        rows, width = self.shapes[region.buffer]
        whole, choice = first.args if first.op == "+" else (first, 0)
        if not isinstance(whole, Index) or whole.op != "*" or not isinstance(whole.args[1], int):
            return region
        token, choices = replaced(whole.args[0], {"lane": 0}), whole.args[1]
        name = self._made(region.buffer, "choices", None, (rows // choices, choices * width))
        used.append((region.buffer, name))
        column = region.start[1]
        extent = (region.extent[0], least(region.extent[1], width - column))
        return replace(region, buffer=name, start=(token, choice * width + column), extent=extent)

    def _made(
        self, buffer: str, what: str, tables: _Tables | None, shape: tuple[int, ...], *, own: bool = False
    ) -> str:
        name = _name(buffer, what, tables) + (OF_OWN if own else "")
        self.new[name] = Buffer(name, Memory.LOCAL, shape, self.buffers[buffer].dtype)
        return name

    # ---- the spec
    def _spec(self) -> BoundSpec:
        return replace(self.spec, nodes=tuple(self._nodes()))

    def _nodes(self) -> Iterator[BoundNode]:
        """Nodes of rows by assignment are there in the order of each height of tiles, too."""
        sorted_rows: dict[tuple[str, int], str] = {}
        made = {value.name: value for value in self.spec.inputs} | {n.output.name: n.output for n in self.spec.nodes}
        for node in self.spec.nodes:
            match node.operation:
                case Route():
                    continue
                case GroupedMatmul():
                    yield from self._grouped(node, made, sorted_rows)
                case Spread():
                    yield from self._spread(node, made, sorted_rows)
                case Combine():
                    yield from self._combined(node, made)
                case Return():
                    yield from self._back(node, sorted_rows)
                case Elementwise():
                    yield from self._of_sorted(node, made, sorted_rows)
                    yield node
                case _:
                    yield node

    def _of_experts(self, routing: str) -> Iterator[tuple[int, _Tables]]:
        """Tables of a routing, with their numbers."""
        ids, route = self._route(routing)
        for number, one in enumerate(self.tables):
            if one.ids == ids and is_of(one.told, route):
                yield number, one

    def _spread(
        self, node: BoundNode, made: Mapping[str, BoundValue], sorted_rows: dict[tuple[str, int], str]
    ) -> Iterator[BoundNode]:
        """Rows of tokens in the order of places, which is what their copies by assignment are in that order."""
        rows, routing = node.inputs
        for number, one in self._of_experts(routing):
            for value, what in ((rows, "tokens"), (node.output.name, "rows")):
                found = self._value(value, what, one, (one.places, node.output.local[1]), made)
                yield BoundNode(Reordered(_suffix("tokens", one)), (rows,), found, node.line)  # type: ignore[arg-type]
            sorted_rows[node.output.name, number] = found.name
            yield BoundNode(Reordered(""), (found.name,), node.output, node.line)  # type: ignore[arg-type]

    def _grouped(
        self, node: BoundNode, made: Mapping[str, BoundValue], sorted_rows: dict[tuple[str, int], str]
    ) -> Iterator[BoundNode]:
        rows, weights, routing = node.inputs
        ids, _ = self._route(routing)
        _, depth, width = made[weights].local
        for number, one in self._of_experts(routing):
            what = "tokens" if made[rows].local[0] == made[ids].local[0] else "rows"
            left = self._value(rows, what, one, (one.places, depth), made)
            right = self._value(weights, "experts", one, (one.tiles * depth, width), made)
            yield BoundNode(Reordered(_suffix(what, one)), (rows,), left, node.line)  # type: ignore[arg-type]
            yield BoundNode(Reordered(_suffix("experts", one)), (weights,), right, node.line)  # type: ignore[arg-type]
            out = self._value(node.output.name, "rows", one, (one.places, width), made)
            yield BoundNode(BlockMatmul(one.height, depth), (left.name, right.name), out, node.line)  # type: ignore[arg-type]
            sorted_rows[node.output.name, number] = out.name
            yield BoundNode(Reordered(""), (out.name,), node.output, node.line)  # type: ignore[arg-type]

    def _of_sorted(
        self, node: BoundNode, made: Mapping[str, BoundValue], sorted_rows: dict[tuple[str, int], str]
    ) -> Iterator[BoundNode]:
        for number, one in enumerate(self.tables):
            inputs = [sorted_rows.get((name, number), name) for name in node.inputs]
            if inputs == list(node.inputs):
                continue
            out = self._value(node.output.name, "rows", one, (one.places, node.output.local[1]), made)
            yield BoundNode(node.operation, tuple(inputs), out, node.line)
            sorted_rows[node.output.name, number] = out.name

    def _back(self, node: BoundNode, sorted_rows: dict[tuple[str, int], str]) -> Iterator[BoundNode]:
        rows, routing = node.inputs
        _, route = self._route(routing)
        for number, _ in self._of_experts(routing):
            if route.parts == self.spec.num_ranks and (rows, number) in sorted_rows:
                yield BoundNode(Returned(), (sorted_rows[rows, number],), node.output, node.line)  # type: ignore[arg-type]

    def _combined(self, node: BoundNode, made: Mapping[str, BoundValue]) -> Iterator[BoundNode]:
        rows, weights, routing = node.inputs
        ids, route = self._route(routing)
        choices = made[ids].local[1]
        yield from self._of_choices(node, CombineChoices(choices, route), (rows, weights, ids), made)
        back = next((one for one in self.spec.nodes if one.output.name == rows), None)
        if back is not None and isinstance(back.operation, Return):  # rows may stay where they are, to be fetched there
            there, table = back.inputs
            how = CombineChoices(choices, self._route(table)[1], apart=True)
            yield from self._of_choices(node, how, (there, weights, ids), made)

    def _of_choices(
        self, node: BoundNode, how: CombineChoices, inputs: tuple[str, str, str], made: Mapping[str, BoundValue]
    ) -> Iterator[BoundNode]:
        rows, *others = inputs
        choices = how.choices
        if choices == 1:  # rows of tokens as they are
            yield BoundNode(how, inputs, node.output, node.line)  # type: ignore[arg-type]
            return
        many, width = made[rows].local
        left = self._value(rows, "choices", None, (many // choices, choices * width), made)
        yield BoundNode(Reordered(_suffix("choices", None)), (rows,), left, node.line)  # type: ignore[arg-type]
        yield BoundNode(how, (left.name, *others), node.output, node.line)  # type: ignore[arg-type]

    def _route(self, routing: str) -> tuple[str, Route]:
        """Its ids, and what experts it has."""
        node = next(one for one in self.spec.nodes if one.output.name == routing)
        assert isinstance(node.operation, Route), "the spec has been traced"
        return node.inputs[0], node.operation

    def _value(
        self, value: str, what: str, tables: _Tables | None, shape: tuple[int, ...], made: Mapping[str, BoundValue]
    ) -> BoundValue:
        given = made[value]
        return BoundValue(_name(value, what, tables), shape, shape, given.placement, given.dtype)


def _name(value: str, what: str, tables: _Tables | None) -> str:
    return value + _suffix(what, tables)


def _suffix(what: str, tables: _Tables | None) -> str:
    return f" by {what}" + (f" in tiles of {tables.height}" if tables is not None else "")


def _with(index: Number, known: Mapping[Number, Number]) -> Number:
    if isinstance(index, int) or index in known:
        return known.get(index, index)
    return Index(index.op, tuple(_with(one, known) for one in index.args)) if index.args else index
