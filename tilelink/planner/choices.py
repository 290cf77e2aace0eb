"""The text form of choices, as users pin them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from tilelink.ir.choices import ComputeChoice, Elsewhere, ExchangeChoice, LibraryCompute, TritonLoop
from tilelink.ir.collective import Landing
from tilelink.ir.enums import Protocol
from tilelink.ir.movers import Issuer, Mover, Transfer
from tilelink.ir.nodes import TileShape
from tilelink.ir.order import Nest

ITEM_TILE = TileShape(0, 0, 0, 0, 1)  # a tile is an item of the bounded exchange that is read, whatever its extent


def exchange_fields(choice: ExchangeChoice) -> dict[str, str]:
    """Texts of the fields; `slots` and `consumers` only where the exchange is bounded, `streams` of copy engines."""
    bounded = {"slots": str(choice.slots), "consumers": str(choice.consumers or "all")} if choice.slots else {}
    by_streams = choice.mover.issuer is Issuer.STREAMS
    streams = {"streams": "peer" if choice.per_peer else "one"} if by_streams else {}
    return {
        "mover": choice.mover.text,
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


def tile_text(tile: TileShape) -> str:
    shared = f"{tile.per_sm}p" if tile.per_sm > 1 else ""
    shared += f"{tile.warpgroups}g" if tile.warpgroups > 1 else ""
    return f"{tile.m}x{tile.n}x{tile.k}/{tile.warps}w{tile.stages}s{shared}"


def pin_text(value: object) -> str:
    """Text of a pin's value: enum members and movers may be given as objects."""
    match value:
        case Mover():
            return value.text
        case TileShape():
            return tile_text(value)
        case Transfer() | Protocol() | Landing() | Nest():
            return str(value.value)
    return re.sub(r"\s+", " ", str(value)).strip()


# a pin that decides nothing: what the caller promises not to read any more when the next call begins
OUTPUTS, FRESH, REUSED = "outputs", "fresh", "reused"
COLLECTIVE_FIELDS = ("shots", "protocol", "landing", "mover")
EXCHANGE_FIELDS = ("mover", "transfer", "chunks", "nest", "streams", "slots", "consumers")
COMPUTE_FIELDS = ("compute", "tile", "group", "prefetch", "tail", "count", "sum")


def pinned(pins: Mapping[str, str], name: str, field: str) -> str | None:
    """The value pinned for `name.field`, by its full name or by the field alone, else None."""
    return pins.get(f"{name}.{field}", pins.get(field))


def likely(value: str, texts: Iterable[str]) -> str:
    """` Did you mean 'Fused()'?` for the text that is closest, whatever its case, or nothing."""
    spelled = {text.lower(): text for text in sorted(texts)}
    close = difflib.get_close_matches(value.lower(), list(spelled), n=1)
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""
