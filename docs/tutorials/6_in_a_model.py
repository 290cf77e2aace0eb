# %% [markdown]
# # 6. In a model
# A compiled operator is called like a function of PyTorch: it takes and returns the tensors of its rank. This tutorial puts
# one into an `nn.Module`, shares it among all layers, and shows the same model under torchrun with a CUDA graph.
#
# The layers run here on emulated ranks. The part for GPUs is a function that this script does not call.

# %%
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import tilelink
from tilelink import Shard, Tensor, all_gather, dims, overlap, reduce_scatter, silu
from tilelink.emulator import World

M, H, F = dims("M H F")
LAYERS = 3


@overlap
def mlp(
    x: Tensor(M, H, placement=Shard(0)),
    w_up: Tensor(F, H, placement=Shard(0)),  # as torch.nn.Linear holds it, [out, in]
    w_down: Tensor(H, F, placement=Shard(1)),
):
    hidden = silu(all_gather(x, dim=0) @ w_up.T)
    return reduce_scatter(hidden @ w_down.T, dim=0) + x


# %% [markdown]
# This is a tensor-parallel MLP with its residual. Rows of `x` are sharded before and after it, so layers follow each other.
#
# ## A module
# Weights are arguments of the operator, not part of it. So layers of one shape share one operator: its
# symmetric buffers exist once, however deep the model is. `op.INPUTS` has the shape and dtype of each input of a rank.


# %%
class Layer(nn.Module):
    def __init__(self, op: Any, device: str = "cpu") -> None:
        super().__init__()
        self.op: Callable[..., torch.Tensor] = op
        _, *weights = op.INPUTS.values()
        self.weights = nn.ParameterList(
            nn.Parameter(0.1 * torch.randn(shape, device=device).to(dtype), requires_grad=False)
            for shape, dtype in weights
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.op(x, *self.weights)


def model(op: Any, device: str = "cpu") -> nn.Sequential:
    return nn.Sequential(*(Layer(op, device) for _ in range(LAYERS)))


# %% [markdown]
# ## On emulated ranks
# A `World` has one fabric for each rank, all in this process. `compile` plans, emits and loads an operator for a fabric.

# %%
torch.manual_seed(0)
world = World(num_ranks=2, num_sms=8)
models = [model(mlp.compile(fabric, M=64, H=32, F=64)) for fabric in world.fabrics]
xs = [torch.randn(32, 32).bfloat16() for _ in models]
outputs = [one(x) for one, x in zip(models, xs, strict=True)]
world.run()

# %% [markdown]
# Emulated calls only enqueue, and `world.run()` executes them. Until then `outputs` hold nothing: an operation of
# torch between two layers would see no data here. On GPUs such operations follow on the stream, as usual.
#
# The same with whole tensors in torch:

# %%
expected = torch.cat(xs).float()
for layer in zip(*models, strict=True):  # the same layer of every rank
    up, down = zip(*(one.weights for one in layer), strict=True)
    hidden = nn.functional.silu(expected @ torch.cat(up).float().T)
    expected = expected + hidden @ torch.cat(down, 1).float().T
torch.testing.assert_close(torch.cat(outputs).float(), expected, rtol=0.05, atol=0.05)

operators = {id(layer.op) for layer in models[0]}
print(f"{LAYERS} layers, {len(operators)} operator a rank")
assert len(operators) == 1

# %% [markdown]
# There is no backward pass, so an operator refuses an input that requires grad:

# %%
try:
    models[0](xs[0].clone().requires_grad_())
except tilelink.TileLinkError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## Under torchrun, with a CUDA graph
# On GPUs, each process is a rank. Three things differ:
# - `compile` takes a process group instead of a fabric, by default that of all ranks, and plans for the GPUs that it finds.
# - Tensors are on the device.
# - Calls run as they are made.


# %%
def on_gpus() -> None:
    """For `torchrun --nproc-per-node R`, one process a GPU."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    layers = model(mlp.compile(M=8192, H=4096, F=14336), "cuda")  # every rank compiles alike
    x = torch.randn(8192 // dist.get_world_size(), 4096, device="cuda").bfloat16()
    eager = layers(x)  # before a capture, once

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = layers(x)
    graph.replay()  # on every rank
    torch.testing.assert_close(captured, eager, rtol=0.05, atol=0.05)
    del graph
    dist.destroy_process_group()


# %% [markdown]
# Inputs and outputs of the captured call stay where they are. Write new values into `x`, then replay.
# A replay knows which call it is: kernels read the number of the call from device memory, so nothing in the graph is stale.
#
# What this script checks of that function: it compiles, and a type checker accepts it. It needs GPUs with NVLink
# to run: emitted kernels address the memory of peers, which the backend gloo cannot give.
# [examples/10_in_a_model.py](../../examples/10_in_a_model.py) has the same in a program that you can start:
#
# ```text
# torchrun --nproc-per-node 4 examples/10_in_a_model.py gpus
# ```
#
# ## Rules for calls
# - All ranks make the same calls in the same order. A call waits for its peers.
# - Inputs are contiguous, of the shapes and dtypes in `op.INPUTS`. Anything else is a `ValueError`.
# - Outputs are fresh tensors.
#
# [In a model](../in_a_model.md) has the whole list, with reasons.
