"""Stores of tiles, here or at peers; of a tile that is shifted inwards, of the rows that the tile before has not.

    m_new = tile * 128
    m = min(m_new, rows - 128)                                   # the last tile ends with the tensor
    y = product of 128 rows from m on
    store y[m_new - m :] -> y[m_new : +min(128, rows - m_new)]   # by pointers, which can leave rows out

Rows that two tiles compute are stored once, so that a tile whose reduction programs share needs no bits of another one.
"""

from __future__ import annotations

from dataclasses import replace

from tilelink.elaborate.positions import new_name
from tilelink.elaborate.regions import Tiles, box, part, region
from tilelink.ir import steps as ir
from tilelink.ir.nodes import Memory
from tilelink.ir.steps import Place
from tilelink.schedule.index import Index, Number, rank
from tilelink.schedule.memory import Region
from tilelink.schedule.steps import For, Load, Step, Store
from tilelink.schedule.walk import mapped

STEP, PEER = Index("step"), Index("peer")


def places_of(exchange: str) -> str:
    """The buffer in which each rank finds the places of all."""
    return f"{exchange}_places"


def every_peer(tiles: Tiles) -> tuple[tuple[str, Number], ...]:
    return (("peer", (rank + STEP) % tiles.schedule.num_ranks),)


def store(tiles: Tiles, step: ir.Store) -> tuple[Step, ...]:
    """The store, of all rows or of those that are new."""
    axis = tiles.shifted
    if axis not in step.operand.index:
        return _stored(tiles, step)
    skip = Index(new_name(axis)) - Index(axis)
    found = _stored(replace(tiles, new=True), step)
    return mapped(found, lambda one: (replace(one, skip=skip),) if isinstance(one, Store) else (one,))


def _stored(tiles: Tiles, step: ir.Store) -> tuple[Step, ...]:
    operand = step.operand
    if step.place is Place.HERE:
        return (Store(step.value, region(tiles, operand)),)
    starts, extents = box(tiles, operand)
    found: tuple[Step, ...]

    def to(at: Number) -> Store:
        return Store(
            step.value, part(tiles.schedule, operand.buffer, rank, starts, extents, at=at, access=operand.access)
        )

    match step.place:
        case Place.TOKEN:  # rows of another rank's tokens lie outside of the buffer at a peer
            starts[0] = starts[0] - PEER * tiles.schedule.buffer(operand.buffer).shape[0]
            found = (Store(step.value, Region(operand.buffer, tuple(starts), tuple(extents), PEER)),)
            return (For("step", tiles.schedule.num_ranks, found, every_peer(tiles)),)
        case Place.OWN:
            return (to(rank),)
        case Place.PEER:
            return (to(tiles.segment(operand.slot)),)
    found = (to(PEER),)
    if tiles.schedule.buffer(operand.buffer).memory is Memory.POOL:
        exchange = next(one.name for one in tiles.schedule.exchanges if one.target == operand.buffer)
        found = (Load("place", Region(places_of(exchange), (PEER,), (1,))), *found)
    return (For("step", tiles.schedule.num_ranks, found, every_peer(tiles), unrolled=tiles.role.prefetch),)
