"""The fields of choices, in one table. The planner compares their values; users read and write texts.

`Field.parsed` is asked where a user's pins come in (`tilelink.planner.pins`), `Field.text` where something is shown or kept.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilelink.errors import LARGEST_SIZE
from tilelink.ir.collective import Adder, Landing
from tilelink.ir.enums import Choice, Protocol, Tail
from tilelink.ir.movers import MOVERS, Library, Mover, OwnKernel, Transfer
from tilelink.ir.nodes import TileShape
from tilelink.ir.order import Cut, Nest

V = TypeVar("V")


@dataclass(frozen=True, eq=False, slots=True)
class Field(Generic[V]):
    """`applies`: what it is a choice of. `parsed`: the value that a text stands for, if it is just as `text` writes it."""

    name: str
    applies: str
    parsed: Callable[[str], V | None]
    text: Callable[[V], str]


AnyField = Field[Any]


def pin_text(value: object) -> str:
    """Text of what a user gives as a value: enum members, movers and tiles may be objects."""
    match value:
        case Mover():
            return value.text
        case TileShape():
            return _tile_text(value)
        case Choice():
            return str(value.value)
    return re.sub(r"\s+", " ", str(value)).strip()


def _tile_text(tile: TileShape) -> str:
    shared = f"{tile.per_sm}p" if tile.per_sm > 1 else ""
    shared += f"{tile.warpgroups}g" if tile.warpgroups > 1 else ""
    return f"{tile.m}x{tile.n}x{tile.k}/{tile.warps}w{tile.stages}s{shared}"


def _tile(text: str) -> TileShape | None:
    """`128x256x64/8w3s`, `128x128x64/4w3s2p` (two programs an SM), `128x128x64/4w5s2g` (two warpgroups in turns), or None."""
    match = re.fullmatch(r"(\d+)x(\d+)x(\d+)/(\d+)w(\d+)s(?:(\d+)p)?(?:(2)g)?", text)
    if match is None:
        return None
    tile = TileShape(*(int(number or 1) for number in match.groups()))
    powers = all(size and size & (size - 1) == 0 for size in (tile.m, tile.n, tile.warps)) and not tile.k & (tile.k - 1)
    sizes = powers and min(tile.m, tile.n) >= 16 and tile.stages >= 1
    return tile if sizes and _tile_text(tile) == text else None


def _fold(text: str) -> TileShape | None:
    """A tile of heads, or of a fold of the user's: rows x elements x 1, which no product needs to be as wide as 16."""
    match = re.fullmatch(r"(\d+)x(\d+)x1/(\d+)w(\d+)s(?:(\d+)p)?", text)
    if match is None:
        return _tile(text)
    rows, block, warps, stages, per_sm = (int(number or 1) for number in match.groups())
    tile = TileShape(rows, block, 1, warps, stages, per_sm)
    powers = all(size and size & (size - 1) == 0 for size in (rows, block, warps))
    return tile if powers and stages >= 1 and _tile_text(tile) == text else None


def _mover(text: str) -> Mover | None:
    """`CopyEngine()`, `CommSms(16)`: a class of a mover, and its numbers."""
    name, _, rest = text.partition("(")
    kind = next((kind for kind in (*MOVERS, OwnKernel, Library) if kind.__name__ == name), None)
    numbers = [_number(part) or 0 for part in rest.removesuffix(")").split(", ") if part]
    if kind is None or len(numbers) != len(dataclasses.fields(kind)):
        return None
    mover = kind(*numbers)
    return mover if 0 not in numbers and mover.text == text else None


def _number(text: str) -> int | None:
    """A whole number from 1 on, as it is printed, that kernels count in 32 bits."""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,9}", text) and int(text) <= LARGEST_SIZE else None


def _words(name: str, applies: str, words: Mapping[V, str]) -> Field[V]:
    values = {text: value for value, text in words.items()}
    return Field(name, applies, values.get, words.__getitem__)


def likely(value: str, texts: Iterable[str]) -> str:
    """` Did you mean 'Fused()'?` for the text that is closest, whatever its case, or nothing."""
    spelled = {text.lower(): text for text in sorted(texts)}
    close = difflib.get_close_matches(value.lower(), list(spelled), n=1)
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""


# ---- the fields --------------------------------------------------------------------------------------------------------

_CHUNKED, _TILED = "collectives by exchanges of chunks", "matmuls and tile ops; of other loops by their names"

SHOTS = Field("shots", "an all_reduce", _number, str)
PROTOCOL = _words("protocol", "collectives but send_recv", {one: str(one.value) for one in Protocol})
LANDING = _words("landing", "an all_reduce of two shots", {one: str(one.value) for one in Landing})
ADDER = _words("adder", "sums of rows of experts on several ranks", {one: str(one.value) for one in Adder})
MOVER = Field("mover", "collectives", _mover, pin_text)
SPLITS = Field("splits", "attention of one query a sequence, folds of your own", _number, str)
FOLD = Field("fold", "states that ranks merge", _fold, _tile_text)  # heads x tokens x elements of a head
MULTICAST = _words("multicast", "packets that all ranks get", {True: "yes"})
OF_COLLECTIVES: tuple[AnyField, ...] = (SHOTS, PROTOCOL, LANDING, ADDER, MOVER, SPLITS, FOLD, MULTICAST)

TRANSFER = _words("transfer", _CHUNKED, {one: str(one.value) for one in Transfer})
CHUNKS = Field("chunks", _CHUNKED, _number, str)
NEST = _words("nest", _CHUNKED, {one: str(one.value) for one in Nest})
CUT = _words("cut", "collectives whose rows are found by a routing", {one: str(one.value) for one in Cut})
STREAMS = _words("streams", "collectives whose chunks copy engines move", {True: "peer", False: "one"})
SLOTS = Field("slots", "send_recv", _number, str)
CONSUMERS = Field(
    "consumers", "send_recv", lambda text: 0 if text == "all" else _number(text), lambda number: str(number or "all")
)
OF_EXCHANGES: tuple[AnyField, ...] = (MOVER, TRANSFER, CHUNKS, NEST, CUT, STREAMS, SLOTS, CONSUMERS)

COMPUTE = _words("compute", "matmuls, attention without window and soft cap", {True: "library", False: "triton"})
TILE = Field("tile", _TILED, _tile, _tile_text)
GROUP = Field("group", _TILED, _number, str)
PREFETCH = _words("prefetch", "matmuls, on GPUs with tensor descriptors", {True: "yes", False: "no"})
TAIL = _words("tail", "matmuls", {one: str(one.value) for one in Tail})
COUNT = _words("count", "matmuls whose tiles are sent to peers", {True: "late", False: "at once"})
OWN = _words("own", "matmuls of experts whose rows come by token from other ranks", {True: "first", False: "in order"})
SUM = _words("sum", "sums of a reduce_scatter or an all_reduce", {True: "epilogue", False: "kernel"})
OF_LOOPS: tuple[AnyField, ...] = (COMPUTE, TILE, GROUP, PREFETCH, TAIL, COUNT, OWN, SUM)

_JOINED = "matmuls of one left operand whose results come together elementwise"
LOOP = _words("loop", _JOINED, {True: "shared", False: "own"})  # whether it runs in the loop over k of another matmul
# a pin that decides nothing: what the caller promises not to read any more when the next call begins
OUTPUTS = _words(
    "outputs", "an all_reduce whose result is an output that nothing else reads", {True: "reused", False: "fresh"}
)
BY_NAME = {field.name: field for field in (*OF_COLLECTIVES, *OF_EXCHANGES, *OF_LOOPS, LOOP, OUTPUTS)}
