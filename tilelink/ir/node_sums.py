"""What ranks of a node add for another one, and how they cut it: in strips of chunks, so that all
programs that add have some; and where it lands."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tilelink.ir.movers import Issuer
from tilelink.ir.nodes import Exchange
from tilelink.ir.routed import Sent

LEAST_ROWS = 16  # of a strip


class SumLevel(NamedTuple):
    """Groups of `size` ranks, each of which adds what its ranks have for the ranks of the same place in other groups of `outer`
    ranks. `of`: what a group is, `others`: what the groups beside it are.
    """

    size: int
    outer: int
    of: str
    others: str

    def sums(self, exchange: str) -> str:
        """The buffer of what a group has for others, added."""
        return f"{exchange}_of_{self.of}"

    def landing(self, exchange: str) -> str:
        """The buffer into which other groups put theirs."""
        return f"{exchange}_from_{self.others}"


def sum_levels(exchange: Exchange) -> tuple[SumLevel, ...]:
    """Levels of sums of a scatter along rails, from inside out."""
    if not exchange.relayed:
        return ()
    outer, node, *half = exchange.order.ranks.groups
    inside = (SumLevel(half[0], node, "half", "halves"),) if half else ()
    return (*inside, SumLevel(node, outer, "node", "nodes"))


def from_nodes(exchange: Exchange) -> str:
    """The buffer into which other nodes put their sums, or rows that are handed on."""
    return f"{exchange.name}_from_nodes"


def landings(exchange: Exchange) -> tuple[tuple[str, int], ...]:
    """(buffer, parts that it has room for) of what is put to lie beside the target."""
    ranks = exchange.order.ranks
    if isinstance(exchange.sent, Sent) and exchange.sent.by_node:
        return ((from_nodes(exchange), ranks.num_ranks // ranks.ranks_per_node),)
    return tuple((level.landing(exchange.name), ranks.num_ranks // level.size) for level in sum_levels(exchange))


def strips_of(exchange: Exchange) -> int:
    """Strips of a chunk, which have as many rows each."""
    wanted, rows, found = -(-2 * exchange.mover.sms // exchange.chunks), exchange.chunk_rows, 1
    if exchange.rows % exchange.chunks:
        return 1
    while found < wanted and rows % (2 * found) == 0 and rows // (2 * found) >= LEAST_ROWS:
        found *= 2
    return found


def parts_added(exchange: Exchange) -> int:
    """How many parts a sum adds, the own one among them: of all ranks, or of those of the innermost group and of groups
    beside."""
    levels = sum_levels(exchange)
    if not levels:
        return exchange.order.ranks.num_ranks
    return levels[0].size + sum(level.outer // level.size - 1 for level in levels)


def as_sent(exchange: Exchange) -> Exchange:
    """The exchange, cut as sums of nodes cross the network: streams send whole chunks, programs put what they have added."""
    return in_strips(exchange) if exchange.mover.puts is Issuer.PROGRAMS else exchange


def in_strips(exchange: Exchange) -> Exchange:
    """The exchange, cut as sums of nodes are added."""
    return replace(exchange, chunks=exchange.chunks * strips_of(exchange))
