"""The nodes of a planned schedule: buffers, exchanges, roles and launches. tilelink.ir.schedule puts them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, TypeVar

from tilelink.ir.calls import LibraryCollective, LibraryOp, ListPlaces, ListRows, PacketCollective, SortRows, StateMerge
from tilelink.ir.enums import Choice
from tilelink.ir.movers import ChunkMover, Transfer
from tilelink.ir.order import ChunkOrder, Cut, Die, TileOrder
from tilelink.ir.routed import Placed, Routed, Sent
from tilelink.ir.serialize import LATER
from tilelink.ir.steps import Step


class NoSuchName(LookupError):
    """A node speaks of something that its schedule does not have: a mistake of whoever made the schedule."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


def named(found: Iterable[N], name: str, what: str) -> N:
    """The one of that name. Raises NoSuchName."""
    for one in found:
        if one.name == name:
            return one
    raise NoSuchName(f"there is no {what} {name or 'without a name'}")


class Kind(Choice):
    """Which part of the source a rank sends to which peer."""

    GATHER = "gather"  # the same part to every peer
    SCATTER = "scatter"  # part p to peer p
    REDUCE = "reduce"  # the sum of all sources to every peer (library only)
    SHIFT = "shift"  # the one part to the rank at one distance
    RETURN = "return"  # each row by assignment, from the rank of its expert to that of its token


@dataclass(frozen=True, slots=True)
class Exchange:
    """One relation between chunks of ranks: `target[rank]` on each peer becomes the sender's part of `source`.
    Parts are `rows x cols`; a chunk is `chunk_rows` consecutive rows of a part (the last may be shorter), or `chunk_cols`
    consecutive columns, as `cut` says, and is what one signal covers. `source` is one part (GATHER, SHIFT) or `num_ranks` parts
    (SCATTER); `target` is `num_ranks` parts.
    Where `source` and `target` are one buffer, the own part is made where peers put theirs.
    A SHIFT goes to the rank `by` further and is *bounded*: `target` has room for `slots` chunks only, which are its items.
    Item i lies in slot i % slots, in use i // slots of it in this call.
    """

    name: str  # the value that it delivers
    kind: Kind
    source: str  # buffer
    target: str  # buffer; its own part stays in `source` unless `own_copied`
    rows: int
    cols: int
    chunks: int  # per part
    mover: ChunkMover
    transfer: Transfer
    order: ChunkOrder  # in which the mover goes through (peer, chunk)
    own_copied: bool  # the own part is copied into `target` as well
    by: int = 0  # SHIFT
    slots: int = 0  # of a bounded exchange; 0: `target` has a place for every chunk
    met: bool = False  # no signal of its own: `target` is complete when the ranks meet at the end of the call
    counted: bool = False  # `source` is made in the call, and counted chunk by chunk
    sent: Sent | Placed | None = None  # only these rows travel, and programs move the own ones like those of peers
    cut: Cut = Cut.ROWS
    reach: int | None = None  # the part of a rank goes to so many of the ranks behind it; None: to all ranks

    @property
    def relayed(self) -> bool:
        """Whether ranks of a node add what they have for another one before it leaves."""
        return self.kind is Kind.SCATTER and self.mover.along_rails

    @property
    def programs(self) -> int:  # beside tiles
        return self.mover.programs(scattered=self.kind is Kind.SCATTER)

    @property
    def chunk_rows(self) -> int:
        return -(-self.rows // self.chunks) if self.cut is Cut.ROWS else self.rows

    @property
    def chunk_cols(self) -> int:
        return self.cols if self.cut is Cut.ROWS else -(-self.cols // self.chunks)


class Memory(Choice):
    INPUT = "input"
    OUTPUT = "output"
    LOCAL = "local"
    SYMMETRIC = "symmetric"
    POOL = "pool"  # an output in symmetric memory, which has several places for it: each call takes one that is free


@dataclass(frozen=True, slots=True)
class Buffer:
    """A row-major tensor of one rank."""

    name: str
    memory: Memory
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TileShape:
    """Extents of a tile along the written axes and of a reduction step, and how Triton should run it.

    `per_sm` programs share an SM: one computes while another one loads its first operands or stores.
    `warpgroups` consumer warpgroups of `warps` warps each alternate: one multiplies while the other runs its epilogue.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    per_sm: int = 1
    warpgroups: int = 1


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a tile loop: `segments` pieces of `extent` elements; no tile crosses from one piece to the next.

    `tile` is 0 for an axis that is not tiled (a reduction inside a user's body, or over ranks). `routed`: its elements come in
    the order of a routing, and `tiles` are as many as any routing needs. `inwards`: the last tile of a segment that would stick
    out of it begins earlier, so that it ends with the segment: it loads and computes elements of the tile before once more, and
    stores those only that this one has not. `descending`: tiles come from the last one on, those first that see most keys.
    """

    name: str
    extent: int
    segments: int
    tile: int
    reduction: bool
    routed: Routed | None = None
    inwards: bool = False
    descending: bool = False

    @property
    def tiles(self) -> int:
        """Tiles of one segment."""
        if self.routed is not None:
            return self.routed.most_tiles(self.tile)
        return -(-self.extent // self.tile) if self.tile else 1


TURN_SLICE_BYTES = 128  # of a row of a tile, which a warpgroup carries through shared memory at once
PIECE_ROWS = 16  # of a slice that leaves for a peer at once: 2 KB; 8 and 32 are level (two H100 for four ranks)
PIECES_SPREAD = 0.7  # of a product's time, over which pieces of a tile are spread: 0.5 fills the link, 1 leaves no rest


def turn_cols(cols: int, size: int) -> int:
    """Columns of a slice of a tile of `cols` columns, of elements of `size` bytes, that a warpgroup carries at once."""
    return min(cols, TURN_SLICE_BYTES // size)


@dataclass(frozen=True, slots=True)
class ComputeRole:
    """`programs` program instances share the tiles of `axes` in `order`; each tile runs `body`.

    With `prefetch` a program loads the first operands of its next tile while it still computes the one at hand: what
    that next tile waits for before its loads is waited for before the tile at hand is stored.

    The last `halved` tiles of the order are computed in *halves*, two tiles of half the extent along the minor axis:
    fewer tiles than programs are left for the last round, and more programs share them so.

    Or the reduction of each of the last `split` tiles is shared by `splits` programs. Each of these stores what it has summed;
    some then add a slice of the columns each, in order, and do all that comes behind the matmul.

    With `counts_late` a tile is counted (`Notify`) when the next tile of its program is computed, the last one of a program
    at the end of the loop: its stores have been performed by then, and nothing waits for them. Tiles of the own segment
    have a loop of their own, and count at once.

    `first`: so many tiles the kernels before have, with whose programs it goes on: tile t of the order is of program
    (first + t) % programs, so that those begin with it who have had fewer tiles.

    With two `warpgroups` these compute the tiles of a program in turns, from operands that a third one loads (ping-pong): one
    multiplies while the other one does all that comes behind the matmul of its tile. What comes before the matmul is done by
    the one that loads. Products of a program come one after the other, in the order of its tiles; what comes behind the
    product of a tile ends before the product of the next but one begins.

    `cooperative`: two warpgroups have half of the rows of each tile, from operands that a third one waits for and loads.

    `own_first`, of an axis that a routing orders: tiles that have rows of own tokens only, which lie in the source of the
    exchange, come before all waits, and all others behind them.
    """

    name: str
    programs: int
    axes: tuple[Axis, ...]
    order: TileOrder
    prefetch: bool
    body: tuple[Step, ...]
    halved: int = 0
    split: int = 0
    splits: int = 0
    counts_late: bool = False
    warpgroups: int = 1
    first: int = 0
    own_first: bool = False
    cooperative: bool = False

    def axis(self, name: str) -> Axis:
        """Raises NoSuchName."""
        return named(self.axes, name, "axis")

    @property
    def num_tiles(self) -> int:
        count = 1
        for axis in self.axes:
            if not axis.reduction:
                count *= axis.segments * axis.tiles
        return count

    @property
    def whole(self) -> int:
        """Tiles that are computed in one piece: the first ones of the order."""
        return self.num_tiles - self.halved - self.split

    def in_halves(self) -> ComputeRole:
        """The role with tiles as wide as halves are; its order is still that of the whole tiles."""
        axes = (replace(axis, tile=axis.tile // 2) if axis.name == self.order.minor else axis for axis in self.axes)
        return replace(self, axes=tuple(axes))


@dataclass(frozen=True, slots=True)
class CommRole:
    """`programs` program instances move the chunks of `exchange`, each a slice of every chunk.

    Of a bounded exchange each moves whole items, in turn, as slots become free. With `rows` they are no programs of their own
    but a warp in each program that computes, and move so many rows of a chunk in turn.
    """

    exchange: str
    programs: int
    rows: int = 0
    pace: int = 0  # clocks from one piece of these rows to the next

    @property
    def inside(self) -> bool:
        return self.rows > 0


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: communication programs first (lowest program ids), then compute programs; all must fit at once,
    `per_sm` on each SM.

    `joined`: no launch of its own; each program of the kernel before goes on with it when it is done there. So nothing
    that other programs of that kernel have written is there, unless it is waited for.
    """

    name: str
    comm: tuple[CommRole, ...]
    compute: ComputeRole | None
    warps: int
    stages: int
    per_sm: int
    dies: Die
    joined: bool = False

    @property
    def programs(self) -> int:
        return sum(role.programs for role in self.beside) + (self.compute.programs if self.compute else 0)

    @property
    def beside(self) -> tuple[CommRole, ...]:
        """Those that communicate in programs of their own."""
        return tuple(role for role in self.comm if not role.inside)

    @property
    def sms(self) -> int:
        """SMs that its programs take."""
        return -(-self.programs // self.per_sm)


@dataclass(frozen=True, slots=True)
class CopyProgram:
    """The chunks of `exchange` on copy engines, in order, on side stream `stream`, or on one for each peer.

    `after_source`: the stream first waits for all that was launched before (the source is finished by then).
    `awaits_done`: it first waits until every peer has finished the last call; else a `Begin` has, or the last call's end.
    `tells_end`: the last operation on each stream writes 1 into a word of `copied`, for a `Finish` within a kernel.
    `between`: groups of so many ranks, each rank to those of its place in other ones; 0: to all ranks.
    """

    exchange: str
    stream: str
    streams: int  # 1, or one a peer: chunks for different peers then travel at once
    after_source: bool
    awaits_done: bool
    tells_end: bool = False
    between: int = 0


@dataclass(frozen=True, slots=True)
class Publish:
    """Pull from a buffer that no tile writes: tell every peer that the own part is there.

    `copy_from` names the buffer whose content is first copied into the symmetric source; empty if it is there already.
    `within`: no launch of its own; the first program of the kernel behind it tells them.
    """

    exchange: str
    copy_from: str
    within: bool


@dataclass(frozen=True, slots=True)
class TellPlace:
    """Tell every rank in which place of its pool the target of `exchange` lies in this call.

    It has no launch of its own: the first program of the kernel behind it does it.
    """

    exchange: str
    within: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class MoveRows:
    """Rows of `exchange` that ranks need go to them, or are fetched by them, those of the own rank as well.

    It has no launch of its own: all programs of the kernel behind it do it, each a share of the blocks of tokens.
    """

    exchange: str
    within: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class CopyOwn:
    """Copy the own part of `exchange` from its source into its target; or `copy_from`, into the source, from which it is put."""

    exchange: str
    copy_from: str = ""


@dataclass(frozen=True, slots=True)
class Begin:
    """Next epoch; local signals to 0; wait until every peer has finished its last call."""


@dataclass(frozen=True, slots=True)
class AwaitPeers:
    """Wait until every peer has finished its last call, where `finish` turns and the ranks do not meet there.

    `within`: no launch of its own; each program of the kernel behind it waits.
    """

    within: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """All side streams join; tell every peer that this call is finished here.

    `by_copy`: the copy engine writes the epoch to the peers, because the link carries no atomics.
    `turns`: it also goes to the next epoch and sets local signals to 0, so that the next call needs no `Begin`; `done`
    is then a count of peers, for which streams can wait.
    `within`: no launch of its own; the program of the kernel before it that ends last does it, once all of `copied` is 1.
    `meets`: it also waits until every peer has finished this call, so that nothing in the next one has to.
    """

    by_copy: bool
    turns: bool
    within: bool
    meets: bool = False


_Between = Begin | AwaitPeers | Publish | TellPlace | MoveRows | Finish  # ranks
# programs of the kernel behind them may carry these out, before all else: `within`
BeforeKernel = AwaitPeers | Publish | TellPlace | MoveRows | PacketCollective
_Calls = LibraryOp | LibraryCollective | PacketCollective | StateMerge
Launch = _Between | Kernel | CopyProgram | CopyOwn | _Calls | SortRows | ListRows | ListPlaces


@dataclass(frozen=True, slots=True)
class Machine:
    """What the schedule was made for; ranks that disagree in it must not run together."""

    topology: str
    num_ranks: int
    arch: str
    num_sms: int
    tensor_descriptors: bool
    stream_waits: bool  # a stream can wait for a word of memory
    peer_atomics: bool  # every link between ranks carries atomics
    multicast: bool = field(default=False, metadata=LATER)  # one store reaches all ranks
