"""Steps of a tile: what the body of a compute role does, in order. Waits and notifies are derived from graph edges."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.ir.enums import Choice, Protocol
from tilelink.ir.ops.attention import Attend
from tilelink.ir.ops.elementwise import with_constants
from tilelink.ir.routed import Follows, Routed


class Access(Choice):
    """How a tile of an operand is addressed."""

    POINTER = "pointer"  # masked loads and stores, any size
    DESCRIPTOR = "descriptor"  # tensor descriptors: 16-byte row strides, no tile across the end of a part
    PARTS = "parts"  # loads by descriptors to which each part is a matrix: zeros behind its last row
    PIECES = "pieces"  # stores to peers: descriptors of a few rows, each awaited, spread over the time of a product


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer as a tile sees it: which axis indexes each dimension, and which part it lies in.

    `slot` names the axis whose segment selects the part of an exchange target (empty: the buffer is one plain tensor);
    along that axis positions count from the start of the part. `own` is the buffer that holds the own part if `buffer`
    does not, and `own_slots` how many parts that one has (1: it is the part). `local` lists axes whose position counts
    from the start of the segment although there are no parts (the buffer only has the own segment).
    `remote`: the part is loaded from the peer it belongs to. `cut`: the axis of which the buffer has this rank's share only,
    one of `own_slots`; other elements of the tile have no place there. `item`: the axis whose tiles are the items of a bounded
    exchange; the tile lies in the slot of its item, and positions along that axis count from the start of the slot.
    `window`: where all tiles together lie along each dimension, [first, end), in a part if there are parts; positions count
    from its start. Empty: everywhere. `along`: how dimensions follow their axis by a routing, None as usual; empty: all do. Tiles
    of rows of own tokens only find these in `own`, if there is one.
    """

    buffer: str
    index: tuple[str, ...]
    access: Access
    slot: str = ""
    own: str = ""
    own_slots: int = 1
    local: tuple[str, ...] = ()
    remote: bool = False
    item: str = ""
    cut: str = ""
    window: tuple[tuple[int, int], ...] = ()
    along: tuple[Follows | None, ...] = ()

    @property
    def first(self) -> tuple[int, ...]:
        """Where position 0 along each dimension is."""
        return tuple(start for start, _ in self.window) or (0,) * len(self.index)


def tile_name(value: str, window: tuple[tuple[int, int], ...]) -> str:
    """What a loaded tile of `value`, or of a window in it, is called."""
    return "_".join([value, *(str(first) for first, _ in window), "tile"])


def cut_axes(index: tuple[str, ...], shape: tuple[int, ...], window: tuple[tuple[int, int], ...]) -> tuple[str, ...]:
    """Axes along which `window` ends before a tensor of `shape` does: a tile across its end would load what is behind."""
    around = zip(index, shape, window, strict=True) if window else ()
    return tuple(axis for axis, extent, (_, end) in around if axis and end < extent)


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until the chunks that the tile reads of `exchange` are there.

    The parts are those of the segments of axis `slot`; the chunks those that cover the tile along axis `rows` (all
    chunks if `rows` is empty: the tile reads every row). `every`: all parts, in the order of the role, not only the
    tile's segment. The own part is not waited for, unless `own`: then another program of this launch has made it.
    """

    exchange: str
    slot: str
    rows: str
    every: bool
    own: bool = False


SMALLEST_DOT = 16  # elements along each axis of a matmul's tile, by tl.dot


@dataclass(frozen=True, slots=True)
class MatmulBody:
    """`result += left @ right` over axis `axis`; `waits` come before each segment of it, or each chunk of columns of `left`.

    `beside` is the result of the matmul in whose loop over `axis` this one runs, or empty: that one comes before, with
    nothing but others beside it in between, and its tiles of the left operand, and what it waits for, are those of this one.
    """

    result: str
    left: Operand
    right: Operand
    axis: str
    waits: tuple[Wait, ...]
    beside: str = ""

    @property
    def transposed(self) -> bool:
        """Whether `right` lies as [N, K]: its tiles are turned on their way to the tensor cores."""
        return self.right.index[-1] == self.axis


@dataclass(frozen=True, slots=True)
class UserBody:
    """`result = function(...)`: a tile by the user's own function, which gets pointers."""

    result: str
    function: str
    operands: tuple[tuple[str, Operand], ...]  # tensor parameter -> operand


@dataclass(frozen=True, slots=True)
class CombineBody:
    """`result` = the sum over the choices of rows by assignment, each times its weight, of those whose id in `ids` is an expert
    of this rank. The tile has rows of tokens. Where `rows` are remote, each lies at the rank of its expert, and all are added."""

    result: str
    rows: Operand
    weights: Operand
    ids: Operand
    routed: Routed


@dataclass(frozen=True, slots=True)
class AttendBody:
    """`result` = the attention of a tile of `queries`, of one head, over all of `keys` and `values` along `axis` that its rows
    see; `waits` come before the first tile of each part of these."""

    result: str
    queries: Operand
    keys: Operand
    values: Operand
    axis: str
    how: Attend
    waits: tuple[Wait, ...]


@dataclass(frozen=True, slots=True)
class SumParts:
    """`result` = the sum of this tile over the parts of `operand` from all ranks, each after its `wait`.

    The order is the same on every rank that adds this tile. `onto` is a value that already holds the own summand, or empty:
    then the own part is added like the others.
    """

    result: str
    operand: Operand
    wait: Wait | None
    onto: str


@dataclass(frozen=True, slots=True)
class SumPackets:
    """`result` = the sum of the tile `value` over the tiles of all ranks at the same `index`, rounded to its dtype first.

    Every element travels in packets that say themselves that they have arrived (`PacketCollective`), straight from tile to tile:
    to the rank whose share of the axis `cut` it lies in, or to every rank if there is none. A tile sends all its packets before
    it waits for those of its peers; there are two sets of them, for calls in turn. The order of the sum is the same on every
    rank. In two `shots`, without a `cut`, each rank adds an equal share of the packets of the tile, and sends its sums to every
    peer before it waits for theirs.
    """

    result: str
    value: str
    index: tuple[str, ...]
    cut: str
    protocol: Protocol = Protocol.LL
    shots: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """`result` = the tile of `operand`, in fp32."""

    result: str
    operand: Operand


@dataclass(frozen=True, slots=True)
class Apply:
    """`result = function(*arguments)` elementwise in fp32; a one-dimensional argument is a row. `left` and `right` are
    constants in the place of an operand, as in `Elementwise`."""

    result: str
    function: str
    arguments: tuple[str, ...]
    left: float | None = None
    right: float | None = None

    @property
    def operands(self) -> tuple[object, ...]:
        """Names of values, and constants."""
        return with_constants(self.arguments, self.left, self.right)


class Place(Choice):
    """Whose memory a tile is stored to."""

    HERE = "here"
    PEER = "peer"  # the rank of the tile's segment: its target part of this rank
    EVERY_PEER = "every peer"  # the target part of this rank on each peer
    OWN = "own part"  # the target part of this rank, here
    TOKEN = "token"  # of each row the rank of its token


@dataclass(frozen=True, slots=True)
class Store:
    """Write the tile `value`, rounded to the buffer's dtype."""

    value: str
    operand: Operand
    place: Place


@dataclass(frozen=True, slots=True)
class Notify:
    """Count this tile for every chunk of `exchange` that it touches. Whoever completes a chunk tells peers, where they wait for
    more than the count: those at `place`."""

    exchange: str
    slot: str  # axis of the part, empty for a GATHER source
    rows: str  # axis of the chunk
    place: Place


@dataclass(frozen=True, slots=True)
class IfOwn:
    """Tiles of the own segment of axis `axis` run `own`, all others run `others`.

    `slices`: `own` goes through the tile in so many slices of columns, after all its waits: a slice of each part is in
    flight at once, where registers would not hold the tile of one part.
    """

    axis: str
    own: tuple[Step, ...]
    others: tuple[Step, ...]
    slices: int


@dataclass(frozen=True, slots=True)
class SlotWait:
    """Block until the item of a bounded exchange is in its slot; `rows` is the axis whose tile is the item."""

    exchange: str
    rows: str


@dataclass(frozen=True, slots=True)
class AwaitPlaces:
    """Block until every rank has told in which place of its pool the target of `exchange` lies in this call."""

    exchange: str


@dataclass(frozen=True, slots=True)
class SlotNotify:
    """Tell the sender that the slot of an item of a bounded exchange is free again. `rows` as in `SlotWait`."""

    exchange: str
    rows: str


Step = (
    Wait
    | MatmulBody
    | UserBody
    | CombineBody
    | AttendBody
    | SumParts
    | SumPackets
    | Load
    | Apply
    | Store
    | Notify
    | IfOwn
    | SlotWait
    | SlotNotify
    | AwaitPlaces
)


def in_pieces(step: Step) -> bool:
    """Whether the step stores a tile at peers in pieces."""
    return isinstance(step, Store) and step.operand.access is Access.PIECES


def matmuls_together(body: tuple[Step, ...]) -> int:
    """Matmuls that run in one loop over k."""
    return 1 + sum(isinstance(step, MatmulBody) and bool(step.beside) for step in body)
