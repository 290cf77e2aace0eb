"""Specs in which tiles wait in every place where they can, each with its definition in torch on whole tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tilelink import Replicate, Shard, Tensor, all_gather, all_reduce, dims, matmul, overlap, reduce_scatter, silu
from tilelink.declaration import Overlap

M, N, K, F = dims("M N K F")


@overlap
def gather_rows(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return matmul(all_gather(x, dim=0), w)


@overlap
def gather_columns(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N)):
    return matmul(all_gather(x, dim=1), w)


@overlap
def gather_weights(x: Tensor(M, K), w: Tensor(K, N, placement=Shard(0))):
    return matmul(x, all_gather(w, dim=0))


@overlap
def gather_twice(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return all_gather(matmul(all_gather(x, dim=0), w), dim=1)


@overlap
def scatter_rows(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return reduce_scatter(matmul(x, w), dim=0)


@overlap
def scatter_columns(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return reduce_scatter(matmul(x, w), dim=1)


@overlap
def reduce(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
    return all_reduce(matmul(x, w))


@overlap
def mlp(
    x: Tensor(M, K, placement=Shard(0)),
    gate: Tensor(K, F, placement=Shard(1)),
    up: Tensor(K, F, placement=Shard(1)),
    down: Tensor(F, N, placement=Shard(0)),
):
    x_full = all_gather(x, dim=0)
    return reduce_scatter(matmul(silu(matmul(x_full, gate)) * matmul(x_full, up), down), dim=0)


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def perceptron(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    return (torch.nn.functional.silu(x @ gate) * (x @ up)) @ down


@dataclass(frozen=True, slots=True)
class Family:
    """A spec, what it means, how its output is cut, the sizes, and pins of which every combination that is legal is run."""

    spec: Overlap
    meaning: Callable[..., torch.Tensor]
    output: Shard | Replicate
    sizes: tuple[dict[str, int], ...]
    pins: dict[str, tuple[str, ...]]


def _deep(*steps: int, m: int = 8192, n: int = 4096, parts: int = 1) -> tuple[dict[str, int], ...]:
    """Sizes whose k is so many steps of 64, in each of `parts` parts."""
    return tuple({"M": m, "K": 64 * step * parts, "N": n} for step in steps)


LOOPS = ("128x256x64/8w3s", "128x128x64/8w3s")
TURNS = "128x128x64/4w5s2g"
MOVERS = ("CopyEngine()", "CommSms(8)", "Fused()")
BOTH = ("yes", "no")
FEW = ({"M": 256, "K": 64, "N": 256}, {"M": 16, "K": 128, "N": 256}, {"M": 256, "K": 1024, "N": 16})
LORA = ({"M": 4096, "K": 16, "N": 4096}, {"M": 4096, "K": 32, "N": 4096}, {"M": 4096, "K": 4096, "N": 32})

# tiles are left for the last round, which several programs share
UNEVEN = tuple({"M": m, "K": k, "N": n} for m, k, n in ((1000, 2048, 5120), (600, 1536, 7168), (2304, 1024, 4608)))
SPLIT = {"compute": ("triton",), "tail": ("split-k",), "tile": ("128x128x64/4w4s", "128x256x64/8w3s", "64x128x64/4w4s")}
FAMILIES = {
    "gather rows": Family(
        gather_rows, product, Shard(1), _deep(1, 2, 3), {"mover": MOVERS, "prefetch": BOTH, "tile": (*LOOPS, TURNS)}
    ),
    "gather rows, few": Family(
        gather_rows, product, Shard(1), (*FEW, *LORA), {"mover": MOVERS, "compute": ("triton",)}
    ),
    "gather columns": Family(
        gather_columns, product, Replicate(), _deep(1, 2, 3, parts=2), {"mover": MOVERS, "tile": LOOPS}
    ),
    "gather weights": Family(
        gather_weights, product, Replicate(), _deep(1, 2, 3, parts=2), {"mover": MOVERS, "tile": LOOPS}
    ),
    "gather twice": Family(
        gather_twice,
        product,
        Replicate(),
        _deep(1, 2),
        {"x_full.mover": MOVERS[:2], "prefetch": BOTH, "tile": LOOPS[1:]},
    ),
    "scatter rows": Family(
        scatter_rows, product, Shard(0), _deep(1, 2, 3, parts=2), {"mover": MOVERS, "tile": (LOOPS[0], TURNS)}
    ),
    "scatter rows, few": Family(
        scatter_rows, product, Shard(0), (*FEW, *LORA), {"mover": MOVERS, "compute": ("triton",)}
    ),
    "scatter columns": Family(scatter_columns, product, Shard(1), _deep(1, 2, parts=2), {"mover": MOVERS}),
    "split along k, gather": Family(gather_rows, product, Shard(1), UNEVEN, {"mover": MOVERS[:3], **SPLIT}),
    "split along k, scatter": Family(
        scatter_rows, product, Shard(0), UNEVEN, {"mover": MOVERS, "sum": ("kernel",), **SPLIT}
    ),
    "reduce": Family(
        reduce,
        product,
        Replicate(),
        _deep(1, 3, parts=2),
        {"algorithm": ("one-shot", "two-shot", "pooled"), "mover": MOVERS, "compute": ("triton",)},
    ),
    "reduce, few": Family(
        reduce, product, Replicate(), FEW, {"algorithm": ("ll", "lamport", "ll-tiles", "lamport-tiles", "two-shot")}
    ),
    "MLP": Family(
        mlp,
        perceptron,
        Shard(0),
        tuple({"M": 4096, "K": k, "F": f, "N": 2048} for k in (64, 128) for f in (128, 2048)),
        {"x_full.mover": MOVERS[:2], "prefetch": BOTH},
    ),
}
