"""The table of features: a row for each form of each mechanism, and what must be seen of it. A new mechanism is a row.

`test_features.py` checks every row. Files of single mechanisms have what is theirs alone: limits, messages, planted mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import topologies
from tests.pipeline import operators
from tests.pipeline.workloads import load
from tilelink.bench.operators import ag_linear, linear_rs
from tilelink.declaration import Overlap
from tilelink.ir.schedule import Schedule

Sizes = Mapping[str, int]
Pins = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Real:
    """Sizes of a layer, and pins beside those of the row, for which files are compiled on both vendors' GPUs."""

    sizes: Sizes
    pins: Pins


@dataclass(frozen=True, slots=True)
class Unpinned:
    """What is planned where the mechanism is not pinned, and, if something else is pinned `instead`, how much slower that is."""

    sizes: Sizes
    choices: Pins
    ranks: int = 4
    pins: Pins = field(default_factory=dict)  # of other things
    instead: Pins = field(default_factory=dict)
    ratio: float = 1.0  # the prediction, over that of what is pinned instead, is below this
    operator: Overlap | None = None  # if it is another one than that of the row
    topology: str = "h200-nvswitch"
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Feature:
    """A form of a mechanism: the pins that ask for it, at sizes that emulated ranks compute in a second."""

    operator: Overlap
    sizes: Sizes
    pins: Pins
    scaled: Sizes = field(default_factory=dict)  # sizes of one rank, which grow with their number
    ranks: tuple[int, ...] = (4,)  # the first is that of all checks but emulation
    topology: str = "laptop-switch"
    dtypes: tuple[str, ...] = ("bf16",)
    calls: int = 3
    steps: tuple[str, ...] = ()  # expressions that match one behind the other in the printed schedule
    never: tuple[str, ...] = ()  # expressions that do not match there
    source: tuple[str, ...] = ()  # expressions that match in the file for stock Triton
    stock_only: tuple[str, ...] = ()  # texts of that file which files for other targets do not have
    ptx: tuple[str, ...] = ()  # texts in the PTX of exactly one kernel for sm_90
    real: Real | None = None
    unpinned: tuple[Unpinned, ...] = ()
    quick: bool = False  # whether the quick suite has the row

    def but(self, pins: Pins | None = None, more: tuple[str, ...] = (), **fields: Any) -> Feature:
        """The row with other fields; pins and steps come beside its own."""
        return replace(self, pins={**self.pins, **(pins or {})}, steps=(*self.steps, *more), **fields)

    def plan(self, ranks: int = 0, dtype: str = "", **pins: str) -> Schedule:
        """The schedule on the first number of ranks, of the first dtype, with more pins, unless others are given."""
        ranks = ranks or self.ranks[0]
        sizes = {**self.sizes, **{name: size * ranks for name, size in self.scaled.items()}}
        machine = topologies.load(self.topology, ranks)
        return self.operator.plan_for(machine, sizes, dtype or self.dtypes[0], {**self.pins, **pins})


def of(mechanism: str) -> dict[str, Feature]:
    """The rows of one mechanism, by what follows its name."""
    begin = f"{mechanism}: "
    return {name.removeprefix(begin): row for name, row in FEATURES.items() if name.startswith(begin)}


@cache
def planned(name: str, ranks: int = 0, dtype: str = "") -> Schedule:
    """The schedule of a row."""
    return FEATURES[name].plan(ranks, dtype)


AG_GEMM, GEMM_RS = load("02_ag_gemm.py:ag_gemm"), load("03_gemm_rs.py:gemm_rs")
GEMM_AR, MLP = load("04_gemm_ar.py:gemm_ar"), load("05_mlp.py:mlp")
USER_OP = load("06_user_op.py:ag_squared_relu")

COPIES, SMS, STORES = {"mover": "CopyEngine()"}, {"mover": "CommSms(2)"}, {"mover": "Fused()", "transfer": "push"}
PARTS_BY_COPIES = {"y_parts.mover": "CopyEngine()"}
SMALL_TILE = {"y.compute": "triton", "y.tile": "16x32x16/4w2s"}
LAYER = {"M": 4096, "K": 14336, "N": 4096}
FULL = {"M": 8192, "K": 11008, "N": 4096}


# ---- tiles in ping-pong, and stores in pieces


TURNS_SIZES = {"M": 512, "N": 256, "K": 192}  # several tiles for each group of a program
TURNS_RAGGED = {"M": 512, "N": 160, "K": 160}  # columns that tiles do not divide, and steps of k
TURNS_TILE, WIDE_TILE = (
    "64x64x16/4w2s2g",
    "64x128x16/4w2s2g",
)  # tiles leave in pieces of 64 columns: of the wide ones two
_TURNS = Feature(
    GEMM_RS,
    TURNS_SIZES,
    {"algorithm": "direct", "y.tile": TURNS_TILE, "y.compute": "triton"},
    steps=("tiles, in ping-pong:",),
    stock_only=("warp_specialize",),  # elsewhere programs compute one tile after the other
    ptx=("wgmma", "setmaxnreg", ".reqntid 384"),  # warps of all groups: two that multiply, and one that loads
)
_TURNS_GATHER = _TURNS.but(operator=AG_GEMM, pins={"out.tile": TURNS_TILE, "out.compute": "triton"})
_TURNS_GATHER = replace(_TURNS_GATHER, pins={n: v for n, v in _TURNS_GATHER.pins.items() if not n.startswith("y.")})
_ADDED = {"out.sum": "epilogue"}
_TURNS_ALL = _TURNS.but({**STORES, "y.tile": WIDE_TILE, "out_part.sum": "epilogue"}, operator=GEMM_AR)
_SUM_IN_PIECES = r"store out_part -> out\[rank, .*\]@peer by descriptor, paced"
_PART_IN_PIECES = r"store y -> y_parts\[rank, .*\]@m_segment by descriptor, paced"
_BOTH = (_SUM_IN_PIECES, _PART_IN_PIECES)
_NO_PIECES = ("by descriptor, paced",)
_UNPINNED_PIECES = {"y_parts.mover": "Fused()", "y.tile": "128x128x64/4w5s2g"}


def _turns() -> Iterator[tuple[str, Feature]]:
    copied = _TURNS.but({**PARTS_BY_COPIES, **_ADDED}, never=_NO_PIECES)
    yield "sums, copies", copied.but(quick=True)
    yield "sums, copies, ragged", copied.but(sizes=TURNS_RAGGED)
    yield "sums, copies to here", copied.but({"transfer": "pull"})
    yield "sums in a kernel of their own", copied.but({"out.sum": "kernel"}, more=("out_tiles on ",))
    yield "parts by stores", _TURNS.but({**STORES, **_ADDED}, more=(_PART_IN_PIECES,))
    yield "sums by stores", _TURNS_ALL.but({"algorithm": "in-place"}, more=_BOTH)
    yield "sums by stores into pools", _TURNS_ALL.but({"algorithm": "pooled"}, more=_BOTH)
    late = {"y_parts.chunks": "2", "y_parts.nest": "chunk by chunk", "algorithm": "in-place"}
    yield "sums by stores, a chunk late", _TURNS_ALL.but(late, more=("the last one a round behind", *_BOTH))
    every = {**PARTS_BY_COPIES, "out.mover": "Fused()", "algorithm": "pooled"}
    yield "sums stored at every peer", _TURNS.but(every, operator=GEMM_AR)
    yield "gather", _TURNS_GATHER.but(COPIES, sizes=TURNS_RAGGED)
    yield "gather, chunk by chunk", _TURNS_GATHER.but({"nest": "chunk by chunk", "chunks": "2"})
    mlp = replace(_TURNS, pins={"y.tile": TURNS_TILE, "y.compute": "triton", "up.loop": "shared"})
    yield "beside a loop of Triton", mlp.but(operator=MLP, sizes={"M": 256, "H": 128, "F": 256})
    yield "sums, copies, weights as [n, k]", copied.but(operator=linear_rs, ranks=(2, 4))
    yield "gather, weights as [n, k]", _TURNS_GATHER.but(COPIES, operator=ag_linear, sizes=TURNS_RAGGED, ranks=(2, 4))


# ---- outputs that peers put together


_ALL_REDUCE = Feature(
    GEMM_AR, {"N": 64}, {}, scaled={"M": 40, "K": 32}, ranks=(2, 3, 4), real=Real(LAYER, {"y.tile": "128x128x64/8w2s"})
)
_ONE_KERNEL = {**SMALL_TILE, **STORES, "sum": "epilogue"}
_LIBRARY_FIRST = {"y.compute": "library", "mover": "Fused()"}
_COPIES_IN = {**SMALL_TILE, **PARTS_BY_COPIES, "out.mover": "Fused()", "sum": "epilogue"}
_SMS_IN = {**SMALL_TILE, "y_parts.mover": "CommSms(2)", "sum": "kernel"}
_FOR_THE_CALLER = r"symmetric out\[.* for the caller"
_ENDS_TOGETHER = r"wait done\[0\] >= call( \* \d+)? for out"


def _in_place() -> Iterator[tuple[str, Feature]]:
    base = _ALL_REDUCE.but({"algorithm": "in-place"}, more=(_FOR_THE_CALLER, _ENDS_TOGETHER), never=("out_place",))
    untiled = Real(LAYER, {})
    yield "one kernel", base.but(_ONE_KERNEL, quick=True)
    yield "the library, then one kernel", base.but(_LIBRARY_FIRST, real=untiled)
    yield "copy engines in chunks", base.but({**SMALL_TILE, **COPIES, "sum": "epilogue", "out.chunks": "3"})
    yield "copies in, stores out", base.but(_COPIES_IN)
    yield "SMs in, copies out, a sum of its own", base.but({**_SMS_IN, "out.mover": "CopyEngine()"})


def _pool() -> Iterator[tuple[str, Feature]]:
    told = (
        _FOR_THE_CALLER,
        r"symmetric out_places\[",
        r"notify out_place\[rank\]@",
        r"wait out_place\[.*for out_places",
    )
    base = _ALL_REDUCE.but({"algorithm": "pooled"}, more=(*told, _ENDS_TOGETHER), ranks=(2, 4), calls=4)
    fresh = Unpinned(
        {"M": 8192, "K": 14336, "N": 4096},
        {"out.algorithm": "pooled", "out.mover": "Fused()", "out_part.sum": "epilogue"},
    )
    yield "one kernel", base.but(_ONE_KERNEL, quick=True, unpinned=(fresh,))
    yield "the library, then one kernel", base.but(_LIBRARY_FIRST, real=Real(LAYER, {}))
    yield "copies in, stores out", base.but(_COPIES_IN)
    yield "SMs in, a sum of its own", base.but({**_SMS_IN, "out.mover": "Fused()"})


def _joined() -> Iterator[tuple[str, Feature]]:
    """Programs of one kernel that go on with the tiles of the next one."""
    two_shots = {"algorithm": "two-shot", "out_whole.mover": "Fused()", "out_whole.transfer": "push"}
    goes_on = (" tiles:", r"@peer = call", " tiles:", "store out -> out")
    base = replace(_ALL_REDUCE, pins=two_shots, steps=goes_on, never=("out_kernel", "out_tiles"), real=None)
    tiles = {**SMALL_TILE, "out.tile": "16x16x0/4w1s", "out_part.sum": "epilogue"}
    stores = {**tiles, "y_parts.mover": "Fused()"}
    yield "after a sum of what the library made", base.but({"y.compute": "library", "y_parts.mover": "Fused()"})
    yield "after tiles that add what copy engines bring", base.but({**tiles, **PARTS_BY_COPIES})
    yield "after tiles that store everywhere", base.but(stores, quick=True)
    yield "in chunks", base.but({**stores, "out_whole.chunks": "3"})
    pins = {"algorithm": "two-shot", **STORES, "compute": "triton", "sum": "epilogue", "y.tile": "16x32x16/4w2s"}
    yield "with what folds into the copy", replace(base, operator=operators.folded, pins=pins, ranks=(2, 4))


# ---- who ends a call


_PUSHED = {"algorithm": "direct", **COPIES, "transfer": "push", "chunks": "2"}
_TOLD = r"last program:  # this rank has finished the call\n +wait copied\[0\] >= call\n"
_ENDS_BY_LAUNCH = r"finish on a program of 1 warps[^\n]*\n +one tile:  # this rank has finished the call"


def _call_ends() -> Iterator[tuple[str, Feature]]:
    """A program of the last kernel ends it where copy streams can tell it, else a launch; or all ranks meet."""
    sizes = {"M": 128, "K": 64, "N": 64}
    tells = (r"signal copied\[1\]", r"notify copied\[0\] = call")
    gather = Feature(AG_GEMM, sizes, _PUSHED, ranks=(2,))
    scatter = Feature(GEMM_RS, sizes, {**_PUSHED, "sum": "kernel"}, ranks=(2,))
    told: dict[str, Any] = {"source": (r"\(counts \+ COPIED",)}
    alone: dict[str, Any] = {"more": (_ENDS_BY_LAUNCH,), "never": ("copied", "last program")}
    yield "copies feed tiles", gather.but({"compute": "triton"}, more=(*tells, _TOLD), quick=True, **told)
    yield "tiles feed copies", scatter.but({"compute": "triton"}, more=(tells[0], _TOLD, tells[1]), **told)
    yield "the library is last", gather.but({"compute": "library"}, **alone)
    yield "the library is first", scatter.but({"compute": "library"}, more=(*tells, _TOLD), **told)
    by_chunks = {"compute": "triton", "nest": "chunk by chunk"}
    yield "streams cannot wait for words", gather.but(by_chunks, topology="laptop-mesh", **alone)
    yield "links without atomics", gather.but({"compute": "triton"}, topology="l20-pcie", **alone)
    together: dict[str, Any] = {
        "sizes": {"M": 96, "K": 96, "N": 96},
        "ranks": (3,),
        "calls": 4,
        "steps": (_ENDS_TOGETHER,),
    }
    together["never"] = ("every peer has finished the last call",)
    pulled = {**COPIES, "transfer": "pull"}
    yield "together, pulls", replace(gather, pins=pulled, **together)
    yield "together, parts that are loaded", replace(scatter, pins=_LIBRARY_FIRST, **together)
    two_shots = {"algorithm": "two-shot", **PARTS_BY_COPIES, "out_whole.mover": "CommSms(2)"}
    yield "together, two shots", replace(gather, operator=GEMM_AR, pins=two_shots, **together)


FEATURES: dict[str, Feature] = {
    f"{mechanism}: {form}": row
    for mechanism, rows in {
        "turns": _turns,
        "in place": _in_place,
        "pool": _pool,
        "joined": _joined,
        "call ends": _call_ends,
    }.items()
    for form, row in rows()
}
