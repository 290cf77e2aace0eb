"""What the numbers of a schedule are called in emitted code: extents, tiles, strides, chunks, words of signals."""

from __future__ import annotations

from dataclasses import replace

from lowering.constants import Constants, Group
from tilelink.ir.counting import chunk_arrivals, counting_step, in_one_chunk, source_arrivals
from tilelink.ir.nodes import Axis, ComputeRole, Exchange, Kernel, Scope, Signal
from tilelink.ir.steps import Notify


class Numbers(Constants):
    """Names of the numbers of one file. A method defines the constant that it names, and those from which that follows."""

    def ranks(self) -> str:
        return self.name("NUM_RANKS", self.schedule.num_ranks, "ranks of the group", Group.SIZES)

    # ---- roles: loops over tiles

    def of_role(self, role: ComputeRole, what: str) -> str:
        """Name of a number of `role`: with its name where the file has several loops over tiles."""
        roles = {kernel.compute.name for kernel in self.schedule.kernels() if kernel.compute is not None}
        return what if len(roles) == 1 else f"{role.name}_{what}"

    def tile(self, role: ComputeRole, axis: Axis, *, half: bool = False) -> str:
        """Extent of a tile; `half`: of a half of one, which is what `axis` has then."""
        why = f"extent along {axis.name} of a tile of {role.name}"
        name = self.of_role(role, f"TILE_{axis.name}")
        if not half:
            return self.name(name, axis.tile, why, Group.CHOSEN)
        whole = self.name(name, 2 * axis.tile, why, Group.CHOSEN)
        name, why = self.of_role(role, f"HALF_{axis.name}"), f"extent along {axis.name} of half a tile"
        return self.name(name, axis.tile, why, Group.LOOPS, f"{whole} // 2")

    def size(self, role: ComputeRole, axis: Axis) -> str:
        """Extent of an axis, or of a segment of it."""
        why = f"extent along {axis.name}{' of one segment' if axis.segments > 1 else ''}"
        return self.name(self.of_role(role, f"{axis.name}_SIZE"), axis.extent, why, Group.SIZES)

    def segments(self, role: ComputeRole, axis: Axis) -> str:
        text = self.ranks() if axis.segments == self.schedule.num_ranks else ""
        why = f"segments along {axis.name}; a tile lies in one of them"
        return self.name(self.of_role(role, f"{axis.name}_SEGMENTS"), axis.segments, why, Group.SIZES, text)

    def tiles(self, role: ComputeRole, axis: Axis) -> str:
        """Tiles along an axis, of one segment."""
        size, tile = self.size(role, axis), self.tile(role, axis)
        if axis.extent % axis.tile == 0:
            self.whole(role, axis)
            text = f"{size} // {tile}"
        else:
            text = f"({size} + {tile} - 1) // {tile}"
        why = f"tiles along {axis.name}{' of one segment' if axis.segments > 1 else ''}"
        return self.name(self.of_role(role, f"{axis.name}_TILES"), axis.tiles, why, Group.LOOPS, text)

    def whole(self, role: ComputeRole, axis: Axis, *, half: bool = False) -> None:
        """Tiles along `axis` fill it: there are no masks. `half`: `axis` has halves of tiles."""
        size = self.size(role, axis)
        tile = self.tile(role, replace(axis, tile=2 * axis.tile) if half else axis)
        self.require(f"{size} % {tile} == 0", f"tiles along {axis.name} have no masks")

    def one_step(self, role: ComputeRole, axis: Axis) -> None:
        """Loops over `axis` have a single step, or several: the compiler treats them differently."""
        single = axis.tiles == 1
        why = f"the loop over {axis.name} has {'a single step' if single else 'several steps'}"
        self.require(f"{self.tiles(role, axis)} {'==' if single else '>'} 1", why)

    def all_tiles(self, role: ComputeRole, axis: Axis) -> str:
        """Expression for the tiles along an axis, of all segments."""
        tiles = self.tiles(role, axis)
        return tiles if axis.segments == 1 else f"{self.segments(role, axis)} * {tiles}"

    def num_tiles(self, role: ComputeRole) -> str:
        text = " * ".join(self.all_tiles(role, axis) for axis in role.axes if not axis.reduction)
        return self.name(self.of_role(role, "NUM_TILES"), role.num_tiles, f"tiles of {role.name}", Group.LOOPS, text)

    def group(self, role: ComputeRole) -> str:
        major, minor = role.order.major, role.order.minor
        why = f"tiles along {major} that {f'walk along {minor} together and share L2' if minor else 'form a group'}"
        return self.name(self.of_role(role, f"GROUP_{major}"), role.order.group, why, Group.CHOSEN)

    def programs(self, role: ComputeRole) -> str:
        why = f"programs that compute tiles of {role.name}; all are resident"
        return self.name(self.of_role(role, "PROGRAMS"), role.programs, why, Group.CHOSEN)

    def stages(self, role: ComputeRole, places: int) -> str:
        return self.name(self.of_role(role, "STAGES"), places, "stages of the ring buffer of operands", Group.CHOSEN)

    def grid(self, kernel: Kernel) -> str:
        """Programs of a launch."""
        value = self.schedule.grid(kernel)
        terms = [self.movers(self.schedule.exchange(role.exchange), role.programs) for role in kernel.comm]
        joined = [one.compute for one in self.schedule.joined_to(kernel) if one.compute is not None]
        if joined:
            most = max(joined, key=lambda role: role.programs)
            terms.append(self.programs(most))
        if len(terms) == 1:
            return terms[0]
        several = sum(not one.joined for one in self.schedule.kernels()) > 1
        name = f"{kernel.name.removesuffix('_kernel')}_GRID" if several else "GRID"
        return self.name(name, value, f"programs of {kernel.name}", Group.LOOPS, " + ".join(terms))

    def resident(self, kernel: Kernel) -> None:
        """All programs of a launch fit on the machine at once."""
        limit = self.schedule.machine.num_sms * kernel.per_sm
        if self.schedule.grid(kernel) <= limit:
            why = f"all programs of {kernel.name} are resident on {self.schedule.machine.num_sms} SMs"
            self.require(f"{self.grid(kernel)} <= {limit}", why)

    def dies(self, count: int) -> str:
        return self.name("DIES", count, "dies of a GPU, each with an L2 of its own", Group.SIZES)

    # ---- buffers

    def cols(self, buffer: str, cols: int) -> str:
        """Elements from one row to the next."""
        return self.name(f"{buffer}_COLS", cols, f"columns of {buffer}", Group.BUFFERS)

    def first(self, buffer: str, dim: int, dims: int, value: int) -> str:
        """Where what is read of a buffer begins along dimension `dim` of `dims`."""
        what = "column" if dim == dims - 1 else "row"
        return self.name(f"{buffer}_FIRST_{what}", value, f"first {what} of a slice of {buffer}", Group.SIZES)

    def part(self, buffer: str, shape: tuple[int, ...]) -> str:
        """Elements of a part of `shape`."""
        what = self._piece(buffer)
        name, why = f"{buffer}_{what}", f"elements of a {what} of {buffer}"
        if len(shape) != 2:
            return self.name(name, shape[0] if shape else 1, why, Group.BUFFERS)
        rows, cols = shape
        text = f"{self.part_rows(buffer, rows)} * {self.cols(buffer, cols)}"
        return self.name(name, rows * cols, why, Group.BUFFERS, text)

    def part_rows(self, buffer: str, rows: int) -> str:
        what = self._piece(buffer)
        name = f"{buffer}_SLOT_ROWS" if what == "slot" else f"{buffer}_ROWS"
        return self.name(name, rows, f"rows of a {what} of {buffer}", Group.SIZES)

    def _piece(self, buffer: str) -> str:
        """What the last two dimensions of a buffer are: a part, or a slot of a ring buffer."""
        return "slot" if any(one.slots and one.target == buffer for one in self.schedule.exchanges) else "part"

    # ---- exchanges

    def chunks(self, exchange: Exchange) -> str:
        if exchange.chunks == 1:
            return "1"
        what = "items" if exchange.slots else "chunks of a part"
        return self.name(f"{exchange.name}_CHUNKS", exchange.chunks, f"{what} of {exchange.name}", Group.CHOSEN)

    def rows(self, exchange: Exchange) -> str:
        return self.name(f"{exchange.name}_ROWS", exchange.rows, f"rows of a part of {exchange.name}", Group.SIZES)

    def chunk_rows(self, exchange: Exchange) -> str:
        rows, chunks = self.rows(exchange), self.chunks(exchange)
        if exchange.chunks == 1:
            return rows
        text = f"{rows} // {chunks}" if exchange.rows % exchange.chunks == 0 else f"({rows} + {chunks} - 1) // {chunks}"
        why = f"rows of a chunk of {exchange.name}: one signal covers them"
        if exchange.rows % exchange.chunk_rows == 0:
            found = self.name(f"{exchange.name}_CHUNK_ROWS", exchange.chunk_rows, why, Group.LOOPS, text)
            self.require(f"{rows} % {found} == 0", f"all chunks of {exchange.name} have as many rows")
            return found
        return self.name(f"{exchange.name}_CHUNK_ROWS", exchange.chunk_rows, why, Group.LOOPS, text)

    def in_one_chunk(self, role: ComputeRole, axis: Axis, exchange: Exchange, *, local: bool) -> bool:
        """Whether a tile lies in one chunk, on which code rests that waits for one signal, or counts at one."""
        found = in_one_chunk(axis, exchange, local=local)
        if found and exchange.chunks > 1:
            why = f"a tile lies in one chunk of {exchange.name}"
            self.require(f"{self.chunk_rows(exchange)} % {self.tile(role, axis)} == 0", why)
        return found

    def part_elements(self, exchange: Exchange) -> str:
        return self._elements(exchange, "PART", self.rows(exchange), exchange.rows)

    def chunk_elements(self, exchange: Exchange) -> str:
        return self._elements(exchange, "CHUNK", self.chunk_rows(exchange), exchange.chunk_rows)

    def _elements(self, exchange: Exchange, what: str, rows: str, number: int) -> str:
        what = f"{what}_ELEMENTS"
        why = f"elements of a {what.split('_')[0].lower()} of {exchange.name}"
        text = f"{rows} * {self.cols(exchange.name, exchange.cols)}"
        return self.name(f"{exchange.name}_{what}", number * exchange.cols, why, Group.BUFFERS, text)

    def block(self, exchange: Exchange, elements: int) -> str:
        why = "elements that a program loads, then stores, at a time"
        return self.name(f"{exchange.name}_BLOCK", elements, why, Group.CHOSEN)

    def movers(self, exchange: Exchange, programs: int) -> str:
        why = f"programs that move {exchange.name}"
        return self.name(f"{exchange.name}_PROGRAMS", programs, why, Group.CHOSEN)

    def slots(self, exchange: Exchange) -> str:
        why = f"slots of the ring buffer {exchange.target}"
        return self.name(f"{exchange.name}_SLOTS", exchange.slots, why, Group.SIZES)

    # ---- how many arrivals complete a chunk

    def arrivals(self, exchange: Exchange, role: ComputeRole, step: Notify, own_axes: tuple[str, ...]) -> str | None:
        """Tiles that write to a chunk; None if chunks differ in that."""
        counts = set(chunk_arrivals(role, step, exchange, own_axes))
        if len(counts) > 1:
            return None
        (value,) = counts
        rows = role.axis(step.rows)
        local = step.rows == step.slot or step.rows in own_axes
        others = self.other_tiles(role, step, own_axes)
        along = f"{self.chunk_rows(exchange)} // {self.tile(role, rows)}"
        if not in_one_chunk(rows, exchange, local=local) or exchange.chunk_rows % rows.tile:
            along = ""
        if exchange.chunks == 1:
            along = self.tiles(role, rows) if local or rows.segments == 1 else self.all_tiles(role, rows)
        text = " * ".join(filter(None, [along, others])) if along else ""
        return self._counted(exchange, value, text)

    def source_arrivals(self, exchange: Exchange) -> list[str]:
        """For each chunk what its count reaches: one number if that is the same for all."""
        counts = source_arrivals(self.schedule, exchange)
        found = counting_step(self.schedule, exchange)
        if len(set(counts)) > 1:
            return [
                self.name(f"{exchange.name}_TILES_OF_{chunk}", tiles, f"tiles that complete chunk {chunk}", Group.LOOPS)
                for chunk, tiles in enumerate(counts)
            ]
        name = self.arrivals(exchange, *found) if found is not None else None
        return [name or str(counts[0])]

    def _counted(self, exchange: Exchange, value: int, text: str) -> str:
        why = f"tiles that complete a chunk of {exchange.name}"
        if not text or self.value(text) != value:
            text = ""
        return self.name(f"{exchange.name}_CHUNK_TILES", value, why, Group.LOOPS, text)

    def other_tiles(self, role: ComputeRole, step: Notify, own_axes: tuple[str, ...]) -> str:
        """Expression for the tiles along the written axes other than the rows' that lie in one part; empty for one."""
        terms = []
        for axis in role.axes:
            if not axis.reduction and axis.name != step.rows:
                whole = axis.name == step.slot or axis.name in own_axes
                terms.append(self.tiles(role, axis) if whole else self.all_tiles(role, axis))
        return " * ".join(terms)

    # ---- words of signals

    def word(self, signal: Signal) -> str:
        """Index of the first word of a signal among those of its scope."""
        local = signal.scope is Scope.LOCAL
        before = [one for one in self._same(local=local) if one.first < signal.first]
        text = ""
        if before:
            last = max(before, key=lambda one: one.first)
            first = self.word(last)
            text = f"{first} + {self._words(last)}"
        why = f"first word of {signal.name} among the {'counts' if local else 'signals'}"
        return self.name(signal.name, signal.first, why, Group.WORDS, text)

    def num_words(self, *, local: bool) -> str:
        """Words of all counts of this rank, or of all signals."""
        name, what = ("NUM_COUNTS", "counts") if local else ("NUM_SIGNALS", "signals")
        same = self._same(local=local)
        text = ""
        if same:
            last = max(same, key=lambda one: one.first)
            first = self.word(last)
            text = f"{first} + {self._words(last)}"
        return self.name(name, sum(one.slots for one in same), f"words of {what}", Group.WORDS, text)

    def counts_block(self, block: int) -> str:
        """A power of two, not smaller than the number of counts."""
        counts = self.num_words(local=True)
        found = self.name("COUNTS_BLOCK", block, "counts that one store sets to 0; a power of two", Group.WORDS)
        self.require(f"{counts} <= {found}", "one store sets all counts to 0")
        return found

    def streams(self, signal: Signal) -> str:
        return self.name("STREAMS", signal.slots, "side streams that copy", Group.SIZES)

    def _same(self, *, local: bool) -> list[Signal]:
        return [one for one in self.schedule.signals if (one.scope is Scope.LOCAL) is local]

    def _words(self, signal: Signal) -> str:
        """Expression for the words of a signal."""
        name = signal.name.rpartition("_")[0]
        exchange = next((one for one in self.schedule.exchanges if one.name == name), None)
        ranks = self.schedule.num_ranks
        if exchange is not None and exchange.slots and signal.slots == exchange.slots:
            return self.slots(exchange)
        if exchange is not None and exchange.chunks > 1 and signal.slots == ranks * exchange.chunks:
            return f"{self.ranks()} * {self.chunks(exchange)}"
        if exchange is not None and exchange.chunks > 1 and signal.slots == exchange.chunks:
            return self.chunks(exchange)
        if signal.name == "copied":
            return self.streams(signal)
        return self.ranks() if signal.slots == ranks and ranks > 1 else str(signal.slots)
