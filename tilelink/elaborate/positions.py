"""Where tiles lie: launch positions of a role as indices of segments and tiles, and ranks by their position in an order."""

from __future__ import annotations

from tilelink.ir.nodes import Axis, ComputeRole
from tilelink.ir.order import ChunkOrder, Nest, RankOrder, TileOrder
from tilelink.schedule.index import Index, Number, greatest, least, rank
from tilelink.schedule.steps import Let

TILE = Index("tile")


def rank_at(order: RankOrder, position: Number) -> Number:
    """The rank at `position` of an order."""
    found: Number = 0
    own: Number = rank
    for outer, size in zip(order.groups, (*order.groups[1:], 1), strict=True):
        many = outer // size if size > 1 else outer
        if many == 1 < outer:
            continue
        by = position // size
        turned = own // size + order.first + by if order.direction > 0 else own // size + (many - order.first) - by
        found = found + turned % many * size
        own, position = own % size, position % size
    return found


def peer_and_chunk(
    order: ChunkOrder, chunks: int, *, position: Number = TILE, streams: bool = False, shifted: bool = False
) -> Let:
    """What lies at a position of a mover, in whose order the own rank is last, and left out. `streams`: one program a peer.
    `shifted`: chunk by chunk, every program starts with another peer, so that all links are used at once."""
    assert order.ranks.first == 1, "movers go to their peers before they would come to themselves"
    peers = order.ranks.num_ranks - 1
    step, chunk = position // chunks, position % chunks
    if streams or order.nest is Nest.CHUNK_MAJOR:
        step, chunk = position % peers, position // peers
        if shifted:
            step = (position + Index("program")) % peers
    return ("peer", rank_at(order.ranks, step)), ("chunk", chunk)


def lets(role: ComputeRole, position: Number, *, halves: bool = False) -> Let:
    """Segment, tile and first element of the tile at `position`, along each written axis.

    `halves`: each tile of the order is two of half the width along the minor axis, and the name `half` says which.
    """
    order = role.order
    major = role.axis(order.major)
    minor = role.axis(order.minor) if order.minor else None
    minor_tiles = minor.segments * minor.tiles if minor else 1
    found, place, row, column = _order(order, position, major, minor_tiles)
    found += _segment(major, place, order.ranks)
    found += _first(major, row)
    if minor is not None:
        inside = column % minor.tiles if minor.segments > 1 else column
        found += _segment(minor, column // minor.tiles, order.minor_ranks)
        half = Index("half") * (minor.tile // 2) if halves else 0
        found += _first(minor, inside, half)
    return tuple(found)


def _first(axis: Axis, tile: Number, half: Number = 0) -> list[tuple[str, Number]]:
    """The first element of a tile, `half` further on in its second half. Of a routed axis, whose tables have an entry for each,
    its number as well; where the last tile is shifted inwards, the first one that the tile before has not as well."""
    if axis.descending:
        tile = axis.tiles - 1 - tile
    if axis.inwards:
        return [
            (new_name(axis.name), tile * axis.tile),
            (axis.name, least(Index(new_name(axis.name)), axis.extent - axis.tile)),
        ]
    if axis.routed is None:
        return [(axis.name, tile * axis.tile + half)]
    return [(tile_name(axis.name), tile), (axis.name, Index(tile_name(axis.name)) * axis.tile)]


def new_name(axis: str) -> str:
    return f"{axis}_new"


def tile_name(axis: str) -> str:
    return f"{axis}_tile"


def _segment(axis: Axis, place: Number, order: RankOrder) -> list[tuple[str, Number]]:
    return [(segment_name(axis.name), rank_at(order, place))] if axis.segments > 1 else []


def segment_name(axis: str) -> str:
    return f"{axis}_segment"


def _order(
    order: TileOrder, position: Number, major: Axis, minor_tiles: int
) -> tuple[list[tuple[str, Number]], Number, Number, Number]:
    """Names on the way, and (place in the order of segments, major tile, minor tile), as `TileOrder.at` has them."""
    tiles, group = major.tiles, order.group
    stage, place, rest = (Index(f"{major.name}_{what}") for what in ("stage", "place", "rest"))
    rows: Number = Index(f"{major.name}_rows") if tiles % group else group
    sized: list[tuple[str, Number]] = (
        [(f"{major.name}_rows", least(group, tiles - stage * group))] if tiles % group else []
    )
    if order.late:
        visit = Index(f"{major.name}_visit")
        found = [(visit.op, position // (group * minor_tiles)), *_late(major, group, visit, stage.op, place.op)]
        inner = position % (group * minor_tiles)
        return found, place, stage * group + inner % group, inner // group
    match order.nest:
        case Nest.RANK_MAJOR:
            inside = position % (tiles * minor_tiles)
            found = [
                (place.op, position // (tiles * minor_tiles)),
                (stage.op, inside // (group * minor_tiles)),
                *sized,
                (rest.op, inside % (group * minor_tiles)),
            ]
        case Nest.CHUNK_MAJOR:
            visit = Index(f"{major.name}_visit")
            found = [
                (stage.op, position // (major.segments * group * minor_tiles)),
                *sized,
                (visit.op, position % (major.segments * group * minor_tiles)),
                (place.op, visit // (rows * minor_tiles)),
                (rest.op, visit % (rows * minor_tiles)),
            ]
    return found, place, stage * group + rest % rows, rest // rows


def _late(major: Axis, group: int, visit: Index, stage: str, place: str) -> list[tuple[str, Number]]:
    """The last segment lags one round behind: the first round has no visit of it, one is left over at the end."""
    segments, rounds = major.segments, major.tiles // group
    turn, number = (visit + 1) // segments, (visit + 1) % segments
    first = 1 - least(turn, 1)  # 1 in the first round, which begins with the first segment
    behind = greatest(turn - (rounds - 1), 0)  # 1 behind the last round
    return [
        (place, number - first + behind * (segments - 1)),
        (stage, turn - greatest(Index(place) - (segments - 2), 0)),
    ]
