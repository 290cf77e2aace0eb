"""A slice of columns of a product in ping-pong: what is done with it, as a function that is called for each slice.

Elements lie 16 bytes a thread along a row, in the layout SLICE, where pointers load or store them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, count

from lowering.source import Chain, Source
from lowering.steps.dtypes import BYTES, DESCRIPTOR_BYTES, element
from lowering.steps.gluon_product import Sizes, whole
from lowering.steps.gluon_programs import GluonPrograms
from lowering.steps.indices import Spelling
from lowering.steps.programs import Programs
from lowering.steps.ranks import first_of_ranks, resolved
from lowering.steps.regions import PLAIN, Place, Regions, Run, Side
from tilelink.ir.nodes import PIECE_ROWS, TURN_SLICE_BYTES
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.schedule.index import Index, Number, least, names_in, replaced, terms_of
from tilelink.schedule.memory import Access, Memory, Region
from tilelink.schedule.roles import Schedule
from tilelink.schedule.steps import Compute, For, Load, Step, Store
from tilelink.schedule.walk import indices, read, steps_in, written

_OPS = ("copy", *FUNCTIONS)
_SUM_BYTES = 4  # of an element that is computed with
_THREAD_BYTES = 16  # that a thread loads or stores at once
_WARP = 32


def paced(*steps: Step) -> list[Store]:
    """Stores in pieces among `steps` and in them."""
    found = (step for step in steps_in(steps) if isinstance(step, Store))
    return [step for step in found if step.region.access is Access.PACED]


def slice_cols(schedule: Schedule, steps: tuple[Step, ...], cols: int) -> int:
    """Columns of a slice of a tile of `cols`: 128 bytes of a row that leaves in pieces, or of what is computed with, or of what
    is stored."""
    types = {buffer.name: BYTES[element(buffer)] for buffer in schedule.buffers}
    leaves = [types[store.region.buffer] for store in paced(*steps)]
    computes = any(isinstance(step, Compute) and step.op != "copy" for step in steps_in(steps))
    stored = [types[region.buffer] for step in steps_in(steps) for region in written(step)]
    return min(cols, TURN_SLICE_BYTES // max(leaves or ([_SUM_BYTES] if computes else stored)))


def cut(step: Step, cols: int, width: int, sizes: Sizes) -> Step:
    """`step` on `width` columns from where it begins, where it is on `cols` columns."""

    def region(one: Region) -> Region:
        extent = replaced(one.extent[-1], sizes)
        if whole(extent, sizes) != cols or width == cols:
            return one
        size: Number = width
        if isinstance(extent, Index):  # sticks out of the buffer, or of a part of it
            size = least(width, next(part for part in extent.args if part != cols))
        return replace(one, extent=(*one.extent[:-1], size))

    match step:
        case Load() | Store():
            return replace(step, region=region(step.region))
        case Compute(shape=(*rows, _)):
            return replace(step, shape=(*rows, width))
    return step


def column_name(steps: tuple[Step, ...], cols: int, sizes: Sizes) -> str | None:
    """The name that says where the columns of a tile begin, in all regions of `steps` and in nothing else of them."""
    starts, others = list[Number](), set[str]()
    for step in steps_in(steps):
        regions = (*read(step), *written(step))
        others |= frozenset[str]().union(*map(names_in, () if regions else indices(step)))
        for one in regions:
            tile = whole(one.extent[-1], sizes) == cols
            starts += one.start[-1:] if tile else ()
            others |= frozenset[str]().union(
                *map(names_in, (*one.start[:-1], *(() if tile else one.start[-1:]), one.at))
            )
    names = [
        {term.op for term, factor in terms_of(start).items() if isinstance(term, Index) and factor == 1}
        for start in starts
    ]
    found = set.intersection(*names) - others if names else set()
    return min(found, default=None)


class SliceRegions(Regions):
    """`rows`, `width`: rows and columns of a slice, and what they are called. `vectors`: rows and columns of regions, in front
    of all steps where they do not depend on what these bind."""

    def __init__(
        self, spell: Spelling, needs: dict[str, str], rows: tuple[int, str], width: tuple[int, str], bound: set[str]
    ) -> None:
        super().__init__(spell, needs)
        self.rows, self.width, self.bound = rows, width, bound
        self.vectors: dict[str, str] = {}

    def _size(self, value: str, kind: str, extent: Number, run: Run = PLAIN) -> tuple[int, str]:
        known = self.rows if kind == "rows" else self.width
        return known if self.whole(extent) == known[0] else super()._size(value, kind, extent, run)

    def vector(self, column: bool, first: str, size: str) -> str:
        text = f"{'slice_cols' if column else 'slice_rows'}({first}, {size}, SLICE)"
        if self.bound & set(re.findall(r"\w+", first)):
            return text
        kind = "cols" if column else "rows"
        names = chain((kind,), (f"{kind}_{number}" for number in count(2)))
        taken = {*self.vectors.values(), *self.spell.constants.taken}
        if text not in self.vectors:
            self.vectors[text] = next(name for name in names if name not in taken)
        return self.vectors[text]


class Slice(GluonPrograms):
    """Prints the steps of a slice of `rows` x `width[0]` elements of the product `result`."""

    def __init__(self, around: GluonPrograms, result: str, rows: int, width: tuple[int, str]) -> None:
        super().__init__(around.frame, Source(), around.scope)
        self.result, self.rows, self.width = result, rows, width
        self.leaves: set[str] = set()  # types of what is sent in pieces

    def print(self, steps: tuple[Step, ...], warps: int) -> None:
        """All of `steps`, which are cut."""
        inner = list(steps_in(steps))
        bound = {name for step in inner if isinstance(step, For) for name in (step.variable, *dict(step.let))}
        rows = self.spell.number(f"{self.result}_rows", self.rows, f"rows of tile {self.result}")
        regions = SliceRegions(self.spell, self.needs, (self.rows, rows), self.width, bound)
        self.regions = regions
        pointers = [one for step in inner for one in (*read(step), *written(step)) if one.access is Access.POINTER]
        if any(extent != 1 for one in pointers for extent in one.extent):
            self._layout(inner, warps)
        out, self.out = self.out, Source()
        self.steps(steps)
        body, self.out = self.out.text(), out
        used = set(re.findall(r"\w+", body))
        for vector, name in regions.vectors.items():
            if name in used:
                self.out.line(f"{name} = {vector}")
        self.out.lines(body)

    def _layout(self, inner: list[Step], warps: int) -> None:
        """The layout in which a warpgroup goes through memory. What is only stored comes into it as what it is stored as."""
        stored = list(dict.fromkeys(element(self.buffers[one.buffer]) for step in inner for one in written(step)))
        each = _THREAD_BYTES // BYTES[stored[0]]
        lanes = min(_WARP, self.width[0] // each)
        self.out.comment(f"{_THREAD_BYTES} bytes a thread, threads along a row")
        shape = f"[1, {each}], [{_WARP // lanes}, {lanes}], [{warps}, 1], [1, 0]"
        self.out.line(f"SLICE: gl.constexpr = gl.BlockedLayout({shape})")
        value = self.result
        if len(stored) == 1 and all(isinstance(step, Store) for step in inner):
            value = f"{value}.to(tl.{stored[0]})"
            self.dtypes[self.result] = stored[0]
        self.out.line(f"{self.result} = gl.convert_layout({value}, SLICE)")

    def _refuse(self, step: Step) -> None:
        """Nothing: slices have a form for each access, or say themselves that they have none."""

    def _place(self, value: str, region: Region, step: Step) -> Place:
        if any("lane" in names_in(start) for start in region.start):
            self.not_printed("rows that a table finds, in ping-pong", step, "pipelining=Plain()")
        return Programs._place(self, value, region, step)

    def compute(self, step: Compute) -> None:
        if step.op not in _OPS:
            self.not_printed("what needs more than an element at a time, in ping-pong", step, ", ".join(_OPS))
        Programs.compute(self, step)

    def load(self, step: Load) -> None:
        if step.region.access is not Access.POINTER or step.origin:
            self.not_printed("a load by descriptor behind a product in ping-pong", step, "Access.POINTER")
        super().load(step)

    def store(self, step: Store) -> None:
        if step.region.access is Access.DESCRIPTOR:
            self.not_printed("a store of a whole tile in ping-pong", step, "Access.POINTER, Access.PACED")
        if step.region.access is Access.POINTER:
            super().store(step)
            return
        if self.buffers[step.region.buffer].places:
            self.not_printed("pieces for a pool of one rank", step, "a loop over all ranks, Access.POINTER")
        arguments = self._piece(step)
        self.out.call("send_slice(", [*arguments[:3], self.spell(step.region.at), *arguments[3:]])

    def loop(self, step: For) -> None:
        """Pieces for all ranks leave piece by piece, each for one rank after the other."""
        if not paced(step):
            super().loop(step)
            return
        store, places = self._for_all(step)
        self.needs["rank"] = ""
        arguments = self._piece(store)
        last = [f"RANKS={self.spell.ranks()}", *([f"places={places}"] if places else [])]
        self.out.call("send_slice_to_ranks(", [*arguments[:3], "rank", *arguments[3:], *last])

    def _for_all(self, step: For) -> tuple[Store, str]:
        """The store of a loop over all ranks, and the parameter with their places in a pool."""
        ranks = self.schedule.num_ranks
        legal = f"for step < {ranks}: peer = (rank + step) % {ranks}, and the place of the peer in a pool"
        *loads, store = step.body
        let = resolved(step)
        bound = {step.variable, *let}
        if not isinstance(store, Store) or step.count != ranks:
            self.not_printed("pieces in a loop that is not over all ranks", step, legal)
        region = store.region
        all_ranks = first_of_ranks(replaced(region.at, let), step.variable, ranks) == 0
        if not all_ranks or any(names_in(start) & bound for start in region.start):
            self.not_printed("pieces in a loop that is not over all ranks", step, legal)
        places = self.buffers[region.buffer].places or ""
        of_peer = [
            isinstance(one, Load) and (one.region.buffer, one.region.start) == (places, (region.at,)) for one in loads
        ]
        if of_peer != [True] * bool(places):
            self.not_printed("pieces in a loop that does something else", step, legal)
        if places:
            self.needs[places] = ""
        return store, places

    def _piece(self, step: Store) -> list[str | Chain]:
        """Arguments of what sends a slice, without the rank."""
        region = step.region
        sides = self.regions.sides(step.value, region)
        self._check_piece(step, sides)
        rows = self.spell.number("piece_rows", PIECE_ROWS, "rows of a slice that one store sends to a peer")
        part = region.start[:-2]
        if any(names_in(one) - {"rank"} for one in part):
            part = ()
        there = self.at_ranks(region.buffer, (rows, sides[-1].name), sides[-1].most, part)
        self.leaves.add(element(self.buffers[region.buffer]))
        leaving, *pace = self.own_names.pace
        row = region.start[-2] if part else self.row(region)
        start = [self.spell(row), self.spell(region.start[-1], 0, self.width)]
        return [step.value, leaving, there, *start, *pace]

    def _check_piece(self, step: Store, sides: tuple[Side, ...]) -> None:
        """Raises NotPrinted for what cannot leave in whole pieces of 128 bytes a row."""
        region = step.region
        if self.buffers[region.buffer].memory is not Memory.SYMMETRIC:
            self.not_printed("pieces for memory that peers do not reach", step, "Memory.SYMMETRIC, Access.POINTER")
        size, shape = BYTES[element(self.buffers[region.buffer])], self.schedule.shapes[region.buffer]
        row = region.start[-2] + region.extent[-2] if len(sides) == 2 else 0
        fixed = not any(names_in(one) - {"rank"} for one in region.start[:-2])  # nothing lies behind its part
        ragged = any(side.ragged for side in sides) or (not fixed and self.scope.range(row).high > shape[-2])
        if (
            len(sides) != 2
            or ragged
            or self.rows % PIECE_ROWS
            or whole(region.extent[-2], self.schedule.sizes) != self.rows
        ):
            legal = f"whole tiles of a multiple of {PIECE_ROWS} rows, Access.POINTER"
            self.not_printed("a tile that is no whole pieces", step, legal)
        if self.width[0] * size != TURN_SLICE_BYTES or shape[-1] * size % DESCRIPTOR_BYTES:
            legal = f"tiles of a multiple of {TURN_SLICE_BYTES // size} columns, Access.POINTER"
            self.not_printed(f"pieces of rows that are not {TURN_SLICE_BYTES} bytes", step, legal)
