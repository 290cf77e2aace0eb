"""Plain specs x sizes of models x machines: what a user may ask for without a pin, and always gets."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tilelink
import topologies
from tilelink import Overlap, Shard, Tensor, all_gather, all_reduce, dims, matmul, overlap, reduce_scatter
from tilelink.spec_file import load_overlap
from topologies.topology import Topology

M, N, K, H = dims("M N K H")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@overlap
def ag_gemm(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return matmul(all_gather(x, dim=0), w)


@overlap
def gemm_rs(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    return reduce_scatter(matmul(x, w), dim=0)


@overlap
def gemm_ar(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    return all_reduce(matmul(x, w))


@overlap
def columns(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    return reduce_scatter(matmul(x, w), dim=1)


@overlap
def gathered_weights(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(0)]) -> Tensor:
    """Each rank has rows of x and of w, and needs all of w (FSDP)."""
    return matmul(x, all_gather(w, dim=0))


@overlap
def gathered_columns(x: Annotated[Tensor, (M, K), Shard(0)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return matmul(x, all_gather(w, dim=1))


@overlap
def gathered_along_k(x: Annotated[Tensor, (M, K), Shard(1)], w: Annotated[Tensor, (K, N), Shard(1)]) -> Tensor:
    return matmul(all_gather(x, dim=1), w)


@overlap
def logits(x: Annotated[Tensor, (M, K)], w: Annotated[Tensor, (N, K), Shard(0)]) -> Tensor:
    """The head of a model, whose vocabulary is spread over the ranks."""
    return all_gather(matmul(x, w.T), dim=1)


@overlap
def chain(
    x: Annotated[Tensor, (M, K), Shard(1)],
    w: Annotated[Tensor, (K, H), Shard(0)],
    w2: Annotated[Tensor, (H, N), Shard(1)],
) -> Tensor:
    """Output projection, then up projection, of sequence-parallel layers."""
    return matmul(all_gather(reduce_scatter(matmul(x, w), dim=0), dim=0), w2)


@overlap
def mlp(
    x: Annotated[Tensor, (M, H), Shard(0)],
    gate: Annotated[Tensor, (H, N), Shard(1)],
    up: Annotated[Tensor, (H, N), Shard(1)],
    down: Annotated[Tensor, (N, H), Shard(0)],
) -> Tensor:
    x_full = all_gather(x, dim=0)
    return reduce_scatter(matmul(tilelink.silu(matmul(x_full, gate)) * matmul(x_full, up), down), dim=0)


@overlap
def head(
    x: Annotated[Tensor, (M, K), Shard(1)],
    w: Annotated[Tensor, (K, H), Shard(0)],
    v: Annotated[Tensor, (H, N), Shard(1)],
) -> Tensor:
    return all_gather(matmul(all_reduce(matmul(x, w)), v), dim=1)


@overlap
def gather(x: Annotated[Tensor, (M, N), Shard(0)]) -> Tensor:
    return all_gather(x, dim=0)


SPECS: tuple[Overlap, ...] = (
    ag_gemm,
    gemm_rs,
    gemm_ar,
    columns,
    gathered_weights,
    gathered_columns,
    gathered_along_k,
    logits,
    chain,
    mlp,
    head,
    gather,
)
SHAPES: tuple[dict[str, int], ...] = (
    {"M": 8192, "K": 4096, "N": 14336, "H": 4096},
    {"M": 4096, "K": 14336, "N": 8192, "H": 4096},
    {"M": 2048, "K": 8192, "N": 28672, "H": 8192},
    {"M": 1024, "K": 3072, "N": 2048, "H": 3072},
    {"M": 512, "K": 4096, "N": 28672, "H": 4096},
    {"M": 4096, "K": 4096, "N": 4096, "H": 4096},  # sizes that no value tells apart
    {"M": 64, "K": 8192, "N": 8192, "H": 2048},
    {"M": 8 * 129, "K": 8 * 69, "N": 8 * 101, "H": 8 * 75},
)
MACHINES: tuple[tuple[str, int], ...] = (
    ("h200-nvswitch", 4),
    ("h100-nvswitch", 2),
    ("h200-nvswitch", 8),
    ("a100-nvswitch", 2),
    ("mi300x-full-mesh", 4),
    ("l20-pcie", 2),
    ("laptop-mesh", 4),
)


@dataclass(frozen=True)
class Cell:
    spec: Overlap
    sizes: dict[str, int]
    topology: Topology

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"{self.spec.name} {sizes} on {self.topology.name} x{self.topology.num_ranks}"


_MODELS: tuple[dict[str, int], ...] = (
    {"H": 2048, "F": 768, "E": 128, "K": 8},
    {"H": 4096, "F": 14336, "E": 8, "K": 2},
    {"H": 200, "F": 88, "E": 16, "K": 3},
)
# layers of experts: few of many rows, many of few
EXPERTS: tuple[Cell, ...] = tuple(
    Cell(
        load_overlap(str(EXAMPLES / "09_ep_layer.py") + ":ep_layer"), {"T": tokens, **model}, topologies.load(*machine)
    )
    for tokens in (16, 256, 2048)
    for model in _MODELS
    for machine in (("h100-nvswitch", 2), ("h200-nvswitch", 8), ("a100-nvswitch", 4), ("laptop-mesh", 4))
)


def cells() -> list[Cell]:
    """The whole grid."""
    return [
        Cell(spec, {name: shape[name] for name in spec.spec.symbols()}, topologies.load(name, ranks))
        for spec in SPECS
        for shape in SHAPES
        for name, ranks in MACHINES
    ]


def sampled_cells(count: int, seed: int) -> list[Cell]:
    return random.Random(seed).sample(cells(), count)
