"""Steps: what a program does, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilelink.ir.enums import Choice
from tilelink.schedule.index import Index, Number, less
from tilelink.schedule.memory import Region
from tilelink.schedule.names import BufferName, FunctionName, OpName, SignalName, ValueName

Let = tuple[tuple[str, Number], ...]  # names and what they stand for; later ones may use earlier ones


@dataclass(frozen=True, slots=True)
class Wait:
    """Block until the word of the own rank is at least `until`. A wait for 0 or less waits for nothing.

    `covers` names the buffers whose loads behind this step need it. What a loop may pipeline, which fences stand here, and what
    no compiler may move in front of this step all follow from it. Stores and raises stay behind every wait.
    """

    signal: SignalName
    index: tuple[Number, ...]
    until: Number
    covers: tuple[BufferName, ...] = ()


@dataclass(frozen=True, slots=True)
class Notify:
    """Raise a word of rank `at`: to `to`, or by one. What the program did before is done for whoever waits for it.

    `last_of`: whoever comes last of so many in a call raises it, for all of them.
    """

    signal: SignalName
    index: tuple[Number, ...]
    at: Number
    to: Number | None = None
    last_of: Number = 1


@dataclass(frozen=True, slots=True)
class Load:
    """`result` = the tile; elements that are masked are `fill`.

    With an `origin`, `result` is the address of that element of the buffer instead, for an op right behind this step, which
    loads the region itself and counts from there.
    """

    result: ValueName
    region: Region
    fill: float = 0.0
    origin: tuple[Number, ...] = ()


@dataclass(frozen=True, slots=True)
class Store:
    """The tile `value`, rounded to the dtype of the buffer, to `region`; of a matrix, without its first `skip` rows."""

    value: ValueName
    region: Region
    skip: Number = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Each of `target` = the one of `source`, then `notify`: in one operation where the engine has one (put with signal)."""

    source: tuple[Region, ...]
    target: tuple[Region, ...]
    notify: Notify | None = None


@dataclass(frozen=True, slots=True)
class Compute:
    """`results = op(*operands)` on tiles, numbers, and indices. `shape`: of the tiles of an op that makes them out of nothing."""

    results: tuple[ValueName, ...]
    op: OpName
    operands: tuple[ValueName | float | Index, ...] = ()
    shape: tuple[Number, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A whole operation of a library on regions, with `numbers`, and with the `scale` of scores if it attends; `tables` are those
    that it makes."""

    function: FunctionName
    results: tuple[Region, ...]
    operands: tuple[Region, ...]
    tables: tuple[str, ...] = ()
    numbers: tuple[Number, ...] = ()
    scale: float = 0.0


# attention of queries [B * S, Q * D] over keys and values [B * T, G * D]; numbers: B, D, and with a mask the number of the key of
# query 0: it sees the keys up to there, and each query one more than the one before. A second result are the logarithms
# [B * S, Q] of the sums of weights, of base e. What is merged into both has them as its last operands, too
ATTENTION, CAUSAL_ATTENTION, MERGED_ATTENTION = "attention", "causal_attention", "merged_attention"


# the operand of this rank to rank `numbers[0]`, while the result comes from rank `numbers[1]`, whose call is the one of the same
# position of the same role: it is not over before these two have come to theirs. Nothing else of other ranks is known then
SEND_RECEIVE = "send_receive"


SORT_ROWS = "sort_rows"  # the index program of a routing: tables of rows by experts (`tilelink.ir.routed`)
LIST_ROWS = "list_rows"  # that of rows which go to ranks: tables of those with an expert there
LIST_PLACES = "list_places"  # that of rows which go to places at ranks: tables of own assignments with their places
INDEX_PROGRAMS = (SORT_ROWS, LIST_ROWS, LIST_PLACES)


FOLDS = (
    "attend",
    "attend_some",
    "attend_between",
)  # ops that take keys with their values into a state; the last ones mask


class Order(Choice):
    """Order inside of a program or a rank. A pass puts these steps where an access needs them; nobody writes them by hand."""

    BARRIER = "barrier"  # all threads of the program have come here
    FENCE = "fence"  # descriptors see what pointers and peers wrote before
    FLUSH = "flush"  # what descriptors store has arrived
    QUIET = "quiet"  # puts so far have read their sources
    LANDED = "landed"  # and are where they go to


@dataclass(frozen=True, slots=True)
class Sync:
    order: Order


@dataclass(frozen=True, slots=True)
class For:
    """`body` for 0, 1, ... below `count`. `unrolled`: the number of rounds is small, and printed code repeats the body.

    `multicast`: one operation of the links does all rounds, in any order. The body is a store of packets at the same place of
    each rank, the own one too.
    """

    variable: str
    count: Number
    body: tuple[Step, ...]
    let: Let = ()
    unrolled: bool = False
    multicast: bool = False


@dataclass(frozen=True, slots=True)
class If:
    """`body` where `left` equals `right`, else `others`."""

    left: Index
    right: Number
    body: tuple[Step, ...]
    others: tuple[Step, ...] = ()

    def text(self, spell: Callable[[Number], str], *, equal: bool) -> str:
        """The condition of one of its sides: `a < b` is that max(b - a, 0) is not 0."""
        left = self.left
        if (left.op, self.right) == ("max", 0) and left.args[1] == 0:
            more, by = less(left.args[0])
            return f"{spell(by)} {'>=' if equal else '<'} {spell(more)}"
        return f"{spell(left)} {'==' if equal else '!='} {spell(self.right)}"


Step = Wait | Notify | Load | Store | Move | Compute | Call | Sync | For | If
