"""What ranks of a node add for another one, and how they cut it: in strips of chunks, so that all
programs that add have some; and where it lands."""

from __future__ import annotations

from dataclasses import replace

from tilelink.ir.movers import Issuer
from tilelink.ir.nodes import Exchange
from tilelink.ir.routed import Sent

LEAST_ROWS = 16  # of a strip


def from_nodes(exchange: Exchange) -> str:
    """The buffer into which other nodes put their sums, or rows that are handed on."""
    return f"{exchange.name}_from_nodes"


def has_landing(exchange: Exchange) -> bool:
    """Whether there is such a buffer."""
    return exchange.relayed or (isinstance(exchange.sent, Sent) and exchange.sent.by_node)


def strips_of(exchange: Exchange) -> int:
    """Strips of a chunk, which have as many rows each."""
    wanted, rows, found = -(-2 * exchange.mover.sms // exchange.chunks), exchange.chunk_rows, 1
    if exchange.rows % exchange.chunks:
        return 1
    while found < wanted and rows % (2 * found) == 0 and rows // (2 * found) >= LEAST_ROWS:
        found *= 2
    return found


def parts_added(exchange: Exchange) -> int:
    """How many parts a sum adds, the own one among them: of all ranks, or of those of the node and of the other nodes."""
    ranks = exchange.order.ranks
    return ranks.ranks_per_node + ranks.num_ranks // ranks.ranks_per_node - 1 if exchange.relayed else ranks.num_ranks


def as_sent(exchange: Exchange) -> Exchange:
    """The exchange, cut as sums of nodes cross the network: streams send whole chunks, programs put what they have added."""
    return in_strips(exchange) if exchange.mover.puts is Issuer.PROGRAMS else exchange


def in_strips(exchange: Exchange) -> Exchange:
    """The exchange, cut as sums of nodes are added."""
    return replace(exchange, chunks=exchange.chunks * strips_of(exchange))
