"""The table of features: a row for each form of each mechanism, and what must be seen of it. A new mechanism is a row.

`test_features.py` checks every row. Files of single mechanisms have what is theirs alone: limits, messages, planted mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from tests.pipeline import features_of_packets, features_of_rows, operators
from tests.pipeline.feature import (
    COPIES,
    FULL,
    LAYER,
    PARTS_BY_COPIES,
    SMALL_TILE,
    SMS,
    STORES,
    Feature,
    Real,
    Unpinned,
)
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS, MLP
from tilelink.bench.operators import ag_linear, linear_ar, linear_mlp, linear_rs
from tilelink.ir.schedule import Schedule


def of(mechanism: str) -> dict[str, Feature]:
    """The rows of one mechanism, by what follows its name."""
    begin = f"{mechanism}: "
    return {name.removeprefix(begin): row for name, row in FEATURES.items() if name.startswith(begin)}


@cache
def planned(name: str, ranks: int = 0, dtype: str = "") -> Schedule:
    """The schedule of a row."""
    return FEATURES[name].plan(ranks, dtype)


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
_PIECES = Unpinned(FULL, steps=("@m_segment by descriptor, paced",))


def _turns() -> Iterator[tuple[str, Feature]]:
    copied = _TURNS.but({**PARTS_BY_COPIES, **_ADDED}, never=_NO_PIECES)
    yield "sums, copies", copied.but(ranks=(2, 4), quick=True)
    yield "sums, copies, ragged", copied.but(sizes=TURNS_RAGGED)
    yield "sums, copies to here", copied.but({"transfer": "pull"})
    yield "sums in a kernel of their own", copied.but({"out.sum": "kernel"}, more=("out_tiles on ",))
    yield "parts by stores", _TURNS.but({**STORES, **_ADDED}, more=(_PART_IN_PIECES,), unpinned=(_PIECES,))
    yield "sums by stores", _TURNS_ALL.but({"algorithm": "in-place"}, more=_BOTH, unpinned=(_PIECES,))
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
    yield "tiles feed copies", scatter.but({"compute": "triton"}, more=(*tells, _TOLD), **told)
    yield "the library is last", gather.but({"compute": "library"}, **alone)
    yield "the library is first", scatter.but({"compute": "library"}, more=(*tells, _TOLD), **told)
    by_chunks = {"compute": "triton", "nest": "chunk by chunk"}
    yield "streams cannot wait for words", gather.but(by_chunks, topology="laptop-mesh", **alone)
    no_atomics = {**alone, "more": (r"finish on a copy engine:\n +one tile:  # this rank has finished the call",)}
    yield "links without atomics", gather.but({"compute": "triton"}, topology="l20-pcie", **no_atomics)
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


# ---- tile loops


def _halves() -> Iterator[tuple[str, Feature]]:
    """Tiles of the last round, on 8 SMs."""
    tile = {"algorithm": "direct", "compute": "triton", "tile": "16x32x16/4w2s", "tail": "halves"}
    base = Feature(AG_GEMM, {"K": 64}, tile, scaled={"M": 16, "N": 160}, ranks=(2,))
    base = base.but(
        more=(r"tiles?.*# groups of", r"(\d+ tiles|one tile).*:  # the last tiles, in halves\n", "half = tile % 2")
    )
    pushed, pulled = {**COPIES, "transfer": "push"}, {"mover": "Fused()", "transfer": "pull", "prefetch": "no"}
    wide = {"tile": "16x64x16/4w2s"}
    left = Unpinned(  # 448 tiles of 128 x 128 for 132 SMs: three rounds, and 52 tiles
        {"M": 1024, "K": 8192, "N": 28672}, instead={"tail": "whole"}, ratio=0.97, steps=("104 tiles.*in halves",)
    )
    yield "behind whole tiles", base.but(pushed, quick=True, unpinned=(left,))
    yield "beside programs that communicate", base.but({**SMS, "transfer": "push"}, scaled={"M": 16, "N": 128})
    yield "through pointers", base.but(pulled)
    yield "ragged", base.but(pushed, scaled={"M": 16, "N": 136})
    yield "a half that is empty", base.but({**pushed, **wide}, scaled={"M": 16, "N": 264})
    yield "an empty half, through pointers", base.but({**pulled, **wide}, scaled={"M": 16, "N": 288})
    pins = {"algorithm": "direct", "compute": "triton", "hidden.tile": "16x32x16/4w2s", "hidden.tail": "halves"}
    second: dict[str, Any] = {"operator": MLP, "pins": pins, "scaled": {}, "source": (r"hidden_desc_16x16\.store\(",)}
    for columns, what in ((160, "of two matmuls in a row"), (272, "of two matmuls in a row, a half that is empty")):
        yield what, replace(base, sizes={"M": 64, "H": 64, "F": 2 * columns}, **second)


def _split_k() -> Iterator[tuple[str, Feature]]:
    """Tiles of the last round, whose reductions several programs share, on 8 SMs."""
    tile = {"algorithm": "direct", "compute": "triton", "tile": "16x16x16/4w2s", "tail": "split-k"}
    steps = (
        r"# the last tiles, each by several programs along k\n",
        r"k_share = tile % \d",
        r"store \w+_share -> \w+_sums\[last_tile, k_share, ",
    )
    told = r"notify \w+_summed\[last_tile\] \+= 1"
    of = Feature(AG_GEMM, {"K": 72}, tile, scaled={"M": 16, "N": 160}, ranks=(2,), steps=steps)
    base = of.but(more=(told,))
    pushed, pulled = {**COPIES, "transfer": "push"}, {"mover": "Fused()", "transfer": "pull", "prefetch": "no"}
    slices = of.but(more=(told, r"more = out_sums\[last_tile, other \+ 1, 0 : \+16, k_share \* 32 : \+32\]"))
    yield "behind whole tiles", base.but(pushed, quick=True)
    yield "beside programs that communicate", base.but({**SMS, "transfer": "push"})
    yield "through pointers", base.but(pulled, scaled={"M": 20, "N": 76})
    yield "ragged", base.but(pushed, scaled={"M": 16, "N": 152})
    ragged: dict[str, Any] = {"operator": operators.behind_a_matmul, "scaled": {"M": 80, "N": 132}}
    yield "with others behind the product", base.but({**pushed, "tile": "16x128x16/4w2s"}, **ragged)
    yield "added in slices", slices.but({**pushed, "tile": "16x128x16/4w2s"}, scaled={"M": 80, "N": 128})
    scattered: dict[str, Any] = {"operator": GEMM_RS, "scaled": {"M": 32, "K": 64}, "sizes": {"N": 80}}
    counted = of.but(
        {**COPIES, "sum": "kernel"}, **scattered, more=(told, r"if k_share == \d:", r"notify \w+_parts_count\[")
    )
    yield "of tiles that are counted", counted
    yield "of tiles that are counted late", counted.but({"count": "late", "chunks": "2"})
    yield "of tiles that leave by themselves", base.but({**STORES, "sum": "kernel"}, **scattered)
    yield "weights as [n, k]", base.but(pushed, operator=ag_linear)
    pins = {"algorithm": "direct", "compute": "triton", "y.tile": "16x16x16/4w2s", "y.tail": "split-k"}
    yield "of the second matmul", replace(base, operator=MLP, sizes={"M": 64, "H": 80, "F": 128}, scaled={}, pins=pins)


def _late_counts() -> Iterator[tuple[str, Feature]]:
    """Tiles that are counted when the next one is computed, on 8 SMs."""
    late = {"compute": "triton", "tile": "16x16x16/4w2s", "count": "late", "chunks": "2", "transfer": "push"}
    base = Feature(GEMM_RS, {"M": 128, "K": 64, "N": 48}, {**late, "algorithm": "direct"}, ranks=(2,))
    base = base.but(more=("tiles, prefetched, counted behind the next one", r"notify y_parts_count\["))
    one_group = {"y.tile": "128x256x64/8w3s"}  # of two, one counts while the other one multiplies
    pays = Unpinned(FULL, {"y.count": "late"}, pins=one_group, instead={"count": "at once"})
    yield "more tiles than programs", base.but(COPIES, quick=True, unpinned=(pays,))
    yield "fewer tiles than programs", base.but(COPIES, sizes={"M": 64, "K": 32, "N": 16})
    yield "programs that send", base.but(SMS)
    yield "a sum behind", base.but({**COPIES, "sum": "kernel"})
    yield "all_reduce", base.but({"algorithm": "two-shot", **COPIES, "sum": "kernel"}, operator=GEMM_AR)


def _shared_loops() -> Iterator[tuple[str, Feature]]:
    """Matmuls that share the tiles of their left operand in one loop over k."""
    both = (r"(\w+) = dot\((left, right|right, left), \1\)\n", r"(\w+) = dot\((left, right1|right1, left), \1\)\n")
    pins = {"algorithm": "direct", "loop": "shared"}
    base = Feature(operators.gated, {"M": 64, "K": 32, "N": 64}, pins, steps=both, never=("left1",))
    shared = Unpinned(  # what was fastest for each MLP of the tables (`candidates_mlp_loops_2xh200.json`)
        {"M": 8192, "H": 4096, "F": 14336},
        {"up.loop": "shared"},
        pins={"algorithm": "direct", "compute": "triton", **COPIES, "transfer": "push"},
    )
    yield "gated", base.but(quick=True)
    yield "descriptors", base.but(sizes={"M": 64, "K": 64, "N": 128}, topology="h200-nvswitch")
    yield "ragged", base.but(sizes={"M": 44, "K": 33, "N": 52}, topology="h200-nvswitch")
    yield "three", base.but(operator=operators.three, more=(r"(\w+) = dot\((left, right2|right2, left), \1\)\n",))
    yield "parts along k", base.but(operator=operators.along_k, sizes={"M": 32, "K": 128, "N": 64})
    yield "MLP", base.but(operator=MLP, sizes={"M": 44, "H": 33, "F": 52}, unpinned=(shared,))


def _one_launch() -> Iterator[tuple[str, Feature]]:
    """Matmuls whose results stay apart, in one launch: programs go on with the tiles of the next one."""
    sizes = {"M": 128, "K": 64, "Q": 128 * 4, "V": 32 * 4}
    pins = {"compute": "triton", "tile": "32x32x32/4w2s", "tail": "whole"}
    tiles = (r"_tiles on \d+ programs", *(r"\d+ tiles from \d+ on",) * 2)
    base = Feature(operators.qkv, sizes, pins | {"protocol": "simple"}, steps=tiles)
    planned = Unpinned(
        {"M": 4096, "K": 8192, "Q": 8192, "V": 1024}, pins={"compute": "triton"}, steps=tiles, quick=True
    )
    yield "copies", base.but(COPIES, unpinned=(planned,), quick=True)
    early = (tiles[0], *(f"{tile}, prefetched" for tile in tiles[1:]))
    yield "copies, prefetched", replace(base.but(COPIES, topology="h200-nvswitch"), steps=early)
    yield "ragged", base.but(COPIES, sizes={"M": 44, "K": 40, "Q": 52 * 4, "V": 20 * 4}, ranks=(4, 2))
    yield "pulled by tiles", base.but({"mover": "Fused()", "transfer": "pull"})
    yield "packets of its own kernel", base.but({"protocol": "lamport", "x_full.mover": "OwnKernel()"})
    few = {"M": 64, "K": 64, "Q": 64 * 4, "V": 32 * 4}  # the first loop has fewer tiles than all have programs
    packets = {"protocol": "lamport", "x_full.mover": "Fused()"}
    yield "packets of its tiles", base.but(packets, sizes=few, topology="h200-nvswitch")
    apart = {"M": 96, "K": 64, "N": 64 * 4, "V": 64}
    yield "nothing in common", Feature(operators.side_by_side, apart, pins, steps=tiles[:2])


def _transposed() -> Iterator[tuple[str, Feature]]:
    """Weights that lie as [N, K]: `x @ w.T`."""
    plain, ragged = {"M": 64, "N": 128, "K": 128}, {"M": 20, "K": 72, "N": 100}
    base = Feature(ag_linear, plain, {}, steps=(r"right = w\w*\[n : .*, k : |matmul_transposed\(",), calls=2)
    library, triton = {"compute": "library"}, {"compute": "triton"}
    scatter, reduce = base.but(operator=linear_rs), base.but(operator=linear_ar)
    mlp = base.but(operator=linear_mlp, sizes={"M": 64, "H": 64, "F": 128})
    yield "gather, copies", base.but({**COPIES, **triton}, quick=True)
    yield "gather, SMs", base.but({**SMS, **triton})
    yield "gather, packets, library", base.but({"algorithm": "ll", **library})
    yield "gather, library in pieces", base.but({**COPIES, **library})
    yield "scatter, fused", scatter.but({**STORES, **triton})
    yield "scatter, library in pieces", scatter.but({**COPIES, **library})
    yield "scatter, packets of tiles", scatter.but({"algorithm": "ll-tiles", "tile": "16x32x32/4w2s"})
    yield "reduce", reduce.but({"algorithm": "two-shot"})
    yield "a shared loop", mlp.but({"up.loop": "shared"})
    yield "packets of tiles, ragged", reduce.but({"algorithm": "ll-tiles", **triton}, sizes=ragged)
    yield "a loop each", mlp.but({"up.loop": "own"})


def _turned() -> Iterator[tuple[str, Feature]]:
    """Tiles of fewer than 64 rows, whose products Hopper's tensor cores compute turned: columns as rows."""
    turned = {"compute": "triton", "tile": "16x64x32/4w2s"}
    base = Feature(AG_GEMM, {"M": 32, "K": 64, "N": 256}, turned, ranks=(2,), topology="h200-nvswitch", calls=2)
    base = base.but(more=(r"left = trans\(left\)", r" = dot\(right\d?, left"))
    base = base.but(source=(r"= tl\.trans\(left\w*\)\n", r"tl\.dot\(right\w*, left"), ptx=("wgmma",))
    packets = {"algorithm": "ll-tiles"}
    yield "in one piece", base.but({"algorithm": "ll"}, quick=True)
    yield "part by part, prefetching", base.but(COPIES, sizes={"M": 64, "K": 64, "N": 256})
    yield "before packets", base.but(packets, operator=GEMM_RS, sizes={"M": 32, "K": 128, "N": 128})
    yield "ragged", base.but(packets, operator=GEMM_AR, sizes={"M": 20, "K": 72, "N": 100})
    two = {"algorithm": "ll", "up.loop": "shared"}
    yield "two in one loop", base.but(two, operator=MLP, sizes={"M": 32, "H": 64, "F": 128}, ptx=())


# ---- how bytes move


def _streams() -> Iterator[tuple[str, Feature]]:
    """A stream of copies for each peer."""
    base = Feature(GEMM_RS, {"M": 64, "K": 64, "N": 64}, {**COPIES, "streams": "peer", "chunks": "2"}, calls=4)
    base = base.but(more=("on copy engines, 3 streams:",), never=(r"copy_\w+(?<!_begin) on a copy engine",))
    triton = {"compute": "triton"}
    pins = {"algorithm": "in-place", "outputs": "reused", **COPIES, "chunks": "8", "streams": "peer"}
    hidden = Unpinned(FULL, pins=pins, instead={"streams": "one"}, ratio=0.97)  # what a stream needs to start a copy
    yield "tiles feed copies", base.but(triton)
    yield "copies feed tiles", base.but(triton, operator=AG_GEMM, quick=True)
    yield "rank by rank", base.but({**triton, "nest": "rank by rank"})
    yield "pulls", base.but({"transfer": "pull"})
    yield "the library in pieces", base.but({"compute": "library"})
    both = {"algorithm": "in-place", "outputs": "reused", **triton}
    yield "both halves of an all_reduce", base.but(both, operator=GEMM_AR, unpinned=(hidden,))
    mlp: dict[str, Any] = {"operator": MLP, "sizes": {"M": 64, "H": 64, "F": 64}}
    yield "two exchanges", base.but({"algorithm": "direct", **triton}, **mlp)


def _queues() -> Iterator[tuple[str, Feature]]:
    """Queues among other operations."""
    slots = (r"wait \w+_queue_free\[slot\]", r"notify \w+_queue_arrived\[slot\]@", r"wait \w+_queue_arrived\[slot\]")
    sizes = {"B": 3 * 9, "C": 20, "N": 24}
    base = Feature(operators.in_a_pipeline, sizes, {"slots": "2"}, ranks=(3,), dtypes=("fp32",), steps=slots)
    yield "in a pipeline", base.but(quick=True)
    yield "behind the library, before pulls", base.but({"y.compute": "library", "out_whole.transfer": "pull"})
    side_by_side: dict[str, Any] = {"operator": operators.columns_and_rows, "sizes": {"B": 7, "C": 3 * 8}}
    yield "columns and rows", base.but({"slots": "3"}, **side_by_side)
    made = replace(base, operator=operators.summed, sizes={"B": 3 * 8, "C": 12}, pins={})
    yield "of sums", made
    yield "of sums by the library", made.but({"x_sum.algorithm": "library"})


FEATURES: dict[str, Feature] = {
    f"{mechanism}: {form}": row
    for mechanism, rows in {
        "turns": _turns,
        "in place": _in_place,
        "pool": _pool,
        "joined": _joined,
        "call ends": _call_ends,
        "packets": features_of_packets.packets,
        "packets of tiles": features_of_packets.packets_of_tiles,
        "gather first": features_of_packets.gather_first,
        "halves": _halves,
        "split k": _split_k,
        "inwards": features_of_rows.inwards,
        "tiles of several ranks": features_of_rows.across_parts,
        "late counts": _late_counts,
        "shared loops": _shared_loops,
        "one launch": _one_launch,
        "transposed": _transposed,
        "turned": _turned,
        "streams": _streams,
        "queues": _queues,
    }.items()
    for form, row in rows()
}
