"""Pins that reach each mechanism, at sizes of real layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

Sizes = Mapping[str, int]
Pins = Mapping[str, str]

FULL: dict[str, dict[str, int]] = {
    "ag_gemm": {"M": 8192, "K": 4096, "N": 14336},
    "gemm_rs": {"M": 8192, "K": 14336, "N": 4096},
    "gemm_ar": {"M": 4096, "K": 14336, "N": 4096},
    "mlp": {"M": 8192, "H": 4096, "F": 14336},
}
FEW_ROWS = {name: {**sizes, "M": 64} for name, sizes in FULL.items()}
SMALL = {name: {**sizes, "M": 32} for name, sizes in FULL.items()}

_TRITON = {"compute": "triton"}
_TILE = {"compute": "triton", "tile": "128x128x64/8w3s"}
_TURNS = {"compute": "triton", "tile": "128x128x64/4w5s2g"}
_COPIES = {"mover": "CopyEngine()", "transfer": "push"}
_PULLED = {"mover": "CopyEngine()", "transfer": "pull"}
_SMS = {"mover": "CommSms(16)", "transfer": "push"}
_SMS_PULL = {"mover": "CommSms(16)", "transfer": "pull"}
_STORES = {"mover": "Fused()", "transfer": "push"}
_LOADS = {"mover": "Fused()", "transfer": "pull"}
_DIRECT = {"algorithm": "direct"}

_GATHER: dict[str, dict[str, str]] = {
    "copies push": {**_TILE, **_COPIES},
    "copies pull": {**_TILE, **_PULLED},
    "copies, chunk by chunk": {**_TILE, **_COPIES, "chunks": "4", "nest": "chunk by chunk"},
    "copies, a stream a peer": {**_TILE, **_COPIES, "streams": "peer", "chunks": "2"},
    "SMs push": {**_TILE, **_SMS},
    "SMs pull": {**_TILE, **_SMS_PULL, "chunks": "2"},
    "fused pull": {**_TILE, **_LOADS},
    "turns": {**_TURNS, **_COPIES},
    "library in pieces": {"compute": "library", **_COPIES, "chunks": "2"},
    "library in pieces, pulled": {"compute": "library", **_PULLED},
    "no prefetch, two an SM": {
        "compute": "triton",
        "tile": "128x128x64/4w3s2p",
        "prefetch": "no",
        "group": "4",
        **_COPIES,
    },
}
_SCATTER: dict[str, dict[str, str]] = {
    "copies push": {**_TILE, **_COPIES, "sum": "kernel"},
    "copies push, epilogue": {**_TILE, **_COPIES, "sum": "epilogue"},
    "copies pull": {**_TILE, **_PULLED},
    "copies, chunk by chunk": {**_TILE, **_COPIES, "chunks": "4", "nest": "chunk by chunk", "sum": "epilogue"},
    "copies, a stream a peer": {**_TILE, **_COPIES, "streams": "peer", "chunks": "2"},
    "SMs push": {**_TILE, **_SMS, "sum": "epilogue"},
    "SMs pull": {**_TILE, **_SMS_PULL},
    "fused push": {**_TILE, **_STORES, "sum": "kernel"},
    "fused push, epilogue": {**_TILE, **_STORES, "sum": "epilogue"},
    "fused pull": {**_TILE, **_LOADS},
    "turns, copies": {**_TURNS, **_COPIES, "sum": "epilogue"},
    "turns, pieces": {**_TURNS, **_STORES, "sum": "epilogue"},
    "library in pieces": {"compute": "library", **_COPIES, "chunks": "2"},
    "library, then fused pull": {"compute": "library", **_LOADS},
}
_REDUCE: dict[str, dict[str, str]] = {
    "one shot": {"algorithm": "one-shot", **_TILE, **_COPIES},
    "two shots, SMs": {"algorithm": "two-shot", **_TILE, **_SMS},
    "two shots, copies": {"algorithm": "two-shot", **_TILE, **_COPIES, "sum": "kernel"},
    "two shots, joined": {
        "algorithm": "two-shot",
        **_TRITON,
        **_STORES,
        "sum": "epilogue",
        "y.tile": "128x128x64/8w3s",
        "out.tile": "64x128x0/4w1s",
    },
    "pooled, one kernel": {"algorithm": "pooled", **_TILE, **_STORES, "sum": "epilogue"},
    "pooled, copies in": {
        "algorithm": "pooled",
        **_TILE,
        "y_parts.mover": "CopyEngine()",
        "out.mover": "Fused()",
        "sum": "epilogue",
    },
    "pooled, turns in pieces": {"algorithm": "pooled", **_TURNS, **_STORES, "sum": "epilogue"},
    "pooled, library": {"algorithm": "pooled", "compute": "library", "mover": "Fused()"},
    "in place, one kernel": {"algorithm": "in-place", **_TILE, **_STORES, "sum": "epilogue"},
    "in place, copies": {"algorithm": "in-place", **_TILE, **_COPIES, "sum": "epilogue", "out.chunks": "2"},
    "in place, SMs in, copies out": {
        "algorithm": "in-place",
        **_TILE,
        "y_parts.mover": "CommSms(16)",
        "out.mover": "CopyEngine()",
        "sum": "kernel",
    },
    "library": {"algorithm": "library", "compute": "triton"},
    "library everywhere": {"algorithm": "library", "compute": "library"},
}
_WORDS = {"numbered words": "ll", "words of data": "lamport"}
_WORDS_OF_TILES = {"numbered words of tiles": "ll-tiles", "words of data of tiles": "lamport-tiles"}
_TWO_SHOTS = {"two shots of words": "lamport-two-shot", "two shots of words of tiles": "lamport-tiles-two-shot"}


def _listed() -> Iterator[tuple[str, str, Sizes, Pins, str]]:
    for operator, mechanisms in (("ag_gemm", _GATHER), ("gemm_rs", _SCATTER)):
        for label, pins in mechanisms.items():
            yield operator, label, FULL[operator], {**_DIRECT, **pins}, "h200-nvswitch"
    for label, pins in _REDUCE.items():
        yield "gemm_ar", label, FULL["gemm_ar"], pins, "h200-nvswitch"
    for operator in ("ag_gemm", "gemm_rs", "gemm_ar"):
        shots = _TWO_SHOTS if operator == "gemm_ar" else {}
        for label, algorithm in {**_WORDS, **_WORDS_OF_TILES, **shots}.items():
            yield operator, label, SMALL[operator], {"algorithm": algorithm}, "h200-nvswitch"
    halves = {**_DIRECT, **_TILE, **_COPIES, "tail": "halves"}
    yield "ag_gemm", "halves", {"M": 2048, "K": 4096, "N": 14336}, halves, "h200-nvswitch"
    split = {**_DIRECT, **_COPIES, "compute": "triton", "sum": "kernel", "tile": "128x256x64/8w3s", "tail": "split-k"}
    yield "gemm_rs", "split along k", {"M": 1000, "K": 13824, "N": 5120}, split, "h200-nvswitch"
    late = {**_DIRECT, **_COPIES, "compute": "triton", "tile": "16x16x16/4w2s", "count": "late", "chunks": "2"}
    yield "gemm_rs", "counted late", {"M": 256, "K": 64, "N": 48}, late, "laptop-switch"
    pieces = {**_DIRECT, **_COPIES, "compute": "library", "chunks": "2"}
    yield "gemm_rs", "library, chunk by chunk", FULL["gemm_rs"], pieces, "h200-nvswitch"
    turned = {"algorithm": "ll", "compute": "triton", "tile": "16x64x64/4w3s"}
    yield "ag_gemm", "turned", SMALL["ag_gemm"], turned, "h200-nvswitch"
    yield "mlp", "one loop", FULL["mlp"], {**_DIRECT, **_TRITON, **_COPIES, "loop": "shared"}, "h200-nvswitch"
    yield "mlp", "words first", SMALL["mlp"], {"algorithm": "lamport-tiles", "compute": "triton"}, "h200-nvswitch"
    queue = {"mover": "CommSms(16)", "chunks": "2025", "slots": "32", "consumers": "4"}
    yield "queue", "few slots", {"B": 8100, "C": 128}, queue, "h200-nvswitch"


MECHANISMS = tuple(_listed())
