"""Steps of programs on SMs, in Triton."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from lowering.names import INT32_LIMIT
from lowering.steps.choices import Choice, choice_of, choices
from lowering.steps.descriptors import Described
from lowering.steps.dtypes import BYTES, DESCRIPTOR_BYTES, NAMES, element
from lowering.steps.errors import EngineCannot
from lowering.steps.flat import is_flat, run
from lowering.steps.indices import Scope, Spelling
from lowering.steps.late import adds, defers, needed, split
from lowering.steps.ops import op_text
from lowering.steps.regions import Place, Regions, Side
from lowering.steps.signalling import Signalling
from lowering.steps.text import Chain, Text
from lowering.steps.words import Words
from tilelink.ir.ops.elementwise import FUNCTIONS
from tilelink.schedule.index import Index, Number, names_in, rank
from tilelink.schedule.memory import Access, Buffer, Protocol, Region
from tilelink.schedule.printing import in_a_line
from tilelink.schedule.roles import Phase, Prefetch, Role, Who
from tilelink.schedule.steps import Call, Compute, For, If, Load, Move, Order, Step, Store, Sync
from tilelink.schedule.walk import steps_in

BLOCK_BYTES = 32768  # per step of a copy
_ORDERS = {
    Order.BARRIER: "program_barrier()",
    Order.FENCE: "fence_descriptors()",
    Order.FLUSH: "flush_stores()",
}


# variables in front of the loop, those where the condition holds, and the load
Chosen = tuple[list[tuple[str, str]], list[tuple[str, str]], tuple[str, list[str | Chain]]]


class Programs(Signalling):
    """`descriptors`: of which buffer and block each of them is."""

    def __init__(self, out: Text, scope: Scope, spell: Spelling, words: Words) -> None:
        super().__init__(out, scope, spell, words)
        self.regions = Regions(self.spell, self.needs)
        self.buffers = self.regions.buffers
        self.dtypes: dict[str, str] = {}  # of values that were loaded
        self.chosen: dict[
            If, tuple[str, list[str | Chain]]
        ] = {}  # the load that a branch in the loop at hand has become
        self.descriptors: dict[str, Described] = {}
        self.functions: list[str] = []  # what the printed text calls

    # phases

    def phase(self, role: Role, phase: Phase) -> None:
        """A phase of each program, or of one of them."""
        self.check_pipelining(role, phase)
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
        ends = [self.spell(first), self.end(role, phase)]
        if all_of_them:
            ends = ends[first == 0 :]
        else:
            self.needs["program"] = ""
            programs = self.spell.number(f"{role.name}_programs", role.programs, f"programs of {role.name}")
            own = (Index("program") - first) % role.programs + first
            ends = ["program" if first == 0 else self.spell(own), ends[1], programs]
        header = f"for tile in {self._tiles(', '.join(ends), phase)}:"
        if not self.positions(phase):
            header = "" if all_of_them else "if program == 0:"
        with self.out.maybe(header), self.scope.inside("tile", count, first):
            self.let(phase.let)
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

    def begin(self, phase: Phase) -> None:
        """What stands in front of all steps of a position."""

    def inner(self) -> Programs:
        """A printer of other text for the same programs."""
        return Programs(Text(), self.scope, self.spell, self.words)

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
        needs = [one for one in inner.needs if one]
        out = Text()
        out.line("@triton.jit")
        what = f"What tile `tile` of {role.name} tells, if there is one: `tile_exists` is 1, or 0."
        with out.function(name, ["tile", "tile_exists", *needs], what):
            out.lines(inner.out.text())
        self.functions.append(out.text())
        self.needs |= inner.needs
        return lambda tile, exists: self.out.call(f"{name}(", [tile, exists, *needs])

    def _tiles(self, ends: str, phase: Phase) -> str:
        """The range of a loop over tiles. Around a product without a loop the compiler would fail on branches (Triton 3.6)."""
        if isinstance(phase.pipelining, Prefetch) and self.may_flatten(phase):
            return f"tl.range({ends}, flatten=True)"
        product = any(isinstance(step, Compute) and step.op == "dot" for step in steps_in(phase.body))
        held = not self._has_loop(phase.body) and (product or self.awaits(phase.body))
        return f"tl.range({ends}{', num_stages=1' * held})"

    def range(self, count: str, body: tuple[Step, ...], unrolled: bool = False) -> str:
        """A loop that waits is not pipelined: the compiler would load for later rounds before they have waited. It leaves loops
        as they are that have another one inside."""
        if unrolled:
            return f"tl.static_range({count})"
        held = self.awaits(body) and not self._has_loop(body)
        return f"tl.range({count}, num_stages=1)" if held else f"range({count})"

    def _has_loop(self, body: tuple[Step, ...]) -> bool:
        return any(isinstance(step, Move) or (isinstance(step, For) and self._stays(step)) for step in body)

    def _stays(self, step: For) -> bool:
        """Whether a loop is one for the compiler as well."""
        return not step.unrolled and self.scope.range(step.count).low > 1 and not self.as_one(step)

    def may_flatten(self, phase: Phase) -> bool:
        """Whether the compiler may run the tiles and the loop inside of each as one loop, and load ahead over its end: there is
        one inner loop, which does not wait. Of a loop with a single round, it would load in front of the wait for the tile."""
        before, _, stores = split(phase.body) if defers(phase) else (phase.body, (), ())
        loops = [step for step in (*before, *stores) if isinstance(step, For) and self._stays(step)]
        return len(loops) == 1 and not self.waits(loops[0].body)

    # leaves

    def load(self, step: Load) -> None:
        buffer = self.buffers[step.region.buffer]
        self.dtypes[step.result] = element(buffer)
        if step.origin:
            first = Chain((self.regions.base(step.region), *self.spell.flat(step.origin, buffer.name, 0)))
            self.out.line(f"{step.result} = {first}")
            return
        if any(one.places == buffer.name for one in self.schedule.buffers):  # one number, not a tile
            word = Chain((self.regions.base(step.region), *self.spell.flat(step.region.start, buffer.name, 0)))
            self.out.wrapped(f"{step.result} = tl.load(", [word])
            self.regions.places[buffer.name] = step.result, step.region.start[0]
            return
        if step.region.access is Access.DESCRIPTOR:
            name, row, col = self.described(step.result, step.region, step)
            self.out.line(f"{step.result} = {name}.load([{self.spell(row)}, {self.spell(col)}])")
            return
        place = self._place(step.result, step.region, step)
        if buffer.protocol is not Protocol.SIMPLE:
            self.out.wrapped(f"{step.result} = take_packets(", [place.pointers, *self._packets(buffer), *place.masks])
            return
        masked: list[str | Chain] = [place.mask, f"other={step.fill}"] if place.mask.parts else []
        self.out.wrapped(f"{step.result} = tl.load(", [place.pointers, *masked])

    def store(self, step: Store) -> None:
        buffer = self.buffers[step.region.buffer]
        dtype = element(buffer)
        value = step.value if dtype == self.dtypes.get(step.value, "float32") else f"{step.value}.to(tl.{dtype})"
        if step.region.access is Access.DESCRIPTOR:
            name, row, col = self.described(step.value, step.region, step)
            self.out.line(f"{name}.store([{self.spell(row)}, {self.spell(col)}], {value})")
            return
        place = self._place(step.value, step.region, step)
        if buffer.protocol is not Protocol.SIMPLE:
            packets = [place.pointers, step.value, *self._packets(buffer), *place.masks]
            self.out.wrapped("put_packets(", packets)
            return
        self.out.wrapped("tl.store(", [place.pointers, value, *place.masks])

    def _place(self, value: str, region: Region, step: Step) -> Place:
        packed = self.words.in_word.get(region.buffer, 1) > 1
        place = self.regions.place(f"{value}_words" if packed else value, region)
        if isinstance(step, Load) and step.fill and self.buffers[region.buffer].protocol is not Protocol.SIMPLE:
            self.not_printed("a number in the place of packets that do not exist", step, "fill=0.0")
        for line in place.lines:
            self.out.line(line)
        return place

    def _packets(self, buffer: Buffer) -> list[str | Chain]:
        """What kind of packets lie in a buffer."""
        self.needs["call"] = ""
        numbered = buffer.protocol is Protocol.LL
        return ["call", f"tl.{element(buffer)}", str(self.words.in_word[buffer.name]), f"NUMBERED={numbered}"]

    def described(self, value: str, region: Region, step: Step) -> tuple[str, Number, Number]:
        """The descriptor of a region on the own rank, and where the tile begins in the matrix of all rows."""
        sides = self.regions.sides(value, region)
        shape = self.schedule.shapes[region.buffer]
        lead = region.start[: -len(sides)]
        rows = region.start[-2] if len(sides) == 2 else 0
        inside = not lead or self.scope.range(rows + region.extent[-2]).high <= shape[-2]
        if region.at != rank or len(sides) != 2 or any(side.ragged for side in sides) or not inside:
            self.not_printed("a descriptor of a peer or of a ragged tile", step, "Access.POINTER")
        if shape[-1] * BYTES[element(self.buffers[region.buffer])] % DESCRIPTOR_BYTES:
            what = f"a descriptor of rows that are no multiple of {DESCRIPTOR_BYTES} bytes"
            self.not_printed(what, step, "Access.POINTER")
        return self._descriptor(region.buffer, sides), self.row(region), region.start[-1]

    def row(self, region: Region) -> Number:
        """Where a tile begins in the matrix of all rows of its buffer."""
        *lead, row, _ = region.start
        for dim, start in enumerate(lead):
            row = start * prod(self.schedule.shapes[region.buffer][dim + 1 : -1]) + row
        return row

    def _descriptor(self, buffer: str, sides: tuple[Side, ...]) -> str:
        """The parameter for tiles of such sides; another one if tiles of other sizes go through a descriptor, too."""
        block = tuple(side.name for side in sides)
        name, made = f"{buffer}_desc", Described(buffer, block, self.layout(buffer, sides[-1].most))
        if self.descriptors.setdefault(name, made) != made:
            name = f"{name}_{'x'.join(str(side.most) for side in sides)}"
            self.descriptors[name] = made
        self.needs[name] = ""
        return name

    def layout(self, buffer: str, cols: int) -> str:
        """How tiles of a descriptor lie in shared memory, where the language leaves it to the printer."""
        return ""

    # choices in front of loops

    def loop(self, step: For) -> None:
        with self.scope.inside(step.variable, step.count):
            for _ in self.scope.bind(step.let):
                pass  # the loads are those of the loop
            for choice in choices(step):
                self._choose(choice)
        super().loop(step)

    def branch(self, step: If) -> None:
        if step in self.chosen:
            self.out.wrapped(*self.chosen.pop(step))
            return
        match step:
            case If(left, right, (Compute((value,), op, (str() as own,)),), (Load(result) as load,)):
                if op.startswith("in_") and value == result and load.region.buffer in self.packets:
                    self._own_or_packets(own, f"{self.spell(left)} == {self.spell(right)}", load)
                    return
        choice = choice_of(step, frozenset())
        if choice is not None:
            self._choose(choice)
        if step in self.chosen:
            self.branch(step)
        else:
            super().branch(step)

    def _own_or_packets(self, own: str, condition: str, step: Load) -> None:
        """Data are chosen, not tiles, which the compiler cannot do for tiles in layouts of their own."""
        buffer = self.buffers[step.region.buffer]
        self.dtypes[step.result] = element(buffer)
        place = self._place(step.result, step.region, step)
        packets = [place.pointers, *self._packets(buffer), *place.masks]
        self.out.wrapped(f"{step.result} = own_or_packets(", [own, condition, *packets])

    def _choose(self, choice: Choice) -> None:
        """Prints where a load loads from, if both are tiles of equal strides, and notes the load for the loop."""
        first, second = choice.first, choice.second
        self._refuse(first)
        self._refuse(second)
        by_descriptor = first.region.access is Access.DESCRIPTOR
        found = self._descriptors_of(choice) if by_descriptor else self._pointers_of(choice)
        if found is None:
            return
        self.dtypes[first.result] = element(self.buffers[first.region.buffer])
        before, instead, load = found
        for name, value in before:
            self.out.line(f"{name} = {value}")
        with self.out.block(f"if {self.spell(choice.branch.left)} == {self.spell(choice.branch.right)}:"):
            for name, value in instead:
                self.out.line(f"{name} = {value}")
        self.chosen[choice.branch] = load

    def _descriptors_of(self, choice: Choice) -> Chosen | None:
        value = choice.first.result
        found = self.chosen_descriptor(choice)
        if found is None:
            return None
        before, instead, (source, row, col) = found
        return before, instead, (f"{value} = {source}.load(", [f"[{row}, {self.spell(col)}]"])

    def chosen_descriptor(
        self, choice: Choice
    ) -> tuple[list[tuple[str, str]], list[tuple[str, str]], tuple[str, str, Number]] | None:
        """Variables in front of the loop, those where the condition holds; the descriptor, the row and the column of a tile.
        None if the two tiles do not lie equally far apart in all rounds."""
        value = choice.first.result
        here, row, col = self.described(value, choice.first.region, choice.first)
        there, other_row, other_col = self.described(value, choice.second.region, choice.second)
        apart = choice.apart(row, other_row)
        if apart is None or choice.apart(col, other_col) != 0:
            return None
        source, first = f"{value}_from", f"{value}_first"
        before, instead = [(source, there)], [(source, here)]
        place = self.spell(row, 1)
        if apart != 0:
            before, instead, place = (
                [*before, (first, self.spell(apart))],
                [*instead, (first, "0")],
                f"{first} + {place}",
            )
        return before, instead, (source, place, col)

    def _pointers_of(self, choice: Choice) -> Chosen | None:
        value, one, other = choice.first.result, choice.first.region, choice.second.region
        shapes = self.schedule.shapes
        same = all(choice.apart(a, b) == 0 for a, b in zip(one.start[-2:], other.start[-2:], strict=True))
        protocols = {self.buffers[region.buffer].protocol for region in (one, other)}
        if not same or shapes[one.buffer][-1] != shapes[other.buffer][-1] or protocols != {Protocol.SIMPLE}:
            return None
        if any(names_in(index) & choice.bound for region in (one, other) for index in (*region.start[:-2], region.at)):
            return None
        places = [self.regions.place(value, region) for region in (one, other)]
        here, there = places
        if here.lines or there.lines or here.mask != there.mask:
            return None
        sides = len(self.regions.sides(value, one))
        tile = min(sides, len(here.pointers.parts) - 1)
        source = f"{value}_from"
        before, instead = ([(source, str(Chain(place.pointers.parts[:-tile])))] for place in (there, here))
        masked: list[str | Chain] = [here.mask, f"other={choice.first.fill}"] if here.mask.parts else []
        pointers = Chain((source, *here.pointers.parts[-tile:]))
        return before, instead, (f"{value} = tl.load(", [pointers, *masked])

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
        count = run(self.scope, source)
        assert count is not None
        size = 1 << (int(self.scope.range(count).high) - 1).bit_length()
        block = min(size, BLOCK_BYTES // BYTES[element(self.buffers[source.buffer])])
        what = f"elements of {source.buffer} that a program loads, then stores, at a time"
        elements = self.spell(count)
        if prod(self.schedule.shapes[source.buffer]) >= INT32_LIMIT:
            elements = self.spell.wide(elements)
        ends = [Chain((self.regions.base(one), *self.spell.flat(one.start, one.buffer, 0))) for one in (target, source)]
        self.out.wrapped("copy_share(", [*ends, elements, "0", "1", self.spell.number(f"{name}_block", block, what)])

    def compute(self, step: Compute) -> None:
        if step.op == "own_place":
            (buffer,), (result,) = step.operands, step.results
            self.needs[f"{buffer}_here"] = ""
            self.out.line(f"{result} = {buffer}_here")
            self.dtypes[result] = "int64"
            return
        sides = [name for _, name in self.regions.shape(step.results[0], step.shape)] if step.shape else []
        shape = ", ".join(["1"] * (len(sides) == 1) + sides)  # a vector is a row
        exact = any(self.dtypes.get(str(one)) == "float32" for one in step.operands[:2])
        operands = [self._operand(one, step.op) for one in step.operands]
        text = op_text(self.schedule, self.scope.role, step, operands, f"({shape})", exact)
        self.out.line(f"{', '.join(step.results)} = {text}")
        kept = self.dtypes.get(str(step.operands[0])) if step.op in ("copy", "trans") else NAMES.get(step.op[3:])
        for name in step.results:
            self.dtypes[name] = kept or "float32"

    def _operand(self, one: str | float | Index, op: str) -> str:
        """Elementwise functions compute in fp32, whatever their operands were loaded as."""
        if isinstance(one, Index):
            return self.spell(one)
        loaded = self.dtypes.get(str(one), "float32")
        return f"{one}.to(tl.float32)" if op in FUNCTIONS and loaded != "float32" else str(one)

    def library(self, step: Call) -> None:
        raise EngineCannot(
            engine="a program on SMs", role=self.scope.role, what="call a library", step=in_a_line(step), legal="Host()"
        )

    def sync(self, step: Sync) -> None:
        self.out.line(_ORDERS[step.order])
