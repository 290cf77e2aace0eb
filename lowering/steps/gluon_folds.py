"""Phases of attention in Gluon: a producer warp waits and loads, and two consumer warpgroups have half of the rows each.

    queries = q[m : +128, n : +128]                  loaded once, half of the rows for each consumer
    for k_tile < 8: keys, values = ...; attend       the producer loads both, a consumer computes with each
    wait arrived[...]; for k_tile < 64: ...          the producer waits
    out = attended(...); store out                   consumers

The consumers go through the same loops as the producer: they count tiles of keys, so that they know the place of each in the ring
buffers. The first tile of keys is taken in front of the first loop, whose other rounds follow. `lowering/device/folds.py` has
what the groups do.
"""

from __future__ import annotations

from dataclasses import replace

from lowering.source import Chain
from lowering.steps.descriptors import Described, shared_layout
from lowering.steps.dtypes import element
from lowering.steps.errors import NotPrinted
from lowering.steps.gluon_moves import Moves
from lowering.steps.gluon_product import GROUP_WARPS
from lowering.steps.gluon_programs import GluonPrograms
from lowering.steps.late import needed
from tilelink.schedule.index import Index, Number, replaced
from tilelink.schedule.memory import Access
from tilelink.schedule.roles import Cooperative, Phase, Role
from tilelink.schedule.steps import FOLDS, Compute, For, Load, Step, Store
from tilelink.schedule.walk import steps_in

GROUPS = 2  # consumers, which share the rows of a tile
_REGISTERS = (240, 24)  # of a thread of the second consumer, and of the producer; the first consumer keeps the rest
_RINGS = ("queries", "keys", "values")
_LOADED = tuple(f"{ring}_{what}" for ring in _RINGS for what in ("loaded", "used"))
_NUMBER = "tiles_of_keys"  # that a program has loaded, or taken, so far
_AHEAD, _MANY = 8, 9  # operands of a masked step: where the first query stands, how many keys there are


class Fold:
    """What the steps of a position are: loads by what they load, the loops over tiles of keys, the store. Raises NotPrinted."""

    def __init__(self, role: Role, phase: Phase) -> None:
        self.role, self.title = role, phase.title or "tiles"
        # of each place in shared memory: the sides of a tile, its layout, a buffer that it is of
        self.moved = dict[str, tuple[tuple[str, ...], str, str]]()
        folds = [step for step in steps_in(phase.body) if isinstance(step, Compute) and step.op in FOLDS]
        loads = {step.result: step for step in steps_in(phase.body) if isinstance(step, Load)}
        stores = [step for step in steps_in(phase.body) if isinstance(step, Store)]
        logs = [step for step in steps_in(phase.body) if isinstance(step, Compute) and step.op == "log_of_weights"]
        if not folds or len(stores) != 1 + len(logs) or phase.body[-1] is not stores[-1]:
            raise self.refused("a cooperative phase that is no fold with the store of its result at the end")
        self.step, self.store, self.of_logs = folds[0], stores[-1], {str(one.results[0]) for one in logs}
        changed = (step for step in steps_in(phase.body) if isinstance(step, Compute) and step.op == "in_base_e")
        self.natural = {str(one.results[0]) for one in changed}
        self.state = tuple(map(str, self.step.results))
        self.loads = tuple(loads[str(name)] for name in self.step.operands[3:6])
        regions = [*(load.region for load in loads.values()), self.store.region]
        if any(not region.access.whole for region in regions):
            raise self.refused("a cooperative phase with accesses by pointer")
        first = next((one for one in phase.body if isinstance(one, For) and _folds(one)), None)
        if first is None or not isinstance(first.count, int) or first.count < 1:
            raise self.refused("a cooperative phase whose first loop may have no round")
        self.first = first

    def refused(self, what: str) -> NotPrinted:
        legal = "whole tiles through descriptors, a first loop of a known number of rounds, or pipelining=Plain()"
        return NotPrinted(what=what, role=self.role.name, step=self.title, legal=legal)


def _folds(loop: For) -> bool:
    return any(isinstance(one, Compute) and one.op in FOLDS for one in loop.body)


class Folds(GluonPrograms):
    """Programs of a kernel with a cooperative phase. `inside`: roles that are warps of theirs."""

    inside: tuple[Role, ...] = ()

    def phase(self, role: Role, phase: Phase) -> None:
        if not isinstance(phase.pipelining, Cooperative):
            super().phase(role, phase)
            return
        self.needs["program"] = ""
        self.out.comment(phase.title or f"tiles of {role.name}")
        fold = Fold(role, phase)
        with self.scope.inside("tile", phase.count, let=phase.let):
            self._groups(role, phase, fold)

    def _groups(self, role: Role, phase: Phase, fold: Fold) -> None:
        """Shared memory, barriers, and the groups."""
        assert isinstance(phase.pipelining, Cooperative)
        places = self.spell.number("stages", phase.pipelining.places, "tiles of keys in the ring buffer, and of values")
        name = role.name.removesuffix("_kernel").removesuffix("_tiles")
        rings = [f"{one}_ring" for one in _RINGS]
        loads = self._producer(role, phase, fold, name, rings)
        takes = self._consumers(role, phase, fold, name, rings)
        for ring, many in zip((*_RINGS, "leaving"), (str(GROUPS), places, places, str(GROUPS)), strict=True):
            block, layout, buffer = fold.moved[ring]
            shared = "leaving" if ring == "leaving" else f"{ring}_ring"
            shape = f"[{many}, {', '.join(block)}]"
            dtype = f"tl.{element(self.buffers[buffer])}"
            self.out.line(f"{shared} = gl.allocate_shared_memory({dtype}, {shape}, {layout})")
        for ring, many in zip(_RINGS, ("1", places, places), strict=True):
            self.out.line(f"{ring}_loaded, {ring}_used = barriers_of({many}, {GROUPS})")
        moves = dict(Moves(self, role).print(self) for role in self.inside)
        with self.out.block("gl.warp_specialize("), self.out.block("["):
            for group in range(GROUPS):
                arguments = [*takes, *rings, "leaving", *_LOADED, "program", str(group)]
                self.out.call(f"({name}_rows, (", arguments, ")),")
            self.out.call(f"({name}_loads, (", [*loads, *rings, *_LOADED, "program"], ")),")
            for function, given in moves.items():
                self.out.call(f"({function}, (", given, ")),")
        self.out.line("    ],")
        warps, registers = [GROUP_WARPS, 1, *(1 for _ in moves)], [*_REGISTERS, *(_REGISTERS[-1] for _ in moves)]
        self.out.line(f"    {warps},  # warps of each group but the first")
        self.out.line(f"    {registers},  # registers a thread there; the first keeps the rest")
        self.out.line(")")

    def of_group(self, step: Load | Store, ring: str, fold: Fold) -> tuple[str, Number, Number]:
        """The descriptor of tiles that a step moves, of queries and results of the rows of a group, and where a tile begins."""
        name, region = (step.result, step.region) if isinstance(step, Load) else (f"{step.value}_rows", step.region)
        rows = self.rows_of(step, fold)
        if ring in ("queries", "leaving"):
            rows //= GROUPS
        region = replace(region, extent=(*region.extent[:-2], rows, region.extent[-1]))
        found = self.described(name, region, step)
        fold.moved[ring] = self.descriptors[found[0]].block, f"{found[0]}.layout", region.buffer
        return found

    def rows_of(self, step: Load | Store, fold: Fold) -> int:
        """Of a whole tile: behind the last row of a matrix, descriptors load zeros and store nothing. Raises NotPrinted where
        other rows are there."""
        rows, value = step.region.extent[-2], step.result if isinstance(step, Load) else step.value
        if isinstance(rows, int):
            return rows
        side = self.regions.sides(value, step.region)[0]
        if side.ragged or (step.region.start[:-2] and step.region.access is not Access.PARTS):
            raise fold.refused("a cooperative phase whose tiles end where other rows begin")
        return side.most

    def _producer(self, role: Role, phase: Phase, fold: Fold, name: str, rings: list[str]) -> list[str]:
        inner = _Producer(self.frame, type(self.out)(), self.scope)
        inner.fold = fold
        end, programs = inner.end(role, phase), inner.programs(role)
        body = phase.body[: phase.body.index(_last(phase.body)) + 1]
        inner.out.line(f"{_NUMBER} = 0")
        with inner.out.block(f"for tile in range(program, {end}, {programs}):"), inner.scope.inside():
            inner.let(needed(phase.let, body))
            inner.number = f"tile // {programs}"
            inner.steps(body)
        what = f"Producer warp: load queries, keys and values for the tiles of {name}."
        return self.function(f"{name}_loads", what, inner, [], (*rings, *_LOADED, "program"))

    def _consumers(self, role: Role, phase: Phase, fold: Fold, name: str, rings: list[str]) -> list[str]:
        inner = _Consumer(self.frame, type(self.out)(), self.scope)
        inner.fold = fold
        end, programs = inner.end(role, phase), inner.programs(role)
        inner.out.line(f"{_NUMBER} = 0")
        with inner.out.block(f"for tile in range(program, {end}, {programs}):"), inner.scope.inside():
            inner.let(needed(phase.let, _computing(phase.body)))
            inner.number = f"tile // {programs}"
            inner.steps(_computing(phase.body))
        what = f"Consumer warpgroup GROUP: compute its rows of the tiles of {name}."
        last = (*rings, "leaving", *_LOADED, "program", "GROUP")
        return self.function(f"{name}_rows", what, inner, [], last)


class _Group(Folds):
    fold: Fold
    number: str  # of the position among those of the program, as text
    begun = False  # whether the first tile of keys has been taken


class _Producer(_Group):
    """Waits and loads."""

    def load(self, step: Load) -> None:
        at = next(place for place, one in enumerate(self.fold.loads) if one.result == step.result)
        ring = _RINGS[at]
        shared = [f"{ring}_ring", f"{ring}_loaded", f"{ring}_used"]
        if step.region.access is Access.PARTS:
            part, *where = self._of_part(step, ring)
            self.out.call("load_tile_of_part(", [part, *map(self.spell, where), *shared, _NUMBER])
            return
        name, row, col = self.of_group(step, ring, self.fold)
        function, number = ("load_queries", self.number) if at == 0 else ("load_tile", _NUMBER)
        self.out.call(f"{function}(", [name, self.spell(row), self.spell(col), *shared, number])

    def _of_part(self, step: Load, ring: str) -> tuple[str, Number, Number, Number]:
        """The descriptor of tiles with zeros behind the last row of their part; the part, and where the tile begins in it."""
        self.rows_of(step, self.fold)
        buffer, sides = self.buffers[step.region.buffer], self.regions.sides(step.result, step.region)
        block, cols = tuple(side.name for side in sides), sides[-1].most
        part: Number = 0
        for start, size in zip(step.region.start[:-2], self.schedule.shapes[buffer.name], strict=False):
            part = part * size + start
        name = f"{buffer.name}_desc_of_parts"
        self.descriptors[name] = Described(buffer.name, block, shared_layout(buffer, cols, rank=3), parts=True)
        self.needs[name] = ""
        self.fold.moved.setdefault(ring, (block, shared_layout(buffer, cols), buffer.name))
        row, col = step.region.start[-2:]
        return name, part, row, col

    def compute(self, step: Compute) -> None:
        if step.op in FOLDS:
            self.out.line(f"{_NUMBER} += 1")

    def store(self, step: Store) -> None:
        raise self.fold.refused("a producer that stores")


class _Consumer(_Group):
    """Computes, tile by tile of keys, and stores. Its steps are those of `_computing`."""

    def loop(self, step: For) -> None:
        if step.variable != self.fold.first.variable or self.begun:
            super().loop(step)
            return
        self.begun = True
        known: dict[str, Number] = {step.variable: 0}
        for name, index in step.let:
            known[name] = replaced(index, known)
        (fold,) = step.body
        assert isinstance(fold, Compute) and isinstance(step.count, int)
        self._take("first_keys", fold, known)
        if step.count > 1:
            later: dict[str, Number] = {step.variable: Index(step.variable) + 1}
            let = tuple((name, replaced(index, later)) for name, index in step.let)
            super().loop(replace(step, count=step.count - 1, let=let))  # which follows from what the producer counts
        elif not (rounds := self.rounds(step)).isdigit():
            self.spell.constants.require(f"{rounds} == 1", f"the first loop over {step.variable} has one round")

    def compute(self, step: Compute) -> None:
        *_, total = self.fold.state
        if step.op in FOLDS:
            self._take("next_keys", step, {})
        elif step.op == "attended":
            call = f"{total} = last_values("
            self.out.call(
                call,
                [total, f"{total}_weights", "queries_used", "values_ring", "values_loaded", "values_used", _NUMBER],
            )

    def _take(self, function: str, step: Compute, known: dict[str, Number]) -> None:
        top, weight, total = self.fold.state
        weights = f"{total}_weights"
        masked = step.op == FOLDS[1]
        ahead: Number = 0
        if masked:
            ahead = replaced(step.operands[_AHEAD], known) if known else step.operands[_AHEAD]  # type: ignore[assignment, arg-type]
        stands = f"{self.spell(ahead)} + GROUP * {self._rows()}" if masked else "0"
        scale, cap = step.operands[6:8]
        window = step.operands[10] if masked else 0
        sizes = [f"SCALE={scale}", f"CAP={cap}", f"MASKED={masked}", f"WINDOW={window}"]
        if masked and not isinstance(step.operands[_MANY], int):  # a part ends within the tile
            many = replaced(step.operands[_MANY], known)  # type: ignore[arg-type]
            last = "keys of the last tile of a part"
            sizes.append(
                f"many={self.spell.number('last_keys', many, last) if isinstance(many, int) else self.spell(many)}"
            )
        queries = "queries_ring.index(GROUP)"
        if function == "first_keys":
            self.origin(total)
            where = [queries, "queries_loaded", self.number, "keys_ring", "keys_loaded", "keys_used", "values_ring"]
        else:
            keys, values = ([f"{one}_{what}" for what in ("ring", "loaded", "used")] for one in _RINGS[1:])
            where = [top, weight, total, weights, queries, *keys, *values]
        self.out.call(f"{top}, {weight}, {total}, {weights} = {function}(", [*where, _NUMBER, stands, *sizes])
        self.out.line(f"{_NUMBER} += 1")

    def store(self, step: Store) -> None:
        top, weight, total = self.fold.state
        if step.value in self.fold.of_logs:
            self._store_logs(step, top, weight)
            return
        name, row, col = self.of_group(step, "leaving", self.fold)
        rows = self.descriptors[name].block[0]
        where = [name, f"{self.spell(row)} + GROUP * {rows}", self.spell(col), "leaving.index(GROUP)"]
        self.out.call("store_means(", [total, weight, *where])

    def _rows(self) -> str:
        """How many rows of a tile a group has."""
        rows = self.rows_of(self.fold.loads[0], self.fold)
        return self.spell.number("queries_tile_rows", rows // GROUPS, "rows of tile queries_tile")

    def _store_logs(self, step: Store, top: str, weight: str) -> None:
        """Of the rows of the group, in the column of their head."""
        buffer = step.region.buffer
        first = Chain((self.regions.base(step.region), *self.spell.flat(step.region.start, buffer, 0)))
        natural = f"NATURAL={step.value in self.fold.natural}"
        where: list[str | Chain] = [first, f"GROUP * {self._rows()}", self.spell.step(buffer, 0), natural]
        rows = step.region.extent[-2]
        many = [] if isinstance(rows, int) else [f"many={self.spell(rows)}"]
        self.out.call("store_logs(", [top, weight, "keys_ring", *where, *many])


def _computing(body: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps of a consumer: the producer waits and loads for it."""
    found = list[Step]()
    for step in body:
        if isinstance(step, For):
            inner = _computing(step.body)
            if inner:
                found.append(replace(step, body=inner))
        elif isinstance(step, Compute | Store):
            found.append(step)
    return tuple(found)


def _last(body: tuple[Step, ...]) -> Step:
    """The last step in which something is taken into the fold."""
    found = [step for step in body if any(isinstance(one, Compute) and one.op in FOLDS for one in steps_in((step,)))]
    return found[-1]
