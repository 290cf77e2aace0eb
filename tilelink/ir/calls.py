"""Launches that carry out an operation as a whole: by the library, or small collectives by packets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import gcd

from tilelink.ir.dtype import DTYPE_BYTES
from tilelink.ir.enums import WARP, Protocol
from tilelink.ir.ops.attention import Attend
from tilelink.ir.ops.matmul import Matmul
from tilelink.ir.ops.states import Merged
from tilelink.ir.ops.user_fold import UserFold
from tilelink.ir.order import RankOrder
from tilelink.ir.routed import Placed, Routed, RowLists, Sent, Tables
from tilelink.ir.serialize import LATER
from tilelink.ir.steps import Operand, Wait


@dataclass(frozen=True, slots=True)
class LibraryOp:
    """`out` = what `how` makes of `operands`, by the library on the compute stream.

    With `split`, a matmul is one call for each (part, chunk) of that exchange, in `order`: after waiting for the chunk if the
    exchange delivers the left operand, before it is counted if the exchange takes `out`. Attention is one call for each part of
    the exchanges of keys and of values, after waiting for it; each merges its means into `out`, and the logarithms of the sums
    of their weights into `logs`.
    """

    out: Operand
    how: Matmul | Attend
    operands: tuple[Operand, ...]
    order: RankOrder  # of the parts of an exchange
    split: tuple[str, ...] = ()  # exchanges, or empty: one call
    wait: Wait | None = None  # of the split exchange of a matmul
    counted: bool = False  # each (part, chunk) when it is there
    logs: str = ""  # buffer, of attention part by part, or where anybody needs them


@dataclass(frozen=True, slots=True)
class SortRows:
    """The index program of a routing, for tiles of `height` rows: it makes their tables on the compute stream. `own_first`: rows
    of own tokens come first."""

    routed: Routed
    height: int
    own_first: bool = False

    @property
    def tables(self) -> Tables:
        return Tables(self.routed.name, self.height)

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the tables that it makes."""
        return (*self.tables.all, self.tables.own) if self.own_first else self.tables.all


@dataclass(frozen=True, slots=True)
class ListRows:
    """The index program of rows that readers need: it makes their tables on the compute stream. `far`: the readers are nodes."""

    sent: Sent
    far: bool = False

    def lists(self, ranks: int, local: int) -> RowLists:
        """Of so many `ranks`, and `local` ones of a node."""
        return self.sent.far(ranks, local) if self.far else self.sent.near(ranks, local)


@dataclass(frozen=True, slots=True)
class ListPlaces:
    """The index program of rows that go to places at ranks: it makes their tables on the compute stream."""

    placed: Placed


_LEAST_MERGED, _MOST_MERGED = 16, 4096  # elements of a tile of a merge: of its result, of all states


@dataclass(frozen=True, slots=True)
class StateMerge:
    """`out` = the merge of the states that all ranks have of `operands`, by one kernel. Its programs make the states of a rank,
    and send each to the ranks that need it, in packets; then they merge.

    Keys and values: a state is of the `rows` heads of a tile, which share keys, and of one of `splits` shares of the own tokens,
    `block` of which are taken at once. States that are given have one split, and tiles of `rows` of their heads.
    `merged`: rows of the result of a fold that a program merges at once, if the number has a name.
    """

    out: str
    how: Merged
    operands: tuple[str, ...]
    protocol: Protocol
    splits: int
    rows: int
    block: int
    programs: int
    warps: int
    stages: int
    per_sm: int
    merged: int = 0

    @property
    def shape(self) -> tuple[int, int, int]:
        """Sequences, heads, elements of a head."""
        return self.how.shape

    def with_numbers(self, tokens: int, **numbers: int) -> StateMerge:
        """The same in numbers that know their names, of fields and of the tokens of a rank."""
        return replace(self, how=replace(self.how, tokens=tokens), **numbers)  # type: ignore[arg-type]  # all are numbers

    @property
    def shared(self) -> int:
        """Heads of queries that share a head of keys."""
        return self.shape[1] // self.how.keys if self.how.keys else self.rows

    def own(self, ranks: int) -> tuple[int, int, int]:
        """Shape of the result on a rank."""
        sequences, heads, width = self.shape
        match self.how.dim:
            case 0:
                return sequences // ranks, heads, width
            case 1:
                return sequences, heads // ranks, width
        return self.shape

    def in_packet(self, dtype: str) -> int:
        """Elements of means that a packet holds, of states that are given in `dtype`."""
        return self.protocol.data_bytes // (4 if self.how.keys else DTYPE_BYTES[dtype])

    def merged_tile(self, ranks: int, dtype: str) -> tuple[int, int]:
        """Heads and elements of a head that a program merges at once: a share of the result, as far as registers have room for
        all states of it. A packet that is emptied is of one thread, so that there are as many at least."""
        (sequences, heads, width), states = self.own(ranks), 1 << (ranks * self.splits - 1).bit_length()
        threads = self.warps * WARP * self.in_packet(dtype) if self.protocol is Protocol.LAMPORT else 1
        least = max(_LEAST_MERGED, -(-threads // states))
        wanted = max(least, min(_MOST_MERGED // states, sequences * heads * width // self.programs))
        elements = 1 << (wanted - 1).bit_length()
        if isinstance(self.how.how, UserFold):
            return self.merged or min(elements, 1 << (heads - 1).bit_length()), 1
        if self.how.flat:  # rows are sequences
            return 1, min(elements, width)
        return (1, elements) if elements <= width else (gcd(heads, elements // width), width)

    @property
    def tiles(self) -> int:
        """Of heads, of all sequences."""
        return self.shape[0] * (self.shape[1] // self.shared) * -(-self.shared // self.rows)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """`out = function(operand)` on the compute stream, whole: nothing overlaps with it."""

    function: str  # "all_gather" | "reduce_scatter" | "all_reduce"
    out: str
    operand: str


@dataclass(frozen=True, slots=True)
class LibraryCollective(CollectiveCall):
    """By the library."""


@dataclass(frozen=True, slots=True)
class PacketCollective(CollectiveCall):
    """By one kernel, whose packets of 8 bytes say themselves that they have arrived (`protocol`), stored straight into memory
    of the peers: there are no signals and no fences.

    Each of `programs` programs stores its blocks of `block` packets at every peer, before it waits for the same blocks of the
    peers: so no rank waits for one that waits. An all_reduce in two `shots` sends part p of the summands to peer p, and then
    its sum to every peer, which is less where there are more than two ranks; a program sends sums when it has added its blocks.
    One that is `beside` the call before it has programs of its own in the launch of that one.
    An all_gather can be carried out `within` the kernel behind it, by all of its programs before their tiles, none of which goes
    on before all have done their blocks.
    Where loads and stores reach the `per_node` ranks of a node alone, an all_gather has `puts` more programs. These store
    packets of `put_block` for itself and put them to the rank of the same place on each other node, which hands them on.
    With `multicast`, packets that all ranks get go to them by one store, to the own rank as well, which takes them like others.
    There are two sets of packets, for calls in turn. A program comes to the second call after this one only when every peer has
    begun the next one, and so has read this set, and emptied it where packets say by that that they have not arrived.
    """

    packets: int  # that a rank sends to a peer in a shot
    programs: int
    block: int  # packets that a program moves at a time
    per_sm: int = 1  # programs that share an SM, so that all blocks are on their way at once
    protocol: Protocol = Protocol.LL
    shots: int = 1
    within: bool = False
    beside: bool = False
    per_node: int = 0  # 0: they reach all ranks
    puts: int = 0
    put_block: int = 0  # packets
    multicast: bool = field(default=False, metadata=LATER)

    @property
    def sms(self) -> int:
        """SMs that its programs take."""
        return -(-self.programs // self.per_sm) + self.puts

    @property
    def places(self) -> int:
        """Packets for what a rank sends, in whole blocks."""
        return -(-self.packets // self.block) * self.block
