"""What calls of libraries make: matmuls of whole matrices, or of chunks of them, attention, and collectives.

For a library a tensor of parts is one of rows: part by part, each row by row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilelink.ir.spec import AllGather, BoundNode, Matmul
from tilelink.proof.contents import orders
from tilelink.proof.contents.attending import Attending, Pending, Write
from tilelink.proof.contents.memory import SEVERAL, UNKNOWN, Access, Memory
from tilelink.proof.contents.tile import ANY_RANK, Term, Tile
from tilelink.proof.contents.trace import Done
from tilelink.proof.contents.values import Mismatch, Part, Values, first_made
from tilelink.schedule import steps
from tilelink.schedule.index import Ints


def called(values: Values, memory: Memory, ranks: Ints, step: Done, function: str, write: Write) -> None:
    """`write` what `function` makes. Raises Pending, Mismatch if it makes no value of the spec."""
    call = _Call(values, memory, ranks, step, write)
    match function:
        case "matmul" | "matmul_transposed":
            call.matmul(function == "matmul_transposed")
        case steps.ATTENTION | steps.CAUSAL_ATTENTION | steps.MERGED_ATTENTION:
            Attending(values, ranks, step, call.tile, write).made()
        case "all_gather":
            call.all_gather()
        case "reduce_scatter":
            call.reduce_scatter()
        case "all_reduce":
            call.all_reduce()
        case orders.REORDERED:
            call.reordered()
        case orders.RETURNED:
            call.returned()
        case orders.OWN_ROWS:
            call.own_rows()
        case steps.SORT_ROWS | steps.LIST_ROWS | steps.LIST_PLACES:
            call.index_rows()
        case _:
            raise Mismatch(f"nobody knows what {function} makes")


class _Call:
    def __init__(self, values: Values, memory: Memory, ranks: Ints, step: Done, write: Write) -> None:
        self.values, self.memory, self.ranks, self.step, self.write = values, memory, ranks, step, write
        self.parts = values.ranks

    def tile(self, access: Access, dims: int = 2, *, some: bool = False) -> Tile:
        """What lies in the boxes, as a tile of the last `dims` dimensions; `some`: not of all lanes, if it is not known yet."""
        labels = self.memory.read(access)
        if (labels == UNKNOWN).all() if some else (labels == UNKNOWN).any():
            raise Pending
        if (labels == SEVERAL).any():
            raise Mismatch(f"different things lie in {access.buffer}", labels == SEVERAL)
        count = len(access.start)
        found = self.memory.tile(access, labels, tuple(range(count))[-dims:])
        if isinstance(found, str):
            raise Mismatch(found)
        return found

    # ---- matmuls ----
    def matmul(self, transposed: bool) -> None:
        named = self.values.nodes(self.step.writes[0].buffer)
        same = [(one,) for one in named if one.operation == Matmul(transposed)]
        first_made(self._matmul, same, "the spec has no such matmul")

    def _matmul(self, node: BoundNode) -> None:
        (left, right), (a, b) = self.step.reads[:2], node.inputs
        first, rows = self._rows(left, a)
        of_right = self.values.part(self.tile(right), b)
        self._here(of_right, b)
        self._all_of(of_right, b, (0, 1))
        out, value = self.step.writes[0], node.output.name
        width = self.values.shapes[value][1]
        made = _rows_of(out)
        if (wrong := (made > rows) | (out.sizes[-1] != width)).any():
            raise Mismatch(f"{value} is larger there than what is made", wrong)
        zero = first * 0
        tile = Tile(
            self.values.term(node), (0, 1), self.ranks, (first, zero), (rows, zero + width), (zero, zero), first >= 0
        )
        if len(out.start) == 2 or (out.sizes[0] == 1).all():
            self.write(out, tile)
            return
        parts = self._split(-1)
        number: Ints = np.tile(np.arange(self.parts), len(self.ranks))
        spread = tile.at(np.repeat(np.arange(len(self.ranks)), self.parts))
        begins: Ints = spread.start[0] + number * _rows_of(parts)
        self.write(parts, replace(spread, start=(begins, spread.start[1]), extent=(_rows_of(parts), spread.extent[1])))

    # ---- orders
    def index_rows(self) -> None:
        """Tables of all of the ids, as this rank has them. It makes nothing else."""
        (ids,) = self.step.reads
        tile = self.tile(ids, len(ids.start))
        if tile.term != Term(ids.buffer):
            raise Mismatch(f"ids of {tile.term} are looked at, not those of {ids.buffer}")
        found = self.values.part(tile, ids.buffer)
        self._here(found, ids.buffer)
        self._all_of(found, ids.buffer, (0, 1))

    def reordered(self) -> None:
        """The same value in the order that ends the name of one of both buffers: all of it, if all of the other one is there."""
        source, out = self.step.reads[0], self.step.writes[0]
        tile = self.tile(source, len(source.start))
        old, new = source.buffer, out.buffer
        value = tile.term.name
        if tile.term.summed:
            raise Mismatch(f"it is {tile.term}")
        if new.startswith(old):
            found = f"{value}{new.removeprefix(old)}"
        else:
            made = self.values.first  # what is known by the name of another value that is made alike
            found = next((one for one in made if made.get(f"{one}{old.removeprefix(new)}") == value), value)
        if found == value or found not in self.values.shapes:
            raise Mismatch(f"{value} has no such order")
        self._here(self.values.part(tile, value), value)
        self._all_of(self.values.part(tile, value), value, tuple(range(len(tile.start))))
        shape = self.values.shapes[found]
        zero = np.zeros(len(self.ranks), np.int64)
        extent = tuple(zero + one for one in shape)
        axes = tuple(range(len(shape)))
        start = tuple(zero for _ in shape)
        self.write(out, Tile(Term(found), axes, self.ranks, start, extent, start, zero == 0))

    def returned(self) -> None:
        """Rows of the own tokens, if this rank has stored all of its own rows for each rank."""
        source, out = self.step.reads[0], self.step.writes[0]
        tile = self.tile(source)
        value = tile.term.name
        part = self.values.part(tile, value)
        self._here(part, value)
        self._all_of(part, value, (0, 1))
        nodes, first = self.values.spec.nodes, self.values.first
        node = next(
            (one for one in nodes if isinstance(one.operation, orders.Returned) and first[one.inputs[0]] == value), None
        )
        if node is None or tile.term.summed:
            raise Mismatch(f"{tile.term} is no value whose rows return")
        zero = np.zeros(len(self.ranks), np.int64)
        start, extent = (zero, zero), tuple(zero + one for one in node.output.local)
        self.write(out, Tile(self.values.term(node), (0, 1), self.ranks, start, extent, start, zero == 0))

    def own_rows(self) -> None:
        """Rows of what a gather makes of the whole operand, in the order that the name of the result says: as many as are own."""
        source, out = self.step.reads[0], self.step.writes[0]
        tile = self.tile(source)
        value, first = tile.term.name, self.values.first
        part = self.values.part(tile, value)
        self._here(part, value)
        self._all_of(part, value, (0, 1))
        order = out.buffer.removeprefix(source.buffer).removesuffix(orders.OF_OWN)
        gathers = (one for one in self.values.spec.nodes if one.operation == AllGather(0))
        rows = (
            f"{first[one.output.name]}{order}" for one in gathers if first.get(one.inputs[0], one.inputs[0]) == value
        )
        found = next((one for one in rows if one in self.values.shapes), "")
        if not found or tile.term.summed:
            raise Mismatch(f"nothing gathers {tile.term} whose rows come in that order")
        zero = np.zeros(len(self.ranks), np.int64)
        start, extent = (zero, zero), (zero + out.sizes[0], zero + self.values.shapes[found][1])
        self.write(out, Tile(Term(first.get(found, found)), (0, 1), self.ranks, start, extent, start, zero == 0))

    def _rows(self, left: Access, value: str) -> tuple[Ints, Ints]:
        """First row of `value` in what the call multiplies, and how many; its columns are all there."""
        labels = self.memory.read(left)
        if (labels > UNKNOWN).all():
            part = self.values.part(self.tile(left), value)
            self._here(part, value)
            self._all_of(part, value, (1,))
            return part.start[0], part.extent[0]
        if self.step.parts[0] is None and (labels == UNKNOWN).any():
            raise Pending
        parts = self._split(0)
        number = np.tile(np.arange(self.parts), len(self.ranks))
        ranks = np.repeat(self.ranks, self.parts)
        mine = number == ranks if len(self.step.reads) > 2 else np.zeros(len(number), bool)
        begins, size = np.zeros(len(number), np.int64), _rows_of(parts)
        for where, access in ((~mine, parts), (mine, self.step.reads[2] if mine.any() else parts)):
            if not where.any():
                continue
            chosen = np.flatnonzero(where)
            lanes = chosen if access is parts else chosen // self.parts
            part = self.values.part(self.tile(access).at(lanes), value)
            if (wrong := ~part.on(ranks[where])).any():
                raise Mismatch(f"it is {value} of another rank", wrong)
            self._all_of(part, value, (1,))
            begins[where] = part.start[0]
            if (part.extent[0] != size[where]).any():
                raise Mismatch(f"parts of {value} are not whole")
        if (begins != np.repeat(begins[:: self.parts], self.parts) + number * size).any():
            raise Mismatch(f"parts of {value} lie in another order")
        return begins[:: self.parts], _rows_of(left)

    def _here(self, part: Part, value: str) -> None:
        if (wrong := ~part.on(self.ranks)).any():
            raise Mismatch(f"it is {value} of another rank", wrong)

    def _all_of(self, part: Part, value: str, dims: tuple[int, ...]) -> None:
        for dim in dims:
            if ((part.start[dim] != 0) | (part.extent[dim] != self.values.shapes[value][dim])).any():
                raise Mismatch(f"it multiplies with a part of {value}")

    # ---- collectives ----
    def all_gather(self) -> None:
        self._all_meet()
        tile = self.tile(self.step.reads[0], len(self.step.reads[0].start))
        self.write(self._split(-1), tile.at(np.tile(np.arange(self.parts), self.parts)))

    def reduce_scatter(self) -> None:
        self._all_meet()
        source = self._split(0)
        dims = min(len(source.start), len(self.step.writes[0].start))
        tile = self.tile(source, dims)  # a row of parts for each rank
        by_part = np.arange(self.parts**2).reshape(self.parts, self.parts).T.ravel()
        self.write(self.step.writes[0], self._total(tile.at(by_part)))

    def all_reduce(self) -> None:
        self._all_meet()
        tile = self.tile(self.step.reads[0], len(self.step.reads[0].start))
        lanes = np.tile(np.arange(self.parts), self.parts)
        self.write(self.step.writes[0], self._total(tile.at(lanes)))

    def _total(self, tile: Tile) -> Tile:
        """The sum of each `parts` lanes, which are those of all ranks in order."""
        wrong = tile.owner != np.tile(np.arange(self.parts), self.parts)
        for one in (*tile.start, *tile.extent):
            wrong |= one != np.repeat(one[:: self.parts], self.parts)
        if wrong.any() or tile.term.summed:
            raise Mismatch(f"what it adds are not the same elements of {tile.term} of all ranks")
        first = tile.at(np.arange(self.parts) * self.parts)
        return replace(first, term=Term(tile.term.name, True), owner=first.owner * 0 + ANY_RANK)

    def _split(self, which: int) -> Access:
        """The parts of an operand or a result."""
        found = self.step.parts[which]
        if found is None:
            raise Mismatch("it does not lie in as many parts as there are ranks")
        return found

    def _all_meet(self) -> None:
        if not np.array_equal(self.ranks, np.arange(self.parts)):
            raise Mismatch("not each rank takes part once")


def _rows_of(access: Access) -> Ints:
    found: Ints = np.prod(np.stack(access.sizes[:-1]), axis=0)
    return found
