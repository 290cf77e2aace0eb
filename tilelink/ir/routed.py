"""Tile axes whose elements come in an order that a routing says: rows by assignment, those of an expert together.

Assignment t * choices + j is token t at its j-th expert. A tile has rows of one expert. Index programs make tables of a routing
for tiles of a height (`Tables`); their entries are laws, which `lowering/device/routing.py` fulfils:

- `rows[p]` is the assignment at place p, `tokens[p]` its token; `rows` has each assignment once.
- tile i has `here[i]` rows, from place i * height on, all of expert `experts[i]`; rows that no expert takes are of expert
  `num_experts`. Where experts are those of a rank, which may have none, tiles of these have no rows: nobody reads what becomes
  of them. So a tile with rows names an expert that the rank has.
- `count[0]` tiles have rows.

What is likely is so where every assignment goes to any expert alike. It is said of the rank with the most, for which others wait,
and in three calls of four no rank has more.

Own tokens are an equal share of all, those of this rank. Where their rows come first, tiles come in two parts, each by experts,
and are no more than without:

- rows of an expert that are of own tokens come before the others, each in the order of assignments;
- tiles 0 to `own[0]` - 1 have rows of own tokens only, whole tiles but for an expert that has no other rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist

from tilelink.ir.enums import Choice

_ALONE = 1024  # ids that one program sorts in one launch, sooner than several do in two
_SURE = 0.75  # of all calls: no rank has more than is likely
_FEWEST_ALONE, _FEWEST_IDS, _MOST_IDS, _MANY_PROGRAMS, _FEWEST_BINS = 128, 512, 2048, 64, 16


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True, slots=True)
class Routed:
    """The assignments of a routing: `ids` is the tensor that says it, [tokens, choices]. Of `parts` parts of all experts a rank
    has its own, of so many `experts`, and others are none to it. The last ranks have fewer, by `missing` in all."""

    name: str
    ids: str
    tokens: int
    choices: int
    experts: int
    parts: int = 1
    missing: int = 0

    @property
    def every(self) -> int:
        """Experts of all parts."""
        return self.experts * self.parts - self.missing

    def on_ranks(self, ranks: int) -> Routed:
        """The same where each rank has its part of the experts."""
        most = -(-self.every // ranks)
        return replace(self, experts=most, parts=ranks, missing=most * ranks - self.every)

    @property
    def rows(self) -> int:
        return self.tokens * self.choices

    @property
    def chunk(self) -> int:
        """Ids that one program of the index program sorts, a power of two. Each program reads the counts of all programs, so a
        chunk grows, up to a limit, before there are more than 64 programs."""
        if self.rows <= _ALONE:
            return max(_FEWEST_ALONE, _power(self.rows))
        return min(_MOST_IDS, max(_FEWEST_IDS, _power(-(-self.rows // _MANY_PROGRAMS))))

    @property
    def programs(self) -> int:
        return -(-self.rows // self.chunk)

    @property
    def bins(self) -> int:
        """Of a histogram of experts: a power of two. What chooses no expert is not in it."""
        return max(_FEWEST_BINS, _power(self.experts))

    def most_tiles(self, height: int) -> int:
        """Tiles of `height` rows, whatever the routing: each group but one may end with a tile of one row."""
        groups = self.experts + 1
        return self.rows if self.rows <= groups else (self.rows - groups) // height + groups

    @property
    def likely_share(self) -> float:
        """Of these experts, those that have rows."""
        without = math.exp(-self.rows_of_expert)
        spread = math.sqrt(without * (1 - without) / self.experts)
        return min(1.0, 1 - without + self._away * spread)

    @property
    def likely_rows(self) -> float:
        """Of these experts, of which the first rank has as many as any other."""
        share = self.experts / self.every
        return self.rows * share + self._away * math.sqrt(self.rows * share * (1 - share))

    def likely_tiles(self, height: int) -> int:
        """Tiles of `height` rows of these experts, where no assignment is of no expert."""
        spread = math.sqrt(2 * self.rows_of_expert)
        mean = square = 1 - math.exp(-self.rows_of_expert)
        number, first = 1, height  # tile j is there with more than j * height rows
        while first < self.rows_of_expert + 4 * spread:
            there = math.erfc((first + 0.5 - self.rows_of_expert) / spread) / 2
            mean, square = mean + there, square + (2 * number + 1) * there
            number, first = number + 1, first + height
        variance = max(0.0, square - mean * mean)
        likely = self.experts * mean + self._away * math.sqrt(self.experts * variance)
        return max(1, min(self.most_tiles(height), round(likely)))

    def likely_height(self, height: int) -> float:
        """Rows of a tile of `height` rows: fewer where those of an expert end in it."""
        return min(height, self.likely_rows / self.likely_tiles(height))

    @property
    def rows_of_expert(self) -> float:
        """On average."""
        return self.rows / self.every

    @property
    def _away(self) -> float:
        """So many standard deviations from the mean is the busiest rank, or less."""
        return NormalDist().inv_cdf(_SURE ** (1 / self.parts))

    def likely_own_tiles(self, height: int, ranks: int) -> int:
        """Of these, tiles that have rows of the tokens of one of so many ranks only."""
        return round(self.experts * sum(self._likely_own(height, ranks)))

    def likely_apart(self, height: int, ranks: int) -> float:
        """Of these experts, those that have such a tile."""
        return next(self._likely_own(height, ranks), 0.0)

    def _likely_own(self, height: int, ranks: int) -> Iterator[float]:
        """How likely an expert has one tile of rows of a rank's tokens, or more, or two or more, ..."""
        mean = self.rows_of_expert / ranks
        spread, first = math.sqrt(2 * mean), height
        while first < mean + 4 * spread:
            yield math.erfc((first - 0.5 - mean) / spread) / 2
            first += height


MOST_SENT_ROWS = 16  # own tokens of a block, a power of two: rows of 128 KB, of 4,096 elements of 2 bytes


class Readers(Choice):
    """Of which readers there are lists of rows, and which one the first list is of."""

    RANKS = "ranks"
    NODES = "nodes"
    OF_NODE = "ranks of the own node"
    OWN = "the own rank"


@dataclass(frozen=True, slots=True)
class RowLists:
    """Rows of tokens that readers need: those of tokens with an expert there. `ids`: of the tokens of so many `parts` of the
    ranks, [parts * tokens, choices]. `experts` belong to each reader, in order.

    Tables of whole blocks of `rows` tokens: of block b, here[p, b] are for the reader of list p, and their places in the block
    are listed[p, b, 0], listed[p, b, 1], ... in order.
    """

    name: str
    ids: str
    parts: int
    tokens: int
    choices: int
    experts: int
    rows: int
    lists: int
    of: Readers

    @property
    def blocks(self) -> int:
        """Of a part."""
        return self.tokens // self.rows

    @property
    def listed(self) -> str:
        return f"{self.name}_listed"

    @property
    def here(self) -> str:
        return f"{self.name}_here"


@dataclass(frozen=True, slots=True)
class Sent:
    """Rows of own tokens that go to each rank: those of tokens with an expert there. `ids`: of the own tokens, [tokens,
    choices]; `every`: of all tokens. Experts belong to the ranks in order, so many to each.

    `pulled`: rows come from each rank, those of its tokens with an expert here. `by_node`: rows go to the nodes that need them,
    and there to ranks: so many `strips` of blocks one after the other.
    """

    name: str
    ids: str
    every: str
    tokens: int
    choices: int
    experts: int
    rows: int
    pulled: bool = False
    by_node: bool = False
    strips: int = 1

    def far(self, ranks: int, local: int) -> RowLists:
        """Own rows, by the nodes that need them, of so many `local` ranks."""
        name, experts = f"{self.name}_far", self.experts * local
        return RowLists(name, self.ids, 1, self.tokens, self.choices, experts, self.rows, ranks // local, Readers.NODES)

    def near(self, ranks: int, local: int) -> RowLists:
        """Rows by the ranks that need them."""
        lists, of, parts = ranks, Readers.RANKS, 1
        if self.pulled:
            lists, of, parts = 1, Readers.OWN, ranks
        elif self.by_node:
            lists, of, parts = local, Readers.OF_NODE, ranks
        ids = self.ids if parts == 1 else self.every
        return RowLists(self.name, ids, parts, self.tokens, self.choices, self.experts, self.rows, lists, of)

    def likely_share(self, ranks: int) -> float:
        """Of the rows, those that go to one of so many `ranks`, or nodes, where every assignment goes to any expert alike."""
        return 1 - (1 - 1 / ranks) ** self.choices


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows of own assignments that go to the ranks of their experts, each to its place in the order of the tiles that read there.

    `routed` says the experts of the tokens of all ranks, and tiles have `height` rows. Tables of exchange `name`:

    - list p has the own assignments to experts of rank p, by expert and number: entry i is of own token listed[p, i], whose row
      goes to place placed[p, i] there, at which `rows` of that rank has the assignment. So no list has a place twice, and neither
      have lists p of two ranks;
    - piece q of list p has here[p, q] entries, from q * piece on.
    """

    name: str
    routed: Routed
    height: int

    @property
    def ranks(self) -> int:
        return self.routed.parts

    @property
    def tokens(self) -> int:
        """Own ones."""
        return self.routed.tokens // self.ranks

    @property
    def entries(self) -> int:
        """Of a list, at most."""
        return self.tokens * self.routed.choices

    @property
    def rows(self) -> int:
        """Tokens with as many assignments as a piece has entries."""
        return math.gcd(self.tokens, max(1, MOST_SENT_ROWS // _power(self.routed.choices)))

    @property
    def piece(self) -> int:
        """Entries that are moved at a time."""
        return self.rows * self.routed.choices

    @property
    def pieces(self) -> int:
        return self.tokens // self.rows

    @property
    def chunk(self) -> int:
        """Ids that one program sorts, all of one rank: a power of two."""
        return replace(self.routed, tokens=self.tokens).chunk

    @property
    def chunks(self) -> int:
        """Of the assignments of a rank."""
        return -(-self.entries // self.chunk)

    @property
    def bins(self) -> int:
        """Of a histogram of the experts of all ranks: a power of two."""
        return max(_FEWEST_BINS, _power(self.routed.every))

    @property
    def places(self) -> int:
        """Of all tiles that a rank may have."""
        return self.routed.most_tiles(self.height) * self.height

    @property
    def counts(self) -> str:
        return f"{self.name}_counts"

    @property
    def listed(self) -> str:
        return f"{self.name}_listed"

    @property
    def placed(self) -> str:
        return f"{self.name}_placed"

    @property
    def here(self) -> str:
        return f"{self.name}_here"

    def likely_share(self, ranks: int) -> float:
        """Of as many rows as there are own tokens, those that go to a rank where every assignment goes to any expert alike."""
        return self.routed.choices / ranks


class Follows(Choice):
    """How a dimension of a tensor follows an axis."""

    ROW = "row"  # of a routed axis: by assignment
    TOKEN = "token"  # of a routed axis: the token
    EXPERT = "expert"  # of a routed axis: the expert, one for a tile
    CHOICES = "choices"  # of an axis of tokens: the rows of all choices of a token
    PLACE = "place"  # of a routed axis: the place, so that rows of a tile follow each other


@dataclass(frozen=True, slots=True)
class Along:
    """A dimension of `extent` elements that follows an axis by a routing."""

    how: Follows
    extent: int


@dataclass(frozen=True, slots=True)
class Tables:
    """Names of the tables of a routing for tiles of `height` rows."""

    routing: str
    height: int

    def _named(self, what: str) -> str:
        return f"{self.routing}_{what}_{self.height}"

    @property
    def rows(self) -> str:
        return self._named("rows")

    @property
    def tokens(self) -> str:
        return self._named("tokens")

    @property
    def experts(self) -> str:
        return self._named("experts")

    @property
    def here(self) -> str:
        return self._named("here")

    @property
    def count(self) -> str:
        return self._named("tiles")

    @property
    def own(self) -> str:
        """Of how many of these all rows are of own tokens, where those come first."""
        return self._named("own_tiles")

    @property
    def counts(self) -> str:
        """How many of the ids of each program choose each expert."""
        return self._named("counts")

    @property
    def wrong(self) -> str:
        """How many ids of all calls so far are none."""
        return self._named("wrong")

    @property
    def all(self) -> tuple[str, ...]:
        return self.counts, self.wrong, self.rows, self.tokens, self.experts, self.here, self.count
