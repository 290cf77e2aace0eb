"""Steps of what travels in packets: collectives, and sums of tiles over all ranks.

Sums are added in the order of the ranks on every rank, so that they are equal bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from tilelink.elaborate.positions import TILE
from tilelink.elaborate.regions import Tiles, part
from tilelink.ir import steps as ir
from tilelink.ir.calls import PacketCollective
from tilelink.ir.counting import block_of_packets, packets_held
from tilelink.ir.enums import WARP
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES
from tilelink.ir.steps import Operand, SumPackets
from tilelink.schedule.index import Index, Number, call, least, rank
from tilelink.schedule.known import Known
from tilelink.schedule.memory import Region
from tilelink.schedule.roles import Phase
from tilelink.schedule.steps import Compute, For, If, Let, Load, Step, Store

STEP, PEER = Index("step"), Index("peer")
_NAMES = ("plane", "row", "col")  # of the first element of a block


# ---- collectives -------------------------------------------------------------------------------------------------------


def packet_collective(schedule: Schedule, launch: PacketCollective) -> tuple[Phase, ...]:
    """Programs take blocks of a part in turn: they store all of theirs at the peers, before they wait for the same blocks of
    the peers. By multicast they store at all ranks what all ranks get, and take their own packets like those of peers."""
    blocks, ranks, packets = Blocks(schedule, launch), schedule.num_ranks, f"{launch.out}_packets"
    scattered = launch.function == "reduce_scatter" or launch.shots > 1
    to, mine = (PEER, rank) if scattered else (None, None)
    load = Load("own", blocks.of(launch.operand, to))
    sent = Store("own", blocks.packets(packets, rank, to, PEER))
    theirs = Load("part", blocks.packets(packets, PEER, mine))
    if launch.function == "all_gather":
        own_part = () if launch.multicast else (Store("own", blocks.of(launch.out, rank)),)
        taken = _of_all(launch, ranks, theirs, Store("part", blocks.of(launch.out, PEER)))
        sending = blocks.phase("blocks to the peers", load, _to_all(launch, ranks, sent), *own_part)
        return sending, blocks.phase("blocks of the peers", taken)
    first: tuple[Step, ...] = (_to_peers(ranks, load, sent),) if scattered else (load, _to_all(launch, ranks, sent))
    in_dtype = f"in_{schedule.buffer(launch.out).dtype}"
    own = Compute(("part",), in_dtype, ("summand",))
    # it is on its way while packets are awaited
    summand: tuple[Step, ...] = (Load("summand", blocks.of(launch.operand, mine)),)
    part: Step = If(PEER, rank, (own,), (theirs,))
    if launch.multicast and not scattered:
        summand, part = (), theirs
    total = (
        *summand,
        Compute(("sum",), "zeros", shape=blocks.tile),
        For("peer", ranks, (part, Compute(("sum",), "add", ("sum", "part"))), unrolled=True),
    )
    stored = Store("sum", blocks.of(launch.out, rank if launch.shots > 1 else None))
    if launch.shots == 1:
        return blocks.phase("summands to the peers", *first), blocks.phase("sums", *total, stored)
    sums, own_sum = f"{launch.out}_sums", () if launch.multicast else (stored,)
    tell = _to_all(launch, ranks, Store("sum", blocks.packets(sums, rank, rank, PEER)))
    taken_sum = Load("part", blocks.packets(sums, PEER, PEER))
    take = _of_all(launch, ranks, taken_sum, Store("part", blocks.of(launch.out, PEER)))
    return (
        blocks.phase("summands to the peers", *first),
        blocks.phase("sums of the own part, to the peers", *total, *own_sum, tell),
        blocks.phase("sums of the peers", take),
    )


def _to_all(launch: PacketCollective, ranks: int, packets: Store) -> For:
    """What all ranks get: to each peer, or to all ranks at once."""
    if not launch.multicast:
        return _to_peers(ranks, packets)
    return For("step", ranks, (packets,), (("peer", (rank + STEP) % ranks),), unrolled=True, multicast=True)


def _of_all(launch: PacketCollective, ranks: int, *body: Step) -> For:
    """From each rank whose packets come here, the own one last."""
    peers = _to_peers(ranks, *body)
    return replace(peers, count=ranks) if launch.multicast else peers


def _to_peers(ranks: int, *body: Step) -> For:
    return For("step", ranks - 1, body, (("peer", (rank + 1 + STEP) % ranks),), unrolled=True)


@dataclass(frozen=True)
class Blocks:
    """What a rank sends, cut into boxes of as many elements as a program moves at a time. With several parts of one tensor,
    they are parts along `dim`, of `part_shape` each; the last one may be smaller."""

    schedule: Schedule
    launch: PacketCollective
    what: str = "BLOCK"  # in names

    @cached_property
    def whole(self) -> tuple[int, ...]:
        """Shape of what a rank sends, or of what it sends in parts."""
        launch = self.launch
        return self.schedule.buffer(launch.operand if launch.function != "reduce_scatter" else launch.out).shape

    @property
    def parts(self) -> int:
        return self.schedule.num_ranks if self.launch.shots > 1 else 1

    @cached_property
    def in_packet(self) -> int:
        """Elements that a packet has room for."""
        return self.launch.protocol.data_bytes // self._element_bytes

    @cached_property
    def _element_bytes(self) -> int:
        return DTYPE_BYTES[self.schedule.buffer(self.launch.out).dtype]

    @cached_property
    def dim(self) -> int:
        """The dimension along which parts lie: one that they divide, or else the longest."""
        last = len(self.whole) - 1
        for dim, size in enumerate(self.whole):
            if size % (self.parts * (self.in_packet if dim == last else 1)) == 0:
                return dim
        return self.whole.index(max(self.whole))

    @cached_property
    def part_shape(self) -> tuple[int, ...]:
        return tuple(part for part, _ in self._cut)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Elements of a block along each dimension."""
        return tuple(block for _, block in self._cut)

    @cached_property
    def _cut(self) -> tuple[tuple[int, int], ...]:
        """(extent of a part, extent of a block) along each dimension; with names where other blocks would do as well."""
        shape, last = self.shape, len(self.whole) - 1
        blocks = block_of_packets(shape, self.launch.block, self.launch.protocol, self._element_bytes)
        found = list[tuple[int, int]]()
        for dim, (name, extent, size) in enumerate(zip(_NAMES[-len(shape) :], shape, blocks, strict=True)):
            named = 1 < size < extent and dim >= last - 1
            names = [Index(f"{self.launch.out}_{what}_{name}S".upper()) for what in ("PART", self.what)]
            found.append((Known(extent, names[0]), Known(size, names[1])) if named else (extent, size))
        return tuple(found)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a part, as it follows from that of the whole."""
        shape = list(self.whole)
        if self.parts > 1:
            even = shape[self.dim] % self.parts == 0
            size = shape[self.dim] // self.parts if even else -(-shape[self.dim] // self.parts)
            last = self.dim == len(shape) - 1 and size % self.in_packet != 0
            shape[self.dim] = -(-size // self.in_packet) * self.in_packet if last else size
        return tuple(shape)

    @property
    def warps(self) -> int:
        """Of a kernel of its own: a thread has a packet, for each that holds one sends it; several have a line."""
        packets = packets_held(self.tile, self.launch.protocol, self._element_bytes)
        return max(1, min(self.launch.block, packets) * self.launch.protocol.threads // WARP)

    @property
    def tile(self) -> tuple[int, ...]:
        """Shape of a block in registers."""
        return self.sizes[-2:]

    @cached_property
    def starts(self) -> tuple[Number, ...]:
        """First element of a block in its part, in names of `let`; 0 where a block has all there is."""
        names = _NAMES[-len(self.whole) :]
        given = zip(names, self.part_shape, self.sizes, strict=True)
        return tuple(Index(name) if size < extent else 0 for name, extent, size in given)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        return tuple(
            extent // size if extent % size == 0 else -(-extent // size)
            for extent, size in zip(self.part_shape, self.sizes, strict=True)
        )

    @property
    def let(self) -> Let:
        found = list[tuple[str, Number]]()
        for dim, start in enumerate(self.starts):
            if isinstance(start, Index):
                place = TILE // prod(self.counts[dim + 1 :])
                outermost = all(count == 1 for count in self.counts[:dim])
                found.append((start.op, (place if outermost else place % self.counts[dim]) * self.sizes[dim]))
        return tuple(found)

    def phase(self, title: str, *body: Step) -> Phase:
        return Phase(prod(self.counts), body, self.let, title=title)

    def extents(self, number: Number | None) -> tuple[Number, ...]:
        """Of the block in part `number`: less at the end of the part, or of the tensor."""
        found = list[Number]()
        for dim, (size, start, extent) in enumerate(zip(self.sizes, self.starts, self.part_shape, strict=True)):
            exist: Number = size if extent % size == 0 else least(size, extent - start)
            if self.parts > 1 and number is not None and dim == self.dim and extent * self.parts > self.whole[dim]:
                exist = least(exist, self.whole[dim] - number * extent - start)
            found.append(exist)
        return tuple(found)

    def of(self, buffer: str, number: Number | None) -> Region:
        """The block in part `number` of a buffer."""
        starts, extents = list(self.starts), list(self.extents(number))
        if self.parts > 1 and number is not None:
            starts[self.dim] = number * self.part_shape[self.dim] + starts[self.dim]
        return part(self.schedule, buffer, None if self.parts > 1 else number, starts, extents)

    def packets(self, buffer: str, sender: Number, number: Number | None, at: Number = rank) -> Region:
        """The block from `sender` at rank `at`, in the set that this call has."""
        return Region(buffer, (call % 2, sender, *self.starts), (1, 1, *self.extents(number)), at)


# ---- sums of tiles -----------------------------------------------------------------------------------------------------


def sum_packets(tiles: Tiles, step: SumPackets) -> tuple[Step, ...]:
    """Packets to the rank whose share it is, or to every peer; then the sum of what has come, and of the own tile, rounded as
    packets are. In two shots each rank adds a share of the rows of a tile, and sends the sums of it to every rank."""
    ranks, packets = tiles.schedule.num_ranks, f"{step.result}_packets"
    to_all = (("peer", (rank + STEP) % ranks),)
    tile = f"{packets}_tile"
    if step.shots == 1:
        shares = ranks if step.cut else 1
        operand = Operand(packets, step.index, ir.Access.POINTER, own_slots=shares, cut=step.cut)
        sent = Store(step.value, _packets_region(tiles, operand, rank, PEER))
        taken = Load(tile, _packets_region(tiles, operand, PEER, rank))
        zeros = Compute((step.result,), "zeros", shape=tuple(tiles.width(name) for name in step.index))
        own = Compute((tile,), f"in_{tiles.schedule.buffer(step.result).dtype}", (step.value,))
        adding = Compute((step.result,), "add", (step.result, tile))
        summed = For("peer", ranks, (If(PEER, rank, (own,), (taken,)), adding), unrolled=True)
        return _to_peers(ranks, sent), zeros, summed
    share, total, sums = tile_share(tiles, step), f"{step.result}_share", f"{step.result}_sums"
    starts, extents = _box(tiles, Operand(packets, step.index, ir.Access.POINTER), rank)
    place, width = starts[0] // tiles.width(step.index[0]), least(share, extents[0] - rank * share)
    rest, cols = tuple(starts[1:]), tuple(extents[1:])
    lead = (call % 2, rank, place)
    sent = Store(step.value, Region(packets, (*lead, PEER * -share, *rest), (1, 1, 1, *extents), PEER))
    taken = Load(tile, Region(packets, (call % 2, PEER, place, 0, *rest), (1, 1, 1, width, *cols)))
    told = Store(total, Region(sums, (call % 2, starts[0] + rank * share, *rest), (1, width, *cols), PEER))
    back = Load(step.result, Region(sums, (call % 2, *starts), (1, *extents)))
    shape = (share, *(tiles.width(name) for name in step.index[1:]))
    return (
        For("step", ranks, (sent,), to_all, unrolled=True),
        Compute((total,), "zeros", shape=shape),
        For("peer", ranks, (taken, Compute((total,), "add", (total, tile))), unrolled=True),
        For("step", ranks, (told,), to_all, unrolled=True),
        back,
    )


def tile_share(tiles: Tiles, step: SumPackets) -> int:
    """Rows of a tile that a rank adds, at most; of a tile of one dimension as many elements, in whole packets."""
    share = -(-tiles.width(step.index[0]) // tiles.schedule.num_ranks)
    if len(step.index) > 1:
        return share
    in_packet = step.protocol.data_bytes // DTYPE_BYTES[tiles.schedule.buffer(step.result).dtype]
    return -(-share // in_packet) * in_packet


def packets_of_tiles(tiles: Tiles, step: SumPackets) -> tuple[tuple[int, ...], ...]:
    """Shapes of the buffers of packets, of each shot."""
    ranks, shape = tiles.schedule.num_ranks, tiles.schedule.buffer(step.result).shape
    if step.shots == 1:
        return ((2, ranks, *shape),)
    places = -(-shape[0] // tiles.width(step.index[0]))
    return (2, ranks, places, tile_share(tiles, step), *shape[1:]), (2, *shape)


def _packets_region(tiles: Tiles, operand: Operand, sender: Number, at: Number) -> Region:
    """The packets of a tile from `sender`, at rank `at`, in the set that this call has."""
    starts, extents = _box(tiles, operand, at)
    return Region(operand.buffer, (call % 2, sender, *starts), (1, 1, *extents), at)


def _box(tiles: Tiles, operand: Operand, owner: Number) -> tuple[list[Number], list[Number]]:
    """The box of `operand`; along an axis that is cut, in the share of `owner`."""
    starts: list[Number] = []
    extents: list[Number] = []
    for name in operand.index:
        axis = tiles.axis(name)
        start, extent = tiles.span(name)
        start = tiles.segment(name) * axis.extent + start
        if name == operand.cut:
            start = start - owner * (axis.extent * axis.segments // operand.own_slots)
        starts.append(start)
        extents.append(extent)
    return starts, extents
