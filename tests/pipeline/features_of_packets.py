"""Rows of the table of features whose packets say themselves that they have arrived."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.pipeline import operators
from tests.pipeline.feature import Feature, Sizes, Unpinned
from tests.pipeline.operators import AG_GEMM, GEMM_AR, GEMM_RS, MLP, USER_OP
from tilelink.declaration import Overlap

_SENT = r"_packets\[2, \d, .*\] {dtype}, {protocol}\n"


def _protocol(algorithm: str, dtype: str = "bf16") -> str:
    return _SENT.format(dtype=dtype, protocol="ll" if algorithm.startswith("ll") else "lamport")


def packets() -> Iterator[tuple[str, Feature]]:
    """A launch of their own sends and awaits them; each set of packets is used more than once."""
    blocks = ("one tile:  # (blocks|summands) to the peers|tiles:  # (blocks|summands) to the peers",)
    base = Feature(AG_GEMM, {"M": 32, "K": 64, "N": 64}, {}, calls=5)

    def row(operator: Overlap, algorithm: str, sizes: Sizes | None = None, **fields: Any) -> Feature:
        steps = (_protocol(algorithm), *blocks, *fields.pop("more", ()))
        return replace(
            base, operator=operator, pins={"algorithm": algorithm}, sizes=sizes or base.sizes, steps=steps, **fields
        )

    few = tuple(
        Unpinned({"M": rows, "K": 4096, "N": 14336}, {"x_full.algorithm": found}, ranks=2, quick=rows == 64)
        for rows, found in ((16, "lamport"), (64, "lamport"), (2048, "direct"))
    )  # as measured on 2 x H200 with packets of LL (`sweep_2xh200.json`), of which there are twice as many
    layer, two_shot = {"M": 128, "K": 14336, "N": 4096}, {"algorithm": "lamport-two-shot"}
    fewer = (  # half the packets, and half of these with three peers
        Unpinned(layer, pins={"algorithm": "lamport"}, instead={"algorithm": "ll"}),
        Unpinned(layer, pins=two_shot, instead={"algorithm": "lamport"}),
    )
    ragged = {"M": 44, "K": 34, "N": 52}
    yield "gather", row(AG_GEMM, "ll", quick=True)
    yield "gather, all data", row(AG_GEMM, "lamport", unpinned=few)
    shots = ("sums of the own part, to the peers", "sums of the peers")
    in_two: dict[str, Any] = {"more": shots, "unpinned": fewer, "quick": True}
    yield "in two shots", row(GEMM_AR, "lamport-two-shot", {"M": 5, "K": 64, "N": 64}, **in_two)
    yield "gather, ragged", row(AG_GEMM, "ll", ragged)
    yield "gather, all data, ragged", row(AG_GEMM, "lamport", {**ragged, "K": 68})
    yield "several programs an SM", row(AG_GEMM, "ll", {"M": 256, "K": 256, "N": 16})
    yield "scatter", row(GEMM_RS, "ll", {"M": 32, "K": 64, "N": 66})
    yield "scatter, all data", row(GEMM_RS, "lamport", {"M": 32, "K": 64, "N": 68})
    yield "reduce", row(GEMM_AR, "ll", {"M": 5, "K": 64, "N": 66})
    yield "reduce, all data", row(GEMM_AR, "lamport", {"M": 6, "K": 64, "N": 66})
    yield "a whole MLP of few rows", row(MLP, "ll", {"M": 44, "H": 34, "F": 52}, more=("_packets", *blocks), calls=3)
    for name, operator in (("gather", AG_GEMM), ("scatter", GEMM_RS), ("reduce", GEMM_AR)):
        for algorithm in ("ll", "lamport"):
            other = row(operator, algorithm, {"M": 16, "K": 32, "N": 64}, dtypes=("fp16", "fp32"), calls=3)
            other = replace(other, steps=(_protocol(algorithm, "fp16"), *blocks))
            yield f"other types, {name}, {algorithm}", other


def packets_of_tiles() -> Iterator[tuple[str, Feature]]:
    """Tiles send packets, and add those of the peers."""
    base = Feature(GEMM_RS, {"M": 32, "K": 64, "N": 64}, {}, never=("to the peers", "_arrived"))

    def row(algorithm: str, operator: Overlap = GEMM_RS, sizes: Sizes | None = None, **fields: Any) -> Feature:
        sends = (
            _protocol(algorithm, fields.get("dtypes", ("bf16",))[0]),
            r"store \w+ -> \w+_packets\[call % 2, rank",
        )
        adds = ("out_share = add(out_share, out_packets_tile)", "out_sums") if "two-shot" in algorithm else ()
        adds = adds or (r"\w+_packets_tile = in_\w+\(", " = add(")
        pins = {"algorithm": algorithm}
        steps = (*sends, *(text.replace("add(", r"add\(").replace("tile)", r"tile\)") for text in adds))
        return replace(base, operator=operator, pins=pins, sizes=sizes or base.sizes, steps=steps, **fields)

    ll, lamport, shots = "ll-tiles", "lamport-tiles", "lamport-tiles-two-shot"
    few = tuple(
        Unpinned({"M": rows, "K": 14336, "N": 4096}, {"out.algorithm": found}, ranks=2, quick=rows == 64)
        for rows, found in ((16, lamport), (64, lamport), (2048, "direct"))
    )  # as measured on 2 x H200 with packets of LL (`candidates_ll_tiles_2xh200.json`), of which there are twice as many
    half = tuple(  # packets of half data where there are no others
        Unpinned({"M": 1, "K": 1024, "N": n}, {"out.algorithm": found}, ranks=2)
        for n, found in ((4098, ll), (4100, lamport))
    )
    ragged, columns, several = {"M": 20, "K": 48, "N": 72}, {"M": 24, "K": 64, "N": 128}, {"M": 64, "K": 32, "N": 256}
    yield "scatter rows", row(ll, quick=True)
    yield "all data, a tile for several ranks, ragged", row(lamport, sizes=ragged, unpinned=few)
    yield "a tile for several ranks, ragged", row(ll, sizes=ragged)
    yield "tiles of one rank each", row(ll, sizes={"M": 128, "K": 64, "N": 32})
    yield "all data, scatter columns", row(lamport, operators.scatter_columns, columns)
    yield "scatter columns", row(ll, operators.scatter_columns, columns)
    yield "reduce", row(ll, GEMM_AR, {"M": 5, "K": 64, "N": 66}, unpinned=half)
    yield "several tiles a program", row(ll, GEMM_AR, several)
    yield "all data, several tiles a program", row(lamport, GEMM_AR, several)
    yield "two shots", row(shots, GEMM_AR, {"M": 20, "K": 64, "N": 132}, quick=True)
    yield "two shots, several tiles a program", row(shots, GEMM_AR, several)
    scaled = {"M": 16, "K": 64, "N": 64}
    yield "behind an epilogue", row(ll, operators.reduce_scaled, scaled)
    mlp = row(ll, MLP, {"M": 48, "H": 64, "F": 64}, never=())
    yield "an MLP whose last tiles send packets", replace(mlp, pins={"x_full.algorithm": "ll", "out.algorithm": ll})
    for name, operator in (("scatter", GEMM_RS), ("reduce", GEMM_AR), ("columns", operators.scatter_columns)):
        for algorithm in (ll, lamport):
            sizes = {"M": 16, "K": 32, "N": 64}
            yield f"other types, {name}, {algorithm}", row(algorithm, operator, sizes, dtypes=("fp16", "fp32"))


def gather_first() -> Iterator[tuple[str, Feature]]:
    """Programs gather by packets before their tiles, which all of them await."""
    awaited = r"_tiles on (a program|(\d+) programs) of[\s\S]+?notify x_full_gathered\[0\] \+= 1\n +wait x_full_gathered\[0\] >= "
    awaited += r"(call \* \2|(?<!programs)call) for x_full"
    steps = ("signal x_full_gathered", awaited, "dot|squared_relu")
    base = Feature(AG_GEMM, {"M": 32, "K": 64, "N": 256}, {"algorithm": "lamport-tiles"}, steps=steps, calls=4)
    mlp = base.but(operator=MLP, sizes={"M": 48, "H": 64, "F": 64})
    yield "all data", base.but(quick=True)
    yield "numbered", base.but({"algorithm": "ll-tiles"})
    yield "ragged", base.but(sizes={"M": 44, "K": 68, "N": 52})
    yield "several blocks a program", base.but(sizes={"M": 256, "K": 256, "N": 256})
    yield "a block a program", base.but(sizes={"M": 32, "K": 256, "N": 256})
    yield "before gate and up", mlp
    yield "behind a wait for peers", mlp.but({"algorithm": "ll-tiles", "out.algorithm": "direct"})
    yield "before a user's tiles", base.but(operator=USER_OP, sizes={"M": 32, "K": 64, "N": 64})
