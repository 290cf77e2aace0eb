"""Orders: in which sequence ranks, chunks and tiles are visited. Every one is a composition of three moves:
rotate (start at some rank), interleave (one chunk of every rank, then the next), node-major (whole nodes first).

Each order has one definition here, as a Python function of plain integers; lowering spells the same arithmetic, and a
test compares the two position by position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilelink.ir.enums import Choice


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Ranks by position: from `rank + first` upwards (`direction` 1) or downwards (-1), nodes outside, ranks inside.

    With one node, position j is rank `(rank + direction * (first + j)) % num_ranks`. With several, the same rotation is
    applied to the node and to the rank inside the node; where halves of a node follow each other, to the half and to the rank
    inside of it. `first=0` starts with the own rank, `first=1` ends with it.
    """

    num_ranks: int
    ranks_per_node: int
    first: int
    direction: int = 1
    ranks_per_half: int = 0  # 0: ranks of a node follow each other

    @property
    def groups(self) -> tuple[int, ...]:
        """Ranks of a group of each level, from the outermost one inwards."""
        return self.num_ranks, *filter(None, (self.ranks_per_node, self.ranks_per_half))

    def at(self, rank: int, position: int) -> int:
        found = 0
        for outer, size in zip(self.groups, (*self.groups[1:], 1), strict=True):
            own, step, many = rank % outer // size, position % outer // size, outer // size
            first = self.first if many > 1 else 0
            found += (own + self.direction * (first + step)) % many * size
        return found

    def sequence(self, rank: int) -> tuple[int, ...]:
        return tuple(self.at(rank, position) for position in range(self.num_ranks))


class Nest(Choice):
    """Which of the two loops over ranks and chunks is outside."""

    RANK_MAJOR = "rank by rank"  # all chunks of a rank, then the next rank: links that are used one peer at a time
    CHUNK_MAJOR = "chunk by chunk"  # a chunk of every rank, then the next chunk: one link per pair


class Cut(Choice):
    """What chunks of a part are."""

    ROWS = "rows"  # consecutive ones
    COLUMNS = "columns"  # consecutive ones of all rows: the same chunks whichever rows a tile needs


@dataclass(frozen=True, slots=True)
class ChunkOrder:
    """Order of a mover over (peer, chunk), the own rank left out."""

    ranks: RankOrder
    nest: Nest

    def sequence(self, rank: int, chunks: int) -> tuple[tuple[int, int], ...]:
        peers = [peer for peer in self.ranks.sequence(rank) if peer != rank]
        match self.nest:
            case Nest.RANK_MAJOR:
                return tuple((peer, chunk) for peer in peers for chunk in range(chunks))
            case Nest.CHUNK_MAJOR:
                return tuple((peer, chunk) for chunk in range(chunks) for peer in peers)


@dataclass(frozen=True, slots=True)
class Die:
    """Chips made of `count` dies hand out programs round robin; remap so that neighbours share a die's L2."""

    count: int

    def at(self, program: int, programs: int) -> int:
        """Programs of one die become consecutive; the rest that does not divide keeps its place."""
        even = programs // self.count * self.count
        if program >= even:
            return program
        return program % self.count * (even // self.count) + program // self.count


@dataclass(frozen=True, slots=True)
class TileOrder:
    """Launch position -> tile of a loop over a major and a minor axis.

    The major axis may have segments (one a rank); `ranks` and `nest` say in which order segments are visited, `group`
    how many major tiles are walked together through all minor tiles (for L2). With CHUNK_MAJOR a group is what
    one visit of a segment covers: a group of every segment, then the next group. `late` (CHUNK_MAJOR, whole groups): the
    last segment of the order lags one group behind the others, so that what its tiles wait for has a round's time to
    arrive.
    `minor_ranks` orders the segments of the minor axis, if it has any.
    """

    major: str  # axis name
    minor: str  # axis name, empty if there is only one
    ranks: RankOrder
    minor_ranks: RankOrder
    nest: Nest
    group: int
    late: bool = False

    def at(self, position: int, major_tiles: int, minor_tiles: int, segments: int) -> tuple[int, int, int]:
        """(position in the segment order, major tile in the segment, minor tile) of a launch position."""
        if self.late:
            return self._at_late(position, major_tiles, minor_tiles, segments)
        match self.nest:
            case Nest.RANK_MAJOR:
                segment, rest = divmod(position, major_tiles * minor_tiles)
                stage, rest = divmod(rest, self.group * minor_tiles)
                rows = min(self.group, major_tiles - stage * self.group)
            case Nest.CHUNK_MAJOR:
                stage, rest = divmod(position, segments * self.group * minor_tiles)
                rows = min(self.group, major_tiles - stage * self.group)
                segment, rest = divmod(rest, rows * minor_tiles)
        return segment, stage * self.group + rest % rows, rest // rows

    def _at_late(self, position: int, major_tiles: int, minor_tiles: int, segments: int) -> tuple[int, int, int]:
        visit, rest = divmod(position, self.group * minor_tiles)
        # the first round has no visit of the last segment, and one of it is left over at the end
        stage, segment = divmod(visit + 1, segments)
        if stage == 0:
            segment = visit
        elif stage == major_tiles // self.group:
            segment = segments - 1
        stage -= segment == segments - 1
        return segment, stage * self.group + rest % self.group, rest // self.group

    def sequence(self, major_tiles: int, minor_tiles: int, segments: int) -> Iterator[tuple[int, int, int]]:
        for position in range(segments * major_tiles * minor_tiles):
            yield self.at(position, major_tiles, minor_tiles, segments)
