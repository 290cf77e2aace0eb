"""Choices: the independent fields that a planner decides and a user can pin, one by one. Together they make one schedule."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from tilelink.ir.collective import Collective
from tilelink.ir.enums import Tail
from tilelink.ir.movers import ChunkMover, Transfer
from tilelink.ir.nodes import TileShape
from tilelink.ir.order import Cut, Nest


class _Hashed:
    """A frozen dataclass that computes its hash once: searches look choices up all the time. Each names `_once` as its
    `__hash__`, since a dataclass does not inherit one."""

    def _once(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class ExchangeChoice(_Hashed):
    """How one relation is carried out.

    `slots`: places for chunks at the receiver if it is bounded, else 0. `consumers`: programs that take its items, 0 for
    as many as there is room for. `per_peer`: copy engines have a stream for each peer instead of one. `cut`: what chunks are,
    None where they are rows because readers need them so.
    """

    __hash__ = _Hashed._once

    mover: ChunkMover
    transfer: Transfer
    chunks: int
    nest: Nest
    slots: int = 0
    consumers: int = 0
    per_peer: bool = False
    cut: Cut | None = None


@dataclass(frozen=True, slots=True)
class TritonLoop:
    """A tile loop; up to `group` tiles of the major axis, but none of another chunk, are walked together (for L2).

    `prefetch`: operands of the next tile are loaded before this one is stored (`ComputeRole.prefetch`).
    `tail`: what becomes of tiles that are left when all programs have had as many (`ComputeRole.halved`, `split`).
    `late`: tiles are counted when the next one is computed (`ComputeRole.counts_late`); None while it is open, in the search.
    `own_first`: tiles with rows of own tokens only come before the wait for those of peers (`ComputeRole.own_first`)."""

    tile: TileShape
    group: int
    prefetch: bool
    tail: Tail = Tail.WHOLE
    late: bool | None = False
    own_first: bool = False


@dataclass(frozen=True, slots=True)
class LibraryCompute:
    """The matmul by the library; whole, or chunk by chunk where one of its exchanges is cut in chunks."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A loop of which nothing has to be known, since another one is looked at."""


@dataclass(frozen=True)
class ComputeChoice(_Hashed):
    """How one group is computed. `sum_in_epilogue`: a group that adds the parts of a SCATTER runs inside the own tiles of
    the group that makes them, instead of in a kernel of its own."""

    __hash__ = _Hashed._once

    loop: TritonLoop | LibraryCompute | Elsewhere
    sum_in_epilogue: bool


APART, FOLDED = ComputeChoice(Elsewhere(), False), ComputeChoice(Elsewhere(), True)


@dataclass(frozen=True)
class Choices(_Hashed):
    """All decisions of a schedule, in program order. `loops`: of each matmul that could run in the loop of another one,
    whether it does."""

    __hash__ = _Hashed._once

    collectives: tuple[tuple[str, Collective], ...]
    exchanges: tuple[tuple[str, ExchangeChoice], ...]
    computes: tuple[tuple[str, ComputeChoice], ...]
    loops: tuple[tuple[str, bool], ...] = ()

    def exchange(self, name: str) -> ExchangeChoice:
        return self._exchanges[name]

    def compute(self, name: str) -> ComputeChoice:
        return self._computes[name]

    @cached_property
    def _exchanges(self) -> dict[str, ExchangeChoice]:
        return dict(self.exchanges)

    @cached_property
    def _computes(self) -> dict[str, ComputeChoice]:
        return dict(self.computes)


NONE = Choices((), (), ())
