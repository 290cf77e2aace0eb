"""Choices: the independent fields that the planner enumerates and the user can pin, with their text form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

from tilelink.ir.nodes import Algorithm, CommSms, CopyEngine, Fused, Mover, TileShape, Transfer
from tilelink.ir.order import Nest

ITEM_TILE = TileShape(0, 0, 0, 0, 1)  # a tile is an item of the bounded exchange that is read, whatever its extent


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
    as many as there is room for. `per_peer`: copy engines have a stream for each peer instead of one.
    """

    __hash__ = _Hashed._once

    mover: Mover
    transfer: Transfer
    chunks: int
    nest: Nest
    slots: int = 0
    consumers: int = 0
    per_peer: bool = False


@dataclass(frozen=True, slots=True)
class TritonLoop:
    """A tile loop; up to `group` tiles of the major axis, but none of another chunk, are walked together (for L2).

    `prefetch`: operands of the next tile are loaded before this one is stored (`ComputeRole.prefetch`).
    `halves`: tiles that are left when all programs have had as many are computed in halves (`ComputeRole.halved`); None
    while it is open, in the search.
    `late`: tiles are counted when the next one is computed (`ComputeRole.counts_late`); None as above."""

    tile: TileShape
    group: int
    prefetch: bool
    halves: bool | None = False
    late: bool | None = False


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

    algorithms: tuple[tuple[str, Algorithm], ...]
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


def exchange_fields(choice: ExchangeChoice) -> dict[str, str]:
    """Texts of the fields; `slots` and `consumers` only where the exchange is bounded, `streams` of copy engines."""
    bounded = {"slots": str(choice.slots), "consumers": str(choice.consumers or "all")} if choice.slots else {}
    streams = {"streams": "peer" if choice.per_peer else "one"} if isinstance(choice.mover, CopyEngine) else {}
    return {
        "mover": mover_text(choice.mover),
        "transfer": choice.transfer.value,
        "chunks": str(choice.chunks),
        "nest": choice.nest.value,
        **streams,
        **bounded,
    }


def compute_fields(choice: ComputeChoice) -> dict[str, str]:
    """Texts of all fields that some loop has; see `group_fields` for those that a certain one has."""
    match choice.loop:
        case TritonLoop(tile, group, prefetch, halves, late):
            return {
                "compute": "triton",
                "tile": tile_text(tile),
                "group": str(group),
                "prefetch": "yes" if prefetch else "no",
                "tail": "halves" if halves else "whole",
                "count": "late" if late else "at once",
                "sum": "epilogue" if choice.sum_in_epilogue else "kernel",
            }
        case LibraryCompute():
            return {"compute": "library"}
        case Elsewhere():
            return {}


def loop_text(shared: bool) -> str:
    """Whether a matmul runs in the loop over k of another one, or in its own."""
    return "shared" if shared else "own"


def mover_text(mover: Mover) -> str:
    match mover:
        case CopyEngine():
            return "CopyEngine()"
        case CommSms(num_sms):
            return f"CommSms({num_sms})"
        case Fused():
            return "Fused()"


def tile_text(tile: TileShape) -> str:
    shared = f"{tile.per_sm}p" if tile.per_sm > 1 else ""
    shared += f"{tile.warpgroups}g" if tile.warpgroups > 1 else ""
    return f"{tile.m}x{tile.n}x{tile.k}/{tile.warps}w{tile.stages}s{shared}"


def pin_text(value: object) -> str:
    """Text of a pin's value: enum members and movers may be given as objects."""
    match value:
        case CopyEngine() | CommSms() | Fused():
            return mover_text(value)
        case TileShape():
            return tile_text(value)
        case Transfer() | Algorithm() | Nest():
            return str(value.value)
    return re.sub(r"\s+", " ", str(value)).strip()


# a pin that decides nothing: what the caller promises not to read any more when the next call begins
OUTPUTS, FRESH, REUSED = "outputs", "fresh", "reused"
EXCHANGE_FIELDS = ("mover", "transfer", "chunks", "nest", "streams", "slots", "consumers")
COMPUTE_FIELDS = ("compute", "tile", "group", "prefetch", "tail", "count", "sum")


def pinned(pins: Mapping[str, str], name: str, field: str) -> str | None:
    """The value pinned for `name.field`, by its full name or by the field alone, else None."""
    return pins.get(f"{name}.{field}", pins.get(field))
