"""What comes behind a product in ping-pong, slice by slice of its columns.

    store y -> parts[rank, m : +128, n : +128]@peer, paced       halves of y; parts_slice(first half), parts_slice(second half)
    for segment: (wait; a = parts[segment]; out = add(out, a))   all waits; then of each slice: load a, add

A slice fits into the registers that its change of layout takes, where a whole tile would spill. Waits come in front of all
slices: behind them are only loads and computations, for which nobody waits.
"""

from __future__ import annotations

from dataclasses import replace

from lowering.steps.gluon_product import Product
from lowering.steps.gluon_programs import GluonPrograms
from lowering.steps.gluon_slices import Slice, column_name, cut, paced, slice_cols
from lowering.steps.late import needed
from lowering.steps.slices import taken
from tilelink.ir.nodes import PIECE_ROWS, PIECES_SPREAD
from tilelink.schedule.index import names_in
from tilelink.schedule.steps import Compute, For, If, Load, Move, Order, Step, Store, Sync, Wait
from tilelink.schedule.walk import indices, mapped, notifies, steps_in, written

Body = tuple[Step, ...]
_OF_KERNELS = {"rank", "call", "program", "lane"}  # names that slices do not take as indices of a tile


def flushed(body: Body) -> Body:
    """`body` with a flush behind each store in pieces: those of a warpgroup are known to the thread that has sent them only."""
    out: list[Step] = []
    for step in body:
        if isinstance(step, If):
            step = replace(step, body=flushed(step.body), others=flushed(step.others))
        out.append(step)
        if paced(step) and not isinstance(step, If):
            out.append(Sync(Order.FLUSH))
    return tuple(out)


class Rest:
    """Prints to `around` what groups of `warps` warps do with `product`."""

    def __init__(self, around: GluonPrograms, product: Product, warps: int) -> None:
        self.around, self.out, self.warps = around, around.out, warps
        self.result, self.rows, self.cols = product.result, product.rows, product.cols
        # type and columns of what leaves in pieces -> what these are called
        self.leaving: dict[tuple[str, int], str] = {}

    def steps(self, body: Body) -> None:
        """Waits at once, slices when all of a run of steps is known."""
        run: list[Step] = []
        for step in body:
            if not any(not isinstance(one, For | If) for one in steps_in((step,))):
                continue  # it does nothing
            if isinstance(step, If) and _of_tiles(step):
                run = self._end(run)
                self.around.branches(step, self.steps)
            elif _of_tiles(step):
                waits, work = self._apart(step)
                run = self._end(run) if waits and _stores(run) else run
                self.around.steps(waits)
                run.append(work)
            else:
                run = run if _only_waits(step) and not _stores(run) else self._end(run)
                self.around.steps((step,))
        self._end(run)

    def _apart(self, step: Step) -> tuple[Body, Step]:
        """The waits of a loop, as a loop of their own, and what else it does with tiles."""
        if any(isinstance(one, Move) or notifies(one) for one in steps_in((step,))):
            self.around.not_printed("a loop that notifies between slices", step, "notifies behind the loop")
        if not isinstance(step, For):
            return (), step
        waits = tuple(one for one in step.body if _only_waits(one))
        work = tuple(one for one in step.body if not _only_waits(one))
        if any(isinstance(one, Wait) for one in steps_in(work)):
            self.around.not_printed("a wait inside of what is done with tiles", step, "waits in the loop itself")
        loop = replace(step, body=work, let=needed(step.let, work))
        return ((replace(step, body=waits, let=needed(step.let, waits)),) if waits else ()), loop

    def _end(self, run: list[Step]) -> list[Step]:
        """Print the slices of a run; returns the next one, which has no steps yet."""
        if run:
            self._slices(tuple(run))
        return []

    def _slices(self, work: Body) -> None:
        around, stores = self.around, [store for store in steps_in(work) if isinstance(store, Store)]
        if taken(work) != {self.result} or not stores:
            what = "a tile that is kept from one wait or branch to the next, in ping-pong"
            around.not_printed(what, work[0], "waits in front of all computations, pipelining=Plain()")
        width = slice_cols(around.schedule, work, self.cols)
        target = stores[-1].region.buffer
        sums = any(isinstance(step, Compute) and step.op != "copy" for step in steps_in(work))
        what = f"columns of a slice of a tile{' to which parts are added' if sums else ''}"
        name = around.spell.number("sum_slice_cols" if sums else "slice_cols", width, what)
        sizes = around.schedule.sizes
        column = column_name(work, self.cols, sizes)
        if column is None and width < self.cols:
            what = "slices of tiles whose columns do not begin where one name says"
            around.not_printed(what, work[0], "regions from a column n on, pipelining=Plain()")
        inner = Slice(around, self.result, self.rows, (width, name))
        sliced = mapped(work, lambda step: (cut(step, self.cols, width, sizes),))
        with around.scope.inside():
            if column is not None:
                known = around.scope.names[column]
                around.scope.names[column] = replace(known, high=known.high + self.cols - width)
                around.scope.values.pop(column, None)  # those of the first slice
            inner.print(sliced, self.warps)
        self._call(target, inner, sliced, (width, name), column)

    def _call(self, target: str, inner: Slice, sliced: Body, width: tuple[int, str], column: str | None) -> None:
        """The function of a slice, and its call for each one from left to right."""
        around, function, names = self.around, self.around.slice_name(target), self.around.own_names
        last = names.pace if inner.leaves else ()
        first = [self.result, *_indices(sliced, {*_OF_KERNELS, *around.schedule.sizes})]
        what = f"One slice of columns of a tile of {self.result}: {_told(sliced)}."
        arguments = around.function(function, what, inner, first, last)
        if inner.leaves:
            self.leaving |= {(dtype, width[0]): width[1] for dtype in inner.leaves}
            self.out.line(f"{names.clocks} = {names.took} // {self._pieces(self.cols // width[0])}")
        for number, one in enumerate(self._names(width[0])):
            begins = f"{column} + {width[1] if number == 1 else f'{number} * {width[1]}'}" if number else column
            given = {self.result: one, column: begins, names.slice_number: str(number)}
            self.out.call(f"{function}(", [given.get(one) or one for one in (*first, *arguments, *last)])

    def _pieces(self, slices: int) -> str:
        pieces = slices * self.rows // PIECE_ROWS
        why = f"pieces in the time of a product: the {pieces} of a tile take {PIECES_SPREAD:.0%} of it"
        return self.around.spell.number("pieces_per_product", round(pieces / PIECES_SPREAD), why)

    def _names(self, width: int) -> list[str]:
        """Names of the slices, from left to right: by the columns that they hold."""
        names, size = [self.result], self.cols
        while size > width:
            size //= 2
            halves = [f"{self.result}_{first}_{first + size}" for first in range(0, self.cols, size)]
            for number, one in enumerate(names):
                self.out.line(f"{halves[2 * number]}, {halves[2 * number + 1]} = halves({one})")
            names = halves
        return names


def _only_waits(step: Step) -> bool:
    inner = list(steps_in((step,)))
    return any(isinstance(one, Wait) for one in inner) and all(isinstance(one, Wait | For | If) for one in inner)


def _of_tiles(step: Step) -> bool:
    return any(isinstance(one, Load | Store | Compute) for one in steps_in((step,)))


def _stores(run: list[Step]) -> bool:
    return any(written(step) for step in steps_in(tuple(run)))


def _indices(work: Body, others: set[str]) -> list[str]:
    """Names in indices of `work` that it does not bind, in the order in which they come up."""
    bound, found = set(others), dict[str, None]()
    for step in steps_in(work):
        if isinstance(step, For):
            bound |= {step.variable, *(name for name, _ in step.let)}
        found |= dict.fromkeys(name for index in indices(step) for name in sorted(names_in(index)))
    return [name for name in found if name not in bound]


def _told(work: Body) -> str:
    """What is done with a slice, in a few words."""
    inner = list(steps_in(work))
    taken = {operand for one in inner if isinstance(one, Compute) for operand in one.operands}
    parts = dict.fromkeys(one.region.buffer for one in inner if isinstance(one, Load) and one.result in taken)
    targets = dict.fromkeys(one.region.buffer for one in inner if isinstance(one, Store))
    added = f"load {', '.join(parts)}, compute, then " if parts else ""
    return f"{added}{'send' if paced(*work) else 'store'} it to {', '.join(targets)}"
