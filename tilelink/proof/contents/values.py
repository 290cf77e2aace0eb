"""Which value of a spec a tile is: what collectives and slices deliver are elements of their sources, what an operation computes
follows from its operands.

xf = all_gather(x, 0):       xf[p * rows + i] on any rank = x[i] on rank p
z = reduce_scatter(y, 0):    z[i] on rank r = the sum of y[r * rows + i] over all ranks
s = all_reduce(y):           s[i] on any rank = the sum of y[i] over all ranks
r = send_recv(x, by):        r[i] on rank r = x[i] on rank r - by
p = y[:, a:b]:               p[i, j] on rank r = y[i, j + a] on rank r
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tilelink.ir.ops.elementwise import with_constants
from tilelink.ir.slices import as_computed
from tilelink.ir.spec import (
    AllGather,
    AllReduce,
    BoundNode,
    BoundSpec,
    Elementwise,
    Matmul,
    ReduceScatter,
    SendRecv,
    Slice,
)
from tilelink.proof.contents.orders import BlockMatmul, CombineChoices
from tilelink.proof.contents.tile import ANY_RANK, Flags, Product, Row, Term, Tile, Weighted
from tilelink.schedule.index import Ints

Shape = tuple[int, ...]
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Part:
    """A tile as elements of a value, from `start` on along each of its dimensions, on rank `owner`."""

    owner: Ints
    start: tuple[Ints, ...]
    extent: tuple[Ints, ...]
    skip: tuple[Ints, ...]

    def on(self, ranks: Ints) -> Flags:
        here: Flags = (self.owner == ranks) | (self.owner == ANY_RANK)
        return here


class Gather(NamedTuple):
    """`value` = the parts of `source`, of `size` along `dim`, of all ranks; that of rank r has been sent `by` ranks on. `cut`: so
    many elements of `source` come before, along each dimension. `name`: what the spec calls it, where others are the same."""

    value: str
    source: str
    dim: int
    size: int
    by: int = 0
    cut: tuple[int, ...] = ()
    name: str = ""


class Mismatch(Exception):
    """`lanes`: where the tile is not what it would have to be."""

    def __init__(self, why: str, lanes: Flags | None = None) -> None:
        super().__init__(why)
        self.why, self.lanes = why, lanes


class Values:
    """The values of a spec, as its operations make them of each other."""

    def __init__(self, spec: BoundSpec, computed: bool = False) -> None:
        """`computed`: `spec` is as it is computed, with what nothing needs."""
        self.spec = spec if computed else as_computed(spec)
        self.ranks = spec.num_ranks
        self.makers: dict[str, BoundNode] = {node.output.name: node for node in self.spec.nodes}
        self.first: dict[str, str] = {}  # of values that are made of the same by the same, the first one
        for node in self.spec.nodes:
            made_of = node.operation, tuple(self.first.get(name, name) for name in node.inputs)
            same = (one for one in self.first if (self.makers[one].operation, self._made_of(one)) == made_of)
            self.first[node.output.name] = next(same, node.output.name)
        given = {value.name: value for value in self.spec.inputs}
        self.shapes: dict[str, Shape] = {name: value.local for name, value in given.items()}
        self.shapes |= {name: node.output.local for name, node in self.makers.items()}
        self.dtypes: dict[str, str] = {name: value.dtype for name, value in given.items()}
        self.dtypes |= {name: node.output.dtype for name, node in self.makers.items()}

    def _made_of(self, value: str) -> tuple[str, ...]:
        return tuple(self.first.get(name, name) for name in self.makers[value].inputs)

    def term(self, node: BoundNode) -> Term:
        """What `node` makes: of nodes that make the same, what the first one does."""
        return Term(self.first[node.output.name])

    def nodes(self, *names: str) -> list[BoundNode]:
        """All, first those whose value has one of the `names`: what a tile or buffer is called tells which one is meant where the
        operands of several are elements of the same values. Each of them would be true."""
        return sorted(self.spec.nodes, key=lambda node: node.output.name not in names)

    def gathers(self) -> Iterator[Gather]:
        for name, node in self.makers.items():
            if isinstance(node.operation, AllGather):
                source, dim, value = node.inputs[0], node.operation.dim, self.first[name]
                size, by, cut = self.shapes[source][dim], 0, [0] * len(self.shapes[source])
                yield Gather(value, self.first.get(source, source), dim, size, name=name)
                while (maker := self.makers.get(source)) is not None:
                    match maker.operation:
                        case SendRecv(further):
                            by += further
                        case Slice(other, first) if other != dim:  # what it cuts off along `dim` would look like parts
                            cut[other] += first
                        case _:
                            break
                    source = maker.inputs[0]
                    yield Gather(value, self.first.get(source, source), dim, size, by, tuple(cut), name)

    def dtype(self, term: Term) -> str:
        return self.dtypes[term.name]

    def part(self, tile: Tile, value: str) -> Part:
        """`tile` as elements of `value`. Raises Mismatch if it is of another one, or of none."""
        value = self.first.get(value, value)
        if tile.term == Term(value):
            return Part(tile.owner, tile.start, tile.extent, tile.skip)
        maker = self.makers.get(value)
        source = maker.inputs[0] if maker is not None else ""
        match maker.operation if maker is not None else None:
            case AllGather(dim):
                scattered = self.makers.get(self.first.get(source, source))
                if tile.term.summed and scattered is not None and scattered.operation == ReduceScatter(dim):
                    return self._summed(tile, scattered.inputs[0])  # a sum lies there whole
                part = self.part(tile, source)
                if (tile.some & (part.owner == ANY_RANK)).any():
                    raise Mismatch(f"all ranks have the same {source}, and it is the part of none of them")
                start = _moved(part.start, dim, part.owner * self.shapes[source][dim])
                return replace(part, owner=part.owner * 0 + ANY_RANK, start=start)
            case ReduceScatter(dim):
                part = self._summed(tile, source)
                size = self.shapes[source][dim] // self.ranks
                owner = (part.start[dim] + part.skip[dim]) // size
                self._within(part, dim, owner * size, (owner + 1) * size)
                return replace(part, owner=owner, start=_moved(part.start, dim, -owner * size))
            case AllReduce():
                return self._summed(tile, source)
            case SendRecv(by):
                part = self.part(tile, source)
                return replace(part, owner=np.where(part.owner < 0, part.owner, (part.owner + by) % self.ranks))
            case Slice(dim, first, end):
                part = self.part(tile, source)
                self._within(part, dim, part.start[dim] * 0 + first, part.start[dim] * 0 + end)
                return replace(part, start=_moved(part.start, dim, part.start[dim] * 0 - first))
        raise Mismatch(f"it is {tile.term}, not {value}")

    def _summed(self, tile: Tile, source: str) -> Part:
        if (not tile.term.summed or tile.term.is_partial) and self.ranks > 1:
            raise Mismatch(f"it is {tile.term}, not the sum of {source} over the ranks")
        return self.part(replace(tile, term=Term(tile.term.name)), source)

    @staticmethod
    def _within(part: Part, dim: int, first: Ints, end: Ints) -> None:
        some = part.extent[dim] > part.skip[dim]
        begins, ends = part.start[dim] + part.skip[dim], part.start[dim] + part.extent[dim]
        wrong = some & ((begins < first) | (ends > end))
        if wrong.any():
            raise Mismatch("it is of more than one part", wrong)

    # ---- what operations make ----
    def elementwise(self, function: str, operands: Sequence[Tile | str | float], ranks: Ints, name: str) -> Tile:
        """What `function` makes of the operands, called `name`. Raises Mismatch."""
        named = [(node, op) for node in self.nodes(name) if isinstance(op := node.operation, Elementwise)]
        same = [(node, op) for node, op in named if op.function == function]
        return first_made(partial(self._elementwise, operands, ranks), same, f"the spec has no {function}")

    def _elementwise(
        self, operands: Sequence[Tile | str | float], ranks: Ints, node: BoundNode, operation: Elementwise
    ) -> Tile:
        wanted = with_constants(node.inputs, operation.left, operation.right)
        if len(wanted) != len(operands):
            raise Mismatch(f"{node.output.name} has {len(wanted)} operands, not {len(operands)}")
        shape = node.output.local
        start: list[Ints | None] = [None] * len(shape)
        extent: list[Ints | None] = [None] * len(shape)
        skip = [np.zeros(len(ranks), np.int64)] * len(shape)
        found = [one for one in operands if isinstance(one, Tile)]
        known = np.logical_and.reduce([one.known for one in found])
        for name, operand in zip(map(str, wanted), operands, strict=True):
            if name in self.shapes and not isinstance(operand, Tile):
                raise Mismatch(f"no step makes a tile of {name}, and {node.output.name} is made with it")
            if not isinstance(operand, Tile) or name not in self.shapes:
                if isinstance(operand, Tile) or name != str(operand):
                    raise Mismatch(f"{node.output.name} is made with {name}, not with {_named(operand)}")
                continue
            part, lead = self.part(operand, name), len(shape) - len(self.shapes[name])
            _on(part, ranks, operand, name)
            _lying(operand, self.shapes[name])
            for dim, size in enumerate(self.shapes[name]):
                if size == 1 and shape[dim + lead] != 1:
                    continue  # one element for all
                begins, before = part.start[dim], start[dim + lead]
                if before is not None and (wrong := operand.some & known & (before != begins)).any():
                    raise Mismatch(f"it takes other elements of {name} than of the operand before", wrong)
                start[dim + lead] = begins if before is None else np.where(operand.some, begins, before)
                most = extent[dim + lead]
                extent[dim + lead] = part.extent[dim] if most is None else np.minimum(most, part.extent[dim])
                skip[dim + lead] = np.maximum(skip[dim + lead], part.skip[dim])
        return self._tile(node, known, ranks, start, extent, skip, found)

    def _tile(
        self,
        node: BoundNode,
        known: Flags,
        ranks: Ints,
        start: Sequence[Ints | None],
        extent: Sequence[Ints | None],
        skip: Sequence[Ints],
        of: Sequence[Tile],
    ) -> Tile:
        zero = np.zeros(len(ranks), np.int64)
        starts = tuple(zero if one is None else one for one in start)
        extents = tuple(zero + 1 if one is None else one for one in extent)
        shape = max((one.shape for one in of if one.shape), key=lambda one: (len(one), np.prod(one)), default=None)
        axes = tuple(range(len(starts)))
        return Tile(self.term(node), axes, ranks, starts, extents, tuple(skip), known, shape=shape)

    def product(self, product: Product, ranks: Ints, *names: str) -> Tile:
        """The matmul that the pairs add up to. Columns of the result may be rows of the tile. Raises Mismatch."""
        matmuls = [node for node in self.nodes(*names) if isinstance(node.operation, Matmul | BlockMatmul)]
        ways = [(node, turned) for node in matmuls for turned in (False, True)]
        return first_made(partial(self._product, product, ranks), ways, "the spec has no matmul")

    def _product(self, product: Product, ranks: Ints, node: BoundNode, turned: bool) -> Tile:
        left, right = node.inputs
        transposed = isinstance(node.operation, Matmul) and node.operation.transposed
        axes = ((0, 1), (1, 0) if transposed else (0, 1))
        summed = 1 if transposed else 0
        rows: list[Part] = []
        cols: list[Part] = []
        known = np.ones(len(ranks), bool)
        for pair in product.pairs:
            both = pair[::-1] if turned else pair
            a, b = (one.turned() for one in both) if turned else both
            for tile, name, lies in ((a, left, axes[0]), (b, right, axes[1])):
                if tile.axes != lies:
                    raise Mismatch(f"rows and columns of {tile.term} are not where the product needs them")
                _on(self.part(tile, name), ranks, tile, name)
            if len(a.pieces) > 1 and not _alike(a, b):
                raise Mismatch(f"rounds go through {left} and {right} in other pieces")
            rows.append(self.part(a, left))
            cols.append(self.part(b, right))
            if isinstance(node.operation, BlockMatmul):
                cols[-1] = _in_block(node.operation, rows[-1], cols[-1], a.some & b.some)
            known = known & a.known & b.known
        inner = [(row, 1) for row in rows], [(col, summed) for col in cols]
        kept = (rows, 0), (cols, 0 if transposed else 1)
        start = tuple(parts[0].start[dim] for parts, dim in kept)
        extent = tuple(np.minimum.reduce([one.extent[dim] for one in parts]) for parts, dim in kept)
        skip = tuple(np.maximum.reduce([one.skip[dim] for one in parts]) for parts, dim in kept)
        made_some = known & np.logical_and.reduce([a > b for a, b in zip(extent, skip, strict=True)])
        self._covered(node, inner, self.shapes[left][1], made_some)
        for parts, dim in kept:
            for one in parts[1:]:
                if (wrong := made_some & (one.start[dim] != parts[0].start[dim])).any():
                    raise Mismatch(f"rounds add up other elements of {node.output.name}", wrong)
        made = (1, 0) if turned else (0, 1)
        return Tile(self.term(node), made, ranks, start, extent, skip, known, shape=product.shape)

    def combined(self, weighted: Weighted, ranks: Ints, *names: str) -> Tile:
        """The combination of the rows of all choices. Raises Mismatch."""
        made = [(node, op) for node in self.nodes(*names) if isinstance(op := node.operation, CombineChoices)]
        return first_made(partial(self._combined, weighted, ranks), made, "the spec combines no rows")

    def _combined(self, weighted: Weighted, ranks: Ints, node: BoundNode, how: CombineChoices) -> Tile:
        width, choices = node.output.local[1], how.choices
        times = self.ranks if how.apart else 1  # a row from each rank
        found, owners = list[Part](), list[Ints]()
        if len(weighted.terms) != choices * times:
            raise Mismatch(f"{node.output.name} is made of {choices * times} rows, not of {len(weighted.terms)}")
        known = np.ones(len(ranks), bool)
        for place, one in enumerate(weighted.terms):
            number, row = place // times, one.row
            part = self.part(row, node.inputs[0])
            if how.apart:
                owners.append(part.owner)
                part = replace(part, start=(part.start[0] - ranks * node.output.local[0], *part.start[1:]))
            else:
                _on(part, ranks, row, node.inputs[0])
                owners.append(ranks)
            self._of_experts(node, how, one, owners[-1])
            known = known & row.known & one.weight.known & one.ids.known
            begins = part.start[1] - number * width
            wrong = row.some & ((begins < 0) | (begins + part.extent[1] > width))
            for tile, name in ((one.weight, node.inputs[1]), (one.ids, node.inputs[2])):
                other = self.part(tile, name)
                _on(other, ranks, tile, name)
                wrong |= row.some & ((other.start[0] != part.start[0]) | (other.extent[0] < part.extent[0]))
                wrong |= row.some & ((other.start[1] != number) | (other.skip[0] > part.skip[0]))
            found.append(replace(part, start=(part.start[0], begins)))
            wrong |= row.some & (found[0].start[0] != found[-1].start[0]) | (found[0].start[1] != found[-1].start[1])
            if wrong.any():
                raise Mismatch(f"rows, weights and ids of {node.output.name} are of other tokens or choices", wrong)
        for first in range(0, len(owners) if how.apart else 0, times):
            each = np.sort(np.stack(owners[first : first + times]), axis=0)
            if (wrong := known & (each != np.arange(times)[:, None]).any(axis=0)).any():
                raise Mismatch(f"{node.output.name} is not made of a row from each rank", wrong)
        extent = tuple(np.minimum.reduce([one.extent[dim] for one in found]) for dim in (0, 1))
        skip = tuple(np.maximum.reduce([one.skip[dim] for one in found]) for dim in (0, 1))
        return Tile(self.term(node), (0, 1), ranks, found[0].start, extent, skip, known, shape=weighted.shape)

    def _of_experts(self, node: BoundNode, how: CombineChoices, row: Row, owner: Ints) -> None:
        """The row counts where its expert is one of its owner's, if that has any."""
        own = [how.route.own(rank) for rank in range(self.ranks)]
        many, first = (np.array(each)[owner] for each in zip(*((len(one), one.start) for one in own), strict=True))
        wrong = (owner < 0) | (row.experts != many) | ((row.first != first) & (many > 0))
        if wrong.any():
            raise Mismatch(f"{node.output.name} is of the experts of each rank, {how.route.num_experts} in all", wrong)

    @staticmethod
    def _covered(
        node: BoundNode, inner: tuple[list[tuple[Part, int]], list[tuple[Part, int]]], size: int, where: Flags
    ) -> None:
        """Both sides of each pair are the same elements of the dimension that is summed over, and all pairs are all of it."""
        starts, sizes = [], []
        for (row, of_row), (col, of_col) in zip(*inner, strict=True):
            same = (row.start[of_row] == col.start[of_col]) & (row.extent[of_row] == col.extent[of_col])
            same &= (row.skip[of_row] == 0) & (col.skip[of_col] == 0)
            if (wrong := where & ~same).any():
                raise Mismatch(
                    f"{node.output.name}: other columns of the left operand than rows of the right one", wrong
                )
            starts.append(row.start[of_row])
            sizes.append(row.extent[of_row])
        order = np.argsort(np.stack(starts), axis=0, kind="stable")
        begins, long = (np.take_along_axis(np.stack(one), order, axis=0) for one in (starts, sizes))
        ends = np.concatenate([begins[1:], begins[:1] * 0 + size])
        wrong = where & ((begins[0] != 0) | (begins + long != ends).any(axis=0))
        if wrong.any():
            raise Mismatch(f"{node.output.name}: not all products are added up, or some twice", wrong)


def _in_block(blocks: BlockMatmul, rows: Part, cols: Part, some: Flags) -> Part:
    """The right operand in the block of the left one's rows."""
    block = rows.start[0] // blocks.height
    last = (rows.start[0] + np.maximum(rows.extent[0], 1) - 1) // blocks.height
    begins = cols.start[0] - block * blocks.depth
    wrong = some & ((last != block) | (begins < 0) | (begins + cols.extent[0] > blocks.depth))
    if wrong.any():
        raise Mismatch("rows of one expert are multiplied with the matrix of another one", wrong)
    return replace(cols, start=(begins, *cols.start[1:]))


def _moved(start: tuple[Ints, ...], dim: int, by: Ints) -> tuple[Ints, ...]:
    return tuple(one + by if number == dim else one for number, one in enumerate(start))


def _on(part: Part, ranks: Ints, tile: Tile, name: str) -> None:
    if (wrong := tile.some & ~part.on(ranks)).any():
        raise Mismatch(f"it is {name} of another rank", wrong)


def _lying(tile: Tile, shape: Shape) -> None:
    """Dimensions of the tile are the last ones of the value, in order."""
    last = tuple(range(len(shape)))[-len(tile.axes) :]
    lies = tile.axes[-len(last) :] if last else ()
    for axis, dim in zip(lies, last, strict=True):
        if axis != dim and shape[dim] != 1:
            raise Mismatch(f"{tile.term} does not lie as it should")


def _alike(a: Tile, b: Tile) -> bool:
    """Whether rounds go through the columns of `a` as through the rows of `b`, and through nothing else."""
    columns, other = a.pieces[a.axes.index(1)], list(b.pieces)
    rows = next((one for one in other if one is not None), None)
    alone = sum(one is not None for one in a.pieces) <= 1 and sum(one is not None for one in other) <= 1
    return alone and (columns is rows is None or (columns is not None and columns.like(rows)))


def _named(operand: Tile | str | float) -> str:
    return str(operand.term if isinstance(operand, Tile) else operand)


def first_made(make: Callable[..., Made], ways: Iterable[tuple[Any, ...]], otherwise: str) -> Made:
    """What `make` makes of the first of `ways` with which it can. Raises Mismatch: that of the way which comes closest, as it
    fails in some lanes only."""
    reasons = list[Mismatch]()
    for way in ways:
        try:
            return make(*way)
        except Mismatch as mismatch:
            reasons.append(mismatch)
    raise next((one for one in reasons if one.lanes is not None), reasons[0] if reasons else Mismatch(otherwise))
