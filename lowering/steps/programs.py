"""Steps of programs on SMs, in Triton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isinf
from typing import Self

from lowering import names
from lowering.source import Chain, Source
from lowering.steps.dtypes import BYTES, NAMES, element
from lowering.steps.errors import EngineCannot
from lowering.steps.flat import is_flat, run
from lowering.steps.frame import Frame
from lowering.steps.indices import Scope
from lowering.steps.late import adds, defers, needed, split
from lowering.steps.loading import Loading, kind_of
from lowering.steps.ops import op_text
from lowering.steps.packets import elements_in_line
from lowering.steps.regions import Place
from lowering.steps.slices import Sliced, sliced
from tilelink.ir.enums import Protocol
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.schedule.index import Index, Number, rank, sum_of, tables_in, terms_of
from tilelink.schedule.known import Known
from tilelink.schedule.memory import Access, Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.ranges import Range
from tilelink.schedule.roles import Phase, Prefetch, Role, Sms, Who
from tilelink.schedule.steps import FOLDS, Call, Compute, For, Load, Move, Order, Step, Store, Sync
from tilelink.schedule.walk import read, steps_in, written

BLOCK_BYTES = 32768  # per step of a copy
_FIRST = "first_position"  # of a loop that begins where a table says
_ORDERS = {
    Order.BARRIER: "program_barrier()",
    Order.FENCE: "fence_descriptors()",
    Order.FLUSH: "flush_stores()",
    Order.QUIET: "program_barrier()",  # puts are stores here: their sources have been read when all threads have come
    Order.LANDED: "program_barrier()",  # and a word behind it tells of the stores of all of them
}


class Programs(Loading):
    """`functions`: what the printed text calls."""

    language = "triton"

    def __init__(self, frame: Frame, out: Source, scope: Scope) -> None:
        super().__init__(frame, out, scope)
        self.functions: list[str] = []

    # functions

    def inner(self) -> Self:
        """A printer of other text for the same programs."""
        return type(self)(self.frame, Source(), self.scope)

    def parameters(self, needs: dict[str, str]) -> list[str]:
        return [one for one in needs if one]

    def function(
        self, name: str, what: str, inner: Programs, first: list[str], last: tuple[str, ...] = ()
    ) -> list[str]:
        """Notes the function `name` with the text of `inner`, and what that needs. Returns the arguments between `first` and
        `last`."""
        arguments = [one for one in self.parameters(inner.needs) if one not in {*first, *last}]
        given = [f"{one}: gl.constexpr" if one == "GROUP" else one for one in last]
        out = Source()
        out.line(f"@{self.language}.jit")
        with out.function(name, [*first, *arguments, *given], what):
            out.lines(inner.out.text())
        self.take(inner)
        self.functions.append(out.text())
        return arguments

    def take(self, inner: Programs) -> None:
        """What a part of the text needs, the whole needs as well."""
        self.functions += inner.functions
        self.needs |= inner.needs
        self.descriptors |= inner.descriptors
        self.blocks |= inner.blocks

    def slice_name(self, buffer: str) -> str:
        """What the next function of slices of a buffer is called."""
        name = f"{buffer}_slice"
        others = sum(f"def {name}" in text for text in self.functions)
        return f"{name}_{others}" if others else name

    # phases

    def phase(self, role: Role, phase: Phase) -> None:
        """A phase of each program, or of one of them."""
        self.check_pipelining(role, phase)
        self.regions.line = elements_in_line(self.schedule, phase)
        self.origins = dict(self.schedule.origins)
        named = {Who.FIRST: "the first program", Who.LAST: "the program that ends last"}
        self.out.comment(
            phase.title or ("each program" if phase.every else named.get(phase.who, f"tiles of {role.name}"))
        )
        alone = phase.who is not Who.EACH
        header = "if program == 0:" if phase.who is Who.FIRST else ""
        if header:
            self.needs["program"] = ""
        with self.out.maybe(header):
            self._positions(role, phase, alone or phase.every)

    def _positions(self, role: Role, phase: Phase, all_of_them: bool) -> None:
        first, count = phase.first, phase.count
        ends = [self._first(role, first), self.end(role, phase)]
        if tables_in(first):
            self.out.line(f"{_FIRST} = {ends[0]}")
            ends[0] = _FIRST
        if all_of_them:
            ends = ends[first == 0 :]
        else:
            self.needs["program"] = ""
            programs = self.programs(role)
            ends = [self._own_first(role, phase, ends[0], programs), ends[1], programs]
        alone = self.out.maybe("" if all_of_them else "if program == 0:")
        flags: list[str | Chain] = [*ends, *self._flags(phase)]
        loop = self.out.condition("for tile in tl.range(", flags, "):") if self.positions(phase) else alone
        with loop, self.scope.inside("tile", count, first):
            self.let(needed(phase.let, phase.body))
            self.begin(phase)
            if defers(phase):
                before, late, stores = split(phase.body)
                self.steps(before)
                late_call = self._late(role, phase, late)
                programs = ends[-1]
                there = f"tile - {programs}" if first == 0 else f"tile - {programs} - {self.spell(first, 2)}"
                late_call(f"tl.maximum(tile - {programs}, {self.spell(first)})", f"({there} >= 0).to(tl.int32)")
                self.steps(stores)
            else:
                self.steps(phase.body)
        if defers(phase):
            begin, end, programs = ends
            last = f"({end} - 1 - {begin}) // {programs} * {programs}"
            late_call(f"tl.maximum({begin} + {last}, {self.spell(first)})", f"({begin} < {end}).to(tl.int32)")

    def _first(self, role: Role, first: Number) -> str:
        """A position, as the end of those before it is called."""
        if not isinstance(first, int) or not first:
            return self.spell(first)
        return self.spell.number(f"{role.name}_tiles", first, f"positions of {role.name}")

    def _own_first(self, role: Role, phase: Phase, name: str, programs: str) -> str:
        """The first position of a phase, from that called `name` on, that belongs to a program: programs take positions in
        turn."""
        first = phase.first
        if first == 0:
            return "program"
        if tables_in(first):
            return f"{name} + {self.spell.floored('%', f'program - {name}', programs)}"
        if not isinstance(first, int):
            return self.spell((Index("program") - first) % role.programs + first)
        ahead = -first % role.programs
        if ahead == 0:
            self.spell.constants.require(f"{name} % {programs} == 0", f"position {name} belongs to the first program")
            return f"{name} + program"
        what = f"places by which programs of {role.name} are ahead at position {name}"
        made = self.made(phase)
        whose = made if made and made != self.made(role.phases[0]) else role.name
        return f"{name} + (program + {self.spell.number(f'{whose}_ahead', ahead, what)}) % {programs}"

    def begin(self, phase: Phase) -> None:
        """What stands in front of all steps of a position."""

    def _late(self, role: Role, phase: Phase, late: tuple[Step, ...]) -> Callable[[str, str], None]:
        """A function that notifies for a tile, and what prints its call. A loop that branches on its tile is not pipelined:
        where there is no tile yet, words grow by nothing."""
        inner = self.inner()
        inner.amount = "tile_exists" if adds(late) else ""
        guard = "" if inner.amount else "if tile_exists == 1:"
        with self.scope.inside("tile", phase.count, phase.first), inner.out.maybe(guard):
            inner.let(needed(phase.let, late))
            inner.steps(late)
        name = f"notify_of_{role.name}{f'_{len(self.functions)}' if self.functions else ''}"
        what = f"What tile `tile` of {role.name} tells, if there is one: `tile_exists` is 1, or 0."
        needs = self.function(name, what, inner, ["tile", "tile_exists"])
        return lambda tile, exists: self.out.call(f"{name}(", [tile, exists, *needs])

    # slices

    def steps(self, body: tuple[Step, ...]) -> None:
        found = sliced(body) if self.vectors else None
        if found is None or not self._told_inside(found.work):
            super().steps(body)
            return
        super().steps(found.before)
        name, needs = self._slice_function(found)
        for value, start in zip(found.values, found.starts, strict=True):
            given = {found.column: self.spell(start)}
            names = [given.get(one, one) for one in self._indices(found)]
            self.out.call(f"{name}(", [value, *names, *needs])
        self.steps(found.behind)

    def _told_inside(self, work: tuple[Step, ...]) -> bool:
        """Whether steps look up the places of pools themselves, where they store to one of a peer."""
        loaded = {region.buffer for step in steps_in(work) for region in read(step)}
        stored = [region for step in steps_in(work) for region in written(step) if region.at != rank]
        return all(self.buffers[one.buffer].places in (None, *loaded) for one in stored)

    def _indices(self, found: Sliced) -> list[str]:
        return [one for one in found.names if one not in {"rank", "call", "program", *self.schedule.sizes}]

    def _slice_function(self, found: Sliced) -> tuple[str, list[str]]:
        """Prints what is done with a slice, as a function; its name, and its parameters behind the slice and indices."""
        inner = self.inner()
        inner.origins = self.origins
        with self.scope.inside():
            first, last = (self.scope.range(one) for one in (found.starts[0], found.starts[-1]))
            self.scope.values.pop(found.column, None)  # those of the first slice
            self.scope.names[found.column] = Range(first.low, last.high)
            inner.steps(found.work)
        stores = [step for step in steps_in(found.work) if isinstance(step, Store)]
        name = self.slice_name(stores[-1].region.buffer if stores else found.tile)
        what = f"One slice of columns of a tile of {found.tile}, from column {found.column} on."
        return name, self.function(name, what, inner, [found.tile, *self._indices(found)])

    def _flags(self, phase: Phase) -> list[str]:
        """How the compiler runs a loop over tiles. Around a product without a loop it would fail on branches (Triton 3.6)."""
        if isinstance(phase.pipelining, Prefetch) and self.may_flatten(phase):
            return ["flatten=True"]
        held = not self._has_loop(phase.body) and (_multiplies(phase.body) or self.awaits(phase.body))
        return ["num_stages=1"] * held

    def range(self, count: str, body: tuple[Step, ...], unrolled: bool) -> str:
        """A loop that waits is not pipelined: the compiler would load for later rounds before they have waited. It leaves loops
        as they are that have another one inside."""
        if unrolled:
            return f"tl.static_range({count})"
        if self.awaits(body):
            return f"range({count})" if self._has_loop(body) else f"tl.range({count}, num_stages=1)"
        if any(isinstance(step, Load) for step in body) and all(map(_by_function, body)):
            return f"tl.range({count}, num_stages={self._stages()})"  # nothing else tells the compiler
        return f"range({count})"

    def _stages(self) -> str:
        """Of loads of the role."""
        roles = (role for launch in self.schedule.launches for role in launch.roles if role.name == self.scope.role)
        engine = next(roles).engine
        assert isinstance(engine, Sms), "its programs"
        return self.spell.number(f"{self.scope.role}_stages", engine.stages, "rounds of a loop that are loaded at once")

    def _has_loop(self, body: tuple[Step, ...]) -> bool:
        return any(isinstance(step, Move) or (isinstance(step, For) and self._stays(step)) for step in body)

    def _stays(self, step: For) -> bool:
        """Whether a loop is one for the compiler as well."""
        stays = not step.unrolled and self.scope.range(step.count).low > 1 and not self.as_one(step)
        if stays and isinstance(step.count, int) and not (rounds := self.rounds(step)).isdigit():
            self.spell.constants.require(f"{rounds} > 1", f"the loop over {step.variable} has several rounds")
        return stays

    def may_flatten(self, phase: Phase) -> bool:
        """Whether the compiler may run the tiles and the loop inside of each as one loop, and load ahead over its end: there is
        one inner loop, which does not wait. Of a loop with a single round, it would load in front of the wait for the tile."""
        before, _, stores = split(phase.body) if defers(phase) else (phase.body, (), ())
        body = (*before, *stores)
        loops = [step for step in body if isinstance(step, For) and self._stays(step)]
        if not loops:
            return _multiplies(body) and not self.awaits(body)
        return len(loops) == 1 and not self.waits(loops[0].body)

    # leaves

    def store(self, step: Store) -> None:
        buffer = self.buffers[step.region.buffer]
        value = self.rounded(step)
        if step.region.access is Access.DESCRIPTOR:
            if step.skip != 0:
                self.not_printed("a store by descriptor that leaves rows out", step, "Access.POINTER")
            name, row, col = self.described(step.value, step.region, step)
            self.out.line(f"{name}.store([{self.spell(row)}, {self.spell(col)}], {value})")
            return
        place = self._place(step.value, step.region, step) if step.skip == 0 else self._behind(step)
        if buffer.protocol is not Protocol.SIMPLE:
            packets = [place.pointers, step.value, *self._packets(buffer), *place.masks]
            self.out.call(f"put_{kind_of(buffer)}(", packets)
            return
        self.out.call("tl.store(", [place.pointers, value, *place.masks])

    def _behind(self, step: Store) -> Place:
        """Where a tile goes that leaves out its first rows: from these on, all of it is masked that is not behind them."""
        region, number = step.region, len(step.region.start) - 2
        start, extent = list(region.start), list(region.extent)
        start[number] = sum_of(terms_of(start[number] - step.skip))
        tile = self.regions.whole(extent[number])
        assert isinstance(tile, int), "tiles have a size"
        extent[number] = tile
        whole = replace(region, start=tuple(start), extent=tuple(extent))
        place = self._place(step.value, whole, step)
        rows = self.regions.vector(False, "0", self.regions.sides(step.value, whole)[0].name)
        masks = [f"({one})" for one in place.mask.parts] if len(place.mask.parts) == 1 else list(place.mask.parts)
        new = f"{rows} >= {self.spell(step.skip)}"
        return replace(place, mask=Chain((*masks, f"({new})" if masks else new), "&", "mask="))

    def move(self, step: Move) -> None:
        flat = is_flat(self.scope, step)
        for source, target in zip(step.source, step.target, strict=True):
            name = f"{source.buffer}_moved"
            if flat:
                self._copy(name, source, target)
                continue
            self.load(Load(name, source))
            self.store(Store(name, target))
        if step.notify is not None:
            self.notify(step.notify)

    def _copy(self, name: str, source: Region, target: Region) -> None:
        """All elements of a run, a block of them at a time: loads of so many are in flight at once, then stores."""
        found = run(self.scope, source)
        assert found is not None
        rows, columns = found
        most = int(self.scope.range(rows * columns).high)
        block = min(1 << (most - 1).bit_length(), BLOCK_BYTES // BYTES[element(self.buffers[source.buffer])])
        what = f"elements of {source.buffer} that a program loads, then stores, at a time"
        elements = self.spell(rows * columns)
        if most + block >= names.INT32_LIMIT:  # the end of the last block, too
            times = "" if columns == 1 else f" * {self.spell(columns, 2)}"
            elements = f"{self.spell.wide(self.spell(rows))}{times}"
        ends = [Chain((self.regions.base(one), *self.spell.flat(one.start, one.buffer, 0))) for one in (target, source)]
        self.out.call("copy_run(", [*ends, elements, self.spell.number(f"{name}_block", block, what)])

    def compute(self, step: Compute) -> None:
        if step.op == "own_place":
            (buffer,), (result,) = step.operands, step.results
            self.needs[f"{buffer}_here"] = ""
            self.out.line(f"{result} = {buffer}_here")
            self.dtypes[result] = "int64"
            return
        for name in step.results:
            self.origin(name)
        sides = [name for _, name in self.regions.shape(step.results[0], step.shape)] if step.shape else []
        shape = ", ".join(["1"] * (len(sides) == 1) + sides)  # a vector is a row
        exact = any(self.dtypes.get(str(one)) == "float32" for one in step.operands[:2])
        operands = [self._operand(one, step.op) for one in step.operands]
        text = op_text(self.schedule, self.scope.role, step, operands, f"({shape})", exact)
        results, (function, _, arguments) = ", ".join(step.results), text.partition("(")
        if arguments == f"{', '.join(operands)})":
            self.out.call(f"{results} = {function}(", operands)
        else:
            self.out.line(f"{results} = {text}")
        kept = self.dtypes.get(str(step.operands[0])) if step.op in ("copy", "trans") else NAMES.get(step.op[3:])
        for name in step.results:
            self.dtypes[name] = kept or "float32"

    def _operand(self, one: str | float | Index, op: str) -> str:
        """Elementwise functions compute in fp32, whatever their operands were loaded as."""
        if isinstance(one, Index | Known):
            return self.spell(one)
        if isinstance(one, float) and isinf(one):
            return f'float("{one}")'
        loaded = self.dtypes.get(str(one), "float32")
        return f"{one}.to(tl.float32)" if op in FUNCTIONS and loaded != "float32" else str(one)

    def library(self, step: Call) -> None:
        raise EngineCannot(
            engine="a program on SMs", role=self.scope.role, what="call a library", step=in_a_line(step), legal="Host()"
        )

    def sync(self, step: Sync) -> None:
        self.out.line(_ORDERS[step.order])


def _by_function(step: Step) -> bool:
    """Whether a function does the step: one that is given addresses, or what it makes."""
    return isinstance(step, Compute) or (isinstance(step, Load) and bool(step.origin))


def _multiplies(body: tuple[Step, ...]) -> bool:
    return any(isinstance(step, Compute) and step.op in ("dot", *FOLDS) for step in steps_in(body))
