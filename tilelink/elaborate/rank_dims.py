"""Names of dims of groups of ranks: of nodes, and of their halves."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from tilelink.ir.order import RankOrder
from tilelink.schedule.index import Index
from tilelink.schedule.known import Known
from tilelink.schedule.memory import Dim


class Names(Protocol):
    """What a schedule calls its sizes. `ranks`: how many there are, by name."""

    ranks: int
    dims: dict[str, Dim]

    def size(self, name: str, value: int, title: str) -> int: ...

    def derived(self, name: str, value: int, title: str) -> None: ...


def rank_order(names: Names, order: RankOrder) -> RankOrder:
    """An order of all ranks, with names."""
    if order.num_ranks != names.ranks:
        return order
    node, half = of_a_node(names, order.ranks_per_node), order.ranks_per_half
    if half:
        half = _named(names, "RANKS_PER_HALF", half, "ranks of a half of a node")
        names.derived("HALVES_PER_NODE", node // half, "halves of a node")
    return replace(order, num_ranks=names.ranks, ranks_per_node=node, ranks_per_half=half)


def of_a_node(names: Names, local: int) -> int:
    """Ranks of a node, by their name."""
    if local == names.ranks:
        return names.ranks
    inside = _named(names, "RANKS_PER_NODE", local, "ranks of a node")
    names.derived("NUM_NODES", names.ranks // inside, "nodes of the group")
    return inside


def _named(names: Names, name: str, ranks: int, title: str) -> int:
    return Known(ranks, Index(name)) if name in names.dims else names.size(name, ranks, title)
