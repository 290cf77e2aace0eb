"""In a model: an `nn.Module` whose layers share one compiled operator, and the same model under a CUDA graph.

    python examples/10_in_a_model.py                             # on emulated ranks
    torchrun --nproc-per-node 4 examples/10_in_a_model.py gpus   # on GPUs

Weights are arguments of the operator, so that layers of one shape need one operator: its buffers are there once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import tilelink
from tilelink import Shard, Tensor, dims
from tilelink.emulator import World

M, H, F = dims("M H F")
LAYERS = 3


@tilelink.overlap
def mlp(
    x: Tensor(M, H, placement=Shard(0)),
    w_gate: Tensor(F, H, placement=Shard(0)),  # weights lie as torch.nn.Linear holds them, [out, in]
    w_up: Tensor(F, H, placement=Shard(0)),
    w_down: Tensor(H, F, placement=Shard(1)),
):
    """A tensor-parallel MLP with its residual: a rank holds rows of x, and a part of each weight."""
    x_full = tilelink.all_gather(x, dim=0)
    hidden = tilelink.silu(x_full @ w_gate.T) * (x_full @ w_up.T)
    return tilelink.reduce_scatter(hidden @ w_down.T, dim=0) + x


class Mlp(nn.Module):
    """One layer. `op` is shared by all layers; the weights are this rank's parts."""

    def __init__(self, op: Any, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.op: Callable[..., torch.Tensor] = op
        _, *weights = op.INPUTS.values()  # (shape, dtype) of each input of a rank
        self.weights = nn.ParameterList(
            nn.Parameter(0.05 * torch.randn(shape, device=device).to(dtype), requires_grad=False)
            for shape, dtype in weights
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.op(x, *self.weights)


def model(op: Any, device: torch.device | str = "cpu") -> nn.Module:
    return nn.Sequential(*(Mlp(op, device) for _ in range(LAYERS)))


def main() -> None:
    schedule = mlp.plan(topology="h200-nvswitch", num_ranks=4, M=8192, H=4096, F=14336)
    print(schedule)
    emulated(num_ranks=4, rows=64, hidden=32, ffn=64)


def emulated(num_ranks: int, rows: int, hidden: int, ffn: int) -> None:
    """All ranks in this process: calls only enqueue, and `world.run` executes them."""
    world = World(num_ranks=num_ranks, num_sms=8, seed=1)
    models = [model(mlp.compile(fabric, M=rows, H=hidden, F=ffn)) for fabric in world.fabrics]
    xs = [torch.randn(rows // num_ranks, hidden).bfloat16() for _ in models]
    outputs = [one(x) for one, x in zip(models, xs, strict=True)]
    world.run()
    expected = torch.cat(xs).float()
    for layer in zip(*models, strict=True):  # the same layer of every rank
        gate, up, down = zip(*(one.weights for one in layer), strict=True)
        whole_gate, whole_up, whole_down = torch.cat(gate).float(), torch.cat(up).float(), torch.cat(down, 1).float()
        product = nn.functional.silu(expected @ whole_gate.T) * (expected @ whole_up.T)
        expected = expected + product @ whole_down.T
    torch.testing.assert_close(torch.cat(outputs).float(), expected, rtol=0.05, atol=0.05)
    print(f"equal: {num_ranks} emulated ranks, {LAYERS} layers with one operator")


def on_gpus(rows: int, hidden: int, ffn: int) -> None:
    """One process a GPU, under torchrun: eager calls, then replays of one CUDA graph of all layers."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    layers = model(mlp.compile(M=rows, H=hidden, F=ffn), "cuda")  # plans for these GPUs; every rank compiles alike
    x = torch.randn(rows // dist.get_world_size(), hidden, device="cuda").bfloat16()
    eager = layers(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layers(x)
    graph.replay()
    torch.testing.assert_close(out, eager, rtol=0.05, atol=0.05)
    if dist.get_rank() == 0:
        print(f"equal: {dist.get_world_size()} GPUs, {LAYERS} layers in one CUDA graph")
    del graph
    dist.destroy_process_group()


if __name__ == "__main__":
    on_gpus(rows=8192, hidden=4096, ffn=14336) if sys.argv[1:] == ["gpus"] else main()
