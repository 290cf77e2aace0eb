"""Loads of programs on SMs, in Triton: from one region, or from one of two, chosen in front of a loop or of the load."""

from __future__ import annotations

from math import prod

from lowering.source import Chain, Source
from lowering.steps.choices import Choice, choice_of, choices
from lowering.steps.descriptors import Described
from lowering.steps.dtypes import BYTES, DESCRIPTOR_BYTES, element
from lowering.steps.frame import Frame
from lowering.steps.indices import Scope
from lowering.steps.packets import has_lines
from lowering.steps.ranks import store_at_ranks_of_rows, through_all
from lowering.steps.regions import Place, Regions, Side, end_of
from lowering.steps.signalling import Signalling
from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Number, names_in, rank
from tilelink.schedule.memory import Access, Buffer, Region
from tilelink.schedule.merging import Merge, merge_of
from tilelink.schedule.steps import Compute, For, If, Load, Step, Store

# variables in front of the loop, those where the condition holds, and the load: lines in front of it, and itself
Chosen = tuple[list[tuple[str, str]], list[tuple[str, str]], tuple[tuple[str, ...], str, list[str | Chain]]]


class Loading(Signalling):
    """`descriptors`: of which buffer and block each of them is."""

    def __init__(self, frame: Frame, out: Source, scope: Scope) -> None:
        super().__init__(frame, out, scope)
        self.regions = Regions(self.spell, self.needs, self.words.in_packet)
        self.dtypes: dict[str, str] = {}  # of values that were loaded
        # the loads that branches in the loop at hand have become
        self.chosen: dict[If, tuple[tuple[str, ...], str, list[str | Chain]]] = {}
        self.descriptors: dict[str, Described] = {}
        # sizes and ends of tiles of those descriptors that come first of a buffer
        self.blocks: dict[str, tuple[tuple[int, ...], tuple[int | None, ...]]] = {}
        self.origins = dict(self.schedule.origins)  # of values that the phase at hand has not made yet
        self.added: dict[str, Compute] = {}  # of rows in the loop at hand, what adds them, and reads no others

    def origin(self, value: str) -> None:
        """The user's line that makes a value, in front of the first step that does."""
        if value in self.origins:
            self.out.comment(self.origins.pop(value))

    def load(self, step: Load) -> None:
        buffer = self.buffers[step.region.buffer]
        self.dtypes[step.result] = element(buffer)
        if step.origin:
            first = Chain((self.regions.base(step.region), *self.spell.flat(step.origin, buffer.name, 0)))
            self.out.line(f"{step.result} = {first}")
            return
        if any(one.places == buffer.name for one in self.schedule.buffers):  # one number, not a tile
            word = Chain((self.regions.base(step.region), *self.spell.flat(step.region.start, buffer.name, 0)))
            self.out.call(f"{step.result} = tl.load(", [word])
            self.regions.places[buffer.name] = step.result, step.region.start[0]
            return
        if step.region.access is Access.DESCRIPTOR:
            name, row, col = self.described(step.result, step.region, step)
            self.out.line(f"{step.result} = {name}.load([{self.spell(row)}, {self.spell(col)}])")
            return
        if step.region.access is Access.PARTS:
            self.not_printed("a descriptor of parts", step, "a cooperative phase, or Access.POINTER")
        place = self._place(step.result, step.region, step)
        if buffer.protocol is not Protocol.SIMPLE:
            self.out.call(
                f"{step.result} = take_{kind_of(buffer)}(", [place.pointers, *self._packets(buffer), *place.masks]
            )
            return
        mask = self._of_added(step, place.mask)
        masked: list[str | Chain] = [mask, f"other={step.fill}"] if mask.parts else []
        self.out.call(f"{step.result} = tl.load(", [place.pointers, *masked])

    def _of_added(self, step: Load, mask: Chain) -> Chain:
        """Of rows of this rank's experts that are added, others are not worth their bytes."""
        if step.result not in self.added:
            return mask
        *_, expert, many, first = self.added[step.result].operands
        rows = f"is_one_of({expert}, {self.spell(many)}, {self.spell(first)})"  # type: ignore[arg-type]
        others = [f"({one})" for one in mask.parts] if len(mask.parts) == 1 else list(mask.parts)
        return Chain((*others, rows), "&", "mask=")

    def _place(self, value: str, region: Region, step: Step) -> Place:
        packed = self.words.in_packet.get(region.buffer, 1) > 1
        place = self.regions.place(f"{value}_packets" if packed else value, region)
        if isinstance(step, Load) and step.fill and self.buffers[region.buffer].protocol is not Protocol.SIMPLE:
            self.not_printed("a number in the place of packets that do not exist", step, "fill=0.0")
        for line in place.lines:
            self.out.line(line)
        return place

    def _packets(self, buffer: Buffer) -> list[str | Chain]:
        """What kind of packets lie in a buffer."""
        self.needs["call"] = ""
        packed: list[str | Chain] = ["call", f"tl.{element(buffer)}", str(self.words.in_packet[buffer.name])]
        if has_lines(buffer):  # the arguments are those of functions of lines
            return packed
        return [*packed, f"NUMBERED={buffer.protocol.numbered}"]

    def described(self, value: str, region: Region, step: Step) -> tuple[str, Number, Number]:
        """The descriptor of a region on the own rank, and where the tile begins in the matrix of all rows."""
        sides = self.regions.sides(value, region)
        shape = self.schedule.shapes[region.buffer]
        lead = region.start[: -len(sides)]
        rows = region.start[-2] if len(sides) == 2 else 0
        inside = not lead or self.scope.range(rows + region.extent[-2]).high <= shape[-2]
        ends = tuple(end_of(side) for side in sides)
        known = not any(side.ragged and end is None for side, end in zip(sides, ends, strict=True))
        if region.at != rank or len(sides) != 2 or not known or not inside or (lead and ends[0] is not None):
            self.not_printed("a descriptor of a peer or of a ragged tile", step, "Access.POINTER")
        if shape[-1] * BYTES[element(self.buffers[region.buffer])] % DESCRIPTOR_BYTES:
            what = f"a descriptor of rows that are no multiple of {DESCRIPTOR_BYTES} bytes"
            self.not_printed(what, step, "Access.POINTER")
        return self._descriptor(region.buffer, sides, ends), self.row(region), region.start[-1]

    def row(self, region: Region) -> Number:
        """Where a tile begins in the matrix of all rows of its buffer."""
        *lead, row, _ = region.start
        for dim, start in enumerate(lead):
            row = start * prod(self.schedule.shapes[region.buffer][dim + 1 : -1]) + row
        return row

    def _descriptor(self, buffer: str, sides: tuple[Side, ...], ends: tuple[int | None, ...]) -> str:
        """The parameter for tiles of such sides and ends; another one if tiles of others go through a descriptor, too."""
        block = tuple(side.name for side in sides)
        name, made = f"{buffer}_desc", Described(buffer, block, self.layout(buffer, sides[-1].most), ends=ends)
        sizes = tuple(int(side.most) for side in sides), ends
        if self.blocks.setdefault(name, sizes) != sizes:
            name = f"{name}_{'x'.join(map(str, sizes[0]))}"
            name += "".join(f"_to_{end}" for end in ends if end is not None)
        self.descriptors.setdefault(name, made)
        self.needs[name] = ""
        return name

    def layout(self, buffer: str, cols: int) -> str:
        """How tiles of a descriptor lie in shared memory, where the language leaves it to the printer."""
        return ""

    # numbers at all ranks

    def before_raising(self, step: For) -> None:
        """A number that all ranks get is stored by one operation."""
        match step.body:
            case (Store(value, region),) if self._at_all_ranks(step, region) and self.dtypes.get(value) == "int64":
                buffer = self.buffers[region.buffer]
                self.needs[f"{buffer.name}_peers"] = ""
                place = Chain(tuple(self.spell.flat(region.start, buffer.name, 0)) or ("0",))
                sizes = f"NUM_RANKS={self.spell.ranks()}"
                self.out.call("store_at_ranks(", [f"{buffer.name}_peers", place, value, sizes])
            case _:
                super().before_raising(step)

    def _at_all_ranks(self, step: For, region: Region) -> bool:
        """Whether rounds of a loop go to one element of each rank, at the same place."""
        bound = {step.variable, *(name for name, _ in step.let)}
        buffer = self.buffers[region.buffer]
        plain = buffer.places is None and buffer.protocol is Protocol.SIMPLE and element(buffer) == "int64"
        one = all(extent == 1 for extent in region.extent) and not any(names_in(at) & bound for at in region.start)
        return plain and one and through_all(step, region.at, self.schedule.num_ranks)

    # choices in front of loops

    def loop(self, step: For) -> None:
        """Addresses at peers are looked up in front of a loop that stays at one."""
        if step.multicast:
            self._by_multicast(step)
            return
        if step.variable == "tile" or self.as_one(step):
            super().loop(step)
            return
        if self.vectors and (store := store_at_ranks_of_rows(step, self.schedule)) is not None:
            self._store_rows(store)
            return
        if (merge := merge_of(step, self.buffers)) is not None:
            self._merge(merge)
            return
        before = dict(self.regions.remote)
        self._look_up(step)
        added, outside = (one for one in step.body if _adds_own_rows(one)), self.added
        self.added = {str(one.operands[1]): one for one in added if isinstance(one, Compute)}
        with self.scope.inside(step.variable, step.count, let=step.let):  # the loads are those of the loop
            for choice in choices(step):
                self._choose(choice)
        super().loop(step)
        self.regions.remote, self.added = before, outside

    def _by_multicast(self, step: For) -> None:
        """One store for all rounds, at the multicast address of the buffer."""
        (store,) = step.body
        assert isinstance(store, Store) and not self.buffers[store.region.buffer].places, "as the proof asks for"
        buffer = self.buffers[store.region.buffer]
        self.regions.everywhere = self.regions.on_every_rank(buffer)
        place = self._place(store.value, store.region, store)
        self.regions.everywhere = ""
        self.out.call("multicast_packets(", [place.pointers, store.value, *self._packets(buffer), *place.masks])

    def _merge(self, merge: Merge) -> None:
        """All states at once."""
        means, logs = self.buffers[merge.means.buffer], self.buffers[merge.logs.buffer]
        rows, cols = self.regions.shape(f"{means.name}_packets", merge.means.extent[-2:])
        firsts: list[str | Chain] = [
            Chain((self.regions.base(one), *self.spell.flat(one.start, one.buffer, 0)))
            for one in (merge.means, merge.logs)
        ]
        strides = [self.spell.step(one.name, dim) for one in (means, logs) for dim in (merge.dim, len(one.shape) - 2)]
        states = self.spell.number(f"{means.name}_states", merge.count, f"states of {means.name}, of all ranks")
        most = states if merge.most == merge.count else merge.most
        sizes = [f"STATES={states}", f"MOST={most}", f"ROWS={rows[1]}", f"COLS={cols[1]}"]
        self.out.call(
            f"{', '.join(merge.results)} = merged_packets(", [*firsts, *strides, *self._packets(means), *sizes]
        )

    def _store_rows(self, step: Store) -> None:
        """Of a tile, each row at its rank."""
        place = self.regions.at_ranks(step.value, step.region)
        for line in place.lines:
            self.out.line(line)
        self.out.call("tl.store(", [place.pointers, self.rounded(step), *place.masks])

    def rounded(self, step: Store) -> str:
        """What is stored, in the dtype of the buffer."""
        dtype = element(self.buffers[step.region.buffer])
        return step.value if dtype == self.dtypes.get(step.value, "float32") else f"{step.value}.to(tl.{dtype})"

    def _look_up(self, step: For) -> None:
        bound = {step.variable, *(name for name, _ in step.let)}
        for load in step.body:
            if not isinstance(load, Load) or load.region.at == rank or names_in(load.region.at) & bound:
                continue
            buffer, known = self.buffers[load.region.buffer], self.regions.remote
            if buffer.places is None and (buffer.name, load.region.at) not in known:
                name = f"{buffer.name}_remote"
                text = self.regions.base(load.region)
                self.out.line(f"{name} = {text}")
                self.regions.remote = {key: named for key, named in known.items() if named[0] != name}
                self.regions.remote[buffer.name, load.region.at] = name, text

    def branch(self, step: If) -> None:
        if step in self.chosen:
            lines, head, arguments = self.chosen.pop(step)
            for line in lines:
                self.out.line(line)
            self.out.call(head, arguments)
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
        self.out.call(f"{step.result} = own_or_{kind_of(buffer)}(", [own, condition, *packets])

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
        self.decide(choice, before, instead)
        self.chosen[choice.branch] = load

    def decide(self, choice: Choice, before: list[tuple[str, str]], instead: list[tuple[str, str]]) -> None:
        """Prints variables, and what they are where the condition holds."""
        for name, value in before:
            self.out.line(f"{name} = {value}")
        with self.out.block(f"if {self.spell(choice.branch.left)} == {self.spell(choice.branch.right)}:"):
            for name, value in instead:
                self.out.line(f"{name} = {value}")

    def _descriptors_of(self, choice: Choice) -> Chosen | None:
        value = choice.first.result
        found = self.chosen_descriptor(choice)
        if found is None:
            return None
        before, instead, (source, row, col) = found
        return before, instead, ((), f"{value} = {source}.load(", [f"[{row}, {self.spell(col)}]"])

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
        cut_alike = shapes[one.buffer][-2:] == shapes[other.buffer][-2:] and not (here.leads or there.leads)
        if not cut_alike and (here.lines or there.lines or here.mask != there.mask):
            return None
        sides = len(self.regions.sides(value, one))
        tile = min(sides, len(here.pointers.parts) - 1)
        source = f"{value}_from"
        before, instead = ([(source, str(Chain(place.pointers.parts[:-tile])))] for place in (there, here))
        masked: list[str | Chain] = [here.mask, f"other={choice.first.fill}"] if here.mask.parts else []
        pointers = Chain((source, *here.pointers.parts[-tile:]))
        return before, instead, (here.lines, f"{value} = tl.load(", [pointers, *masked])


def kind_of(buffer: Buffer) -> str:
    """Of functions that take what comes, or put it."""
    return "lines" if has_lines(buffer) else "packets"


def _adds_own_rows(step: Step) -> bool:
    """Whether the step adds a row of those experts only that this rank has."""
    return isinstance(step, Compute) and step.op == "combined" and step.operands[-1] != 0
