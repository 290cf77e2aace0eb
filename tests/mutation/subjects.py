"""Schedules to mutate: between them they have every kind of launch, step, mover and transfer."""

from __future__ import annotations

from functools import cache

import topologies
from tests.pipeline.workloads import load
from tilelink.ir.schedule import Schedule

_TILE = {"compute": "triton", "tile": "64x64x64/4w4s"}
_DIRECT = {"algorithm": "direct", "chunks": "2"}

# example, topology, sizes on two ranks, pins
_SUBJECTS: dict[str, tuple[str, str, dict[str, int], dict[str, str]]] = {
    "gather, copy engine push": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {**_DIRECT, **_TILE, "mover": "CopyEngine()", "transfer": "push", "nest": "chunk by chunk"},
    ),
    "gather, copy engine pull": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {**_DIRECT, **_TILE, "mover": "CopyEngine()", "transfer": "pull"},
    ),
    "gather, SMs pull": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {**_DIRECT, **_TILE, "mover": "CommSms(2)", "transfer": "pull"},
    ),
    "gather, fused pull, ragged": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-switch",
        {"M": 100, "K": 72, "N": 92},
        {**_DIRECT, **_TILE, "mover": "Fused()", "transfer": "pull"},
    ),
    "gather, SMs push, halves": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-switch",
        {"M": 128, "K": 64, "N": 512},
        {**_DIRECT, **_TILE, "mover": "CommSms(2)", "transfer": "push", "tail": "halves"},
    ),
    "scatter, copies, split along k": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 64, "K": 128, "N": 80},
        {
            **_DIRECT,
            "compute": "triton",
            "tile": "16x16x16/4w2s",
            "mover": "CopyEngine()",
            "sum": "kernel",
            "tail": "split-k",
        },
    ),
    "gather, library matmul": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {**_DIRECT, "mover": "CopyEngine()", "transfer": "push", "compute": "library"},
    ),
    "gather, no atomics": (
        "02_ag_gemm.py:ag_gemm",
        "l20-pcie",
        {"M": 128, "K": 128, "N": 128},
        {"algorithm": "direct"},
    ),
    "scatter, SMs push, epilogue": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 256, "K": 128, "N": 256},
        {**_DIRECT, **_TILE, "mover": "CommSms(2)", "transfer": "push", "sum": "epilogue"},
    ),
    "scatter, copies, turns": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 512, "K": 64, "N": 128},
        {**_DIRECT, "tile": "64x64x16/4w2s2g", "compute": "triton", "mover": "CopyEngine()", "sum": "epilogue"},
    ),
    "scatter, pieces": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 256, "K": 64, "N": 128},
        {**_DIRECT, "tile": "64x64x16/4w2s2g", "mover": "Fused()", "transfer": "push", "sum": "epilogue"},
    ),
    "scatter, fused push": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {**_DIRECT, **_TILE, "mover": "Fused()", "transfer": "push", "sum": "kernel"},
    ),
    "scatter, fused pull": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {**_DIRECT, **_TILE, "mover": "Fused()", "transfer": "pull", "sum": "kernel"},
    ),
    "scatter, library matmul": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {**_DIRECT, "mover": "CopyEngine()", "transfer": "push", "compute": "library"},
    ),
    "all-reduce, library": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {"algorithm": "library"},
    ),
    "all-reduce, LL": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {"algorithm": "ll", **_TILE},
    ),
    "all-reduce, LL by tiles": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 64, "K": 64, "N": 128},
        {"algorithm": "ll-tiles", **_TILE},
    ),
    "scatter, LL by tiles": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 64, "K": 64, "N": 128},
        {"algorithm": "ll-tiles", **_TILE},
    ),
    "all-reduce, Lamport in two shots": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 64, "K": 64, "N": 128},
        {"algorithm": "lamport-two-shot", **_TILE},
    ),
    "scatter, Lamport by tiles": (
        "03_gemm_rs.py:gemm_rs",
        "laptop-switch",
        {"M": 64, "K": 64, "N": 128},
        {"algorithm": "lamport-tiles", **_TILE},
    ),
    "gather, LL": (
        "02_ag_gemm.py:ag_gemm",
        "laptop-switch",
        {"M": 64, "K": 64, "N": 128},
        {"algorithm": "ll", **_TILE},
    ),
    "MLP in one loop": (
        "05_mlp.py:mlp",
        "laptop-switch",
        {"M": 128, "H": 128, "F": 128},
        {"algorithm": "direct", **_TILE, "mover": "CopyEngine()", "up.loop": "shared"},
    ),
    "all-reduce, SMs": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {"algorithm": "two-shot", **_TILE, "mover": "CommSms(2)", "transfer": "push"},
    ),
    "all-reduce, joined": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {
            "algorithm": "two-shot",
            **_TILE,
            "mover": "Fused()",
            "transfer": "push",
            "sum": "epilogue",
            "out.tile": "64x128x0/4w1s",
        },
    ),
    "all-reduce, in place": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {"algorithm": "in-place", **_TILE, "mover": "Fused()", "transfer": "push", "sum": "epilogue"},
    ),
    "all-reduce, in a pool": (
        "04_gemm_ar.py:gemm_ar",
        "laptop-switch",
        {"M": 128, "K": 128, "N": 128},
        {"algorithm": "pooled", **_TILE, "mover": "Fused()", "transfer": "push", "sum": "epilogue"},
    ),
    "MLP": (
        "05_mlp.py:mlp",
        "laptop-switch",
        {"M": 128, "H": 128, "F": 128},
        {"algorithm": "direct", **_TILE, "mover": "CopyEngine()"},
    ),
    "fused weight": (
        "../tests/mutation/fused_weight.py:gated",
        "laptop-switch",
        {"M": 64, "K": 64, "F": 64},
        {"algorithm": "direct", **_TILE, "mover": "CopyEngine()", "up.loop": "shared"},
    ),
    "queue": (
        "01_queue.py:queue",
        "laptop-switch",
        {"B": 14, "C": 16},
        {"mover": "CommSms(2)", "chunks": "7", "slots": "2", "consumers": "2"},
    ),
    "user op": (
        "06_user_op.py:ag_squared_relu",
        "laptop-switch",
        {"M": 64, "K": 64, "N": 64},
        {"algorithm": "direct", "mover": "CommSms(2)", "transfer": "push"},
    ),
}
SUBJECTS = tuple(_SUBJECTS)


@cache
def subject(label: str, num_ranks: int = 2) -> Schedule:
    name, topology, sizes, pins = _SUBJECTS[label]
    scaled = {symbol: size * num_ranks // 2 for symbol, size in sizes.items()}
    return load(name).plan_for(topologies.load(topology, num_ranks), scaled, "bf16", dict(pins))
