# %% [markdown]
# # 2. Your first overlapped operator
# You write what is computed. This tutorial takes such a spec to a result on emulated ranks, and to a file for GPUs.
#
# The operator is the first half of a tensor-parallel MLP. Each rank holds some rows of the activations `x`, and some
# columns of the weight `w`. The matmul needs all rows, so `x` is gathered first. Overlap means that tiles of the rows that
# are here are computed while the other rows arrive.

# %%
from pathlib import Path

import lowering
import tilelink
from shell import sh
from tilelink import Shard, Tensor, all_gather, dims, gelu, matmul, overlap
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")


@overlap
def up(
    x: Tensor(M, K, placement=Shard(0)),
    w: Tensor(K, N, placement=Shard(1)),
    bias: Tensor(N, placement=Shard(0)),
):
    return gelu(matmul(all_gather(x, dim=0), w) + bias)


# %% [markdown]
# Shapes are global: `M` counts the rows of all ranks. Placements are those of DTensor. The result is a matrix of shape
# `[M, N]` whose columns are sharded, because those of `w` are. `gelu` and the bias cost no launch of their own: the
# planner folds them into the epilogue of the matmul.
#
# ## Plan
# A plan is made for a machine, a number of ranks, and sizes. It takes no GPU: the machine is a file of numbers.

# %%
plan = up.plan("h200-nvswitch", num_ranks=4, M=8192, K=4096, N=14336)
print(f"{plan.predicted_us:.0f} us predicted")
assert str(plan).count(" programs of ") == 1  # one kernel for all three operations

# %% [markdown]
# The time is that of the planner's cost model. To see what overlap is worth, plan the same spec one after the other:
# NCCL gathers, cuBLAS multiplies.

# %%
library = {"mover": "Library()", "compute": "library"}
plain = up.plan("h200-nvswitch", num_ranks=4, pin=library, M=8192, K=4096, N=14336)
print(f"{plain.predicted_us:.0f} us predicted without overlap")
assert plan.predicted_us < plain.predicted_us

# %% [markdown]
# The plan says who moves what. `choices` lists each decision; [tutorial 3](3_reading_a_schedule.md) reads the steps, and
# [tutorial 4](4_pins.md) changes them.

# %%
for name, value in plan.choices:
    print(f"{name} = {value}")

# %% [markdown]
# Before you get a plan, it is proved: no interleaving of the ranks makes it hang or race, in any number of calls.
#
# ## Run
# Emulated ranks run all programs in one process, so take small sizes. `laptop-switch` is an H200 cut to 8 SMs, on which
# small problems get the choices that large ones get on the real machine.

# %%
small = up.plan("laptop-switch", num_ranks=4, M=260, K=72, N=96)
result = run_emulated(small, lowering.emit(small), calls=3, seed=1)
print("\n".join(result.lines()))
assert result.equal

# %% [markdown]
# Every element of every rank is compared with torch in float64. An error of 1.00 would be what rounding permits.
# Sizes need not be multiples of a tile, as these are not. Sharded ones must be divisible by the number of ranks.
#
# ## Emit
# The emitted file imports torch and Triton, and nothing of tilelink. It is yours to edit.

# %%
source = plan.emit()
Path("my_up.py").write_text(source)
outline = [line for line in source.splitlines() if line.startswith(("def out_kernel", "class Up", "def main"))]
print("\n".join(outline))
assert "import tilelink" not in source

# %% [markdown]
# It ends in a check of itself. On a machine with four GPUs this runs it, and compares with torch:
#
# ```text
# torchrun --nproc-per-node 4 my_up.py
# ```
#
# Without GPUs, emulated ranks run any such file, also after your edits. Emit it for small sizes to do that:

# %%
tiny = up.plan("laptop-switch", num_ranks=2, M=64, K=32, N=64)
Path("my_tiny_up.py").write_text(tiny.emit())

# %%
sh("tilelink verify my_tiny_up.py --seeds 0 --workers 1 | head -2")

# %% [markdown]
# ## When a spec is wrong
# This one forgets to add up the summands of the ranks. The message names the line, the reason and the cure:

# %%
try:

    @overlap
    def down(x: Tensor(M, K, placement=Shard(1)), w: Tensor(K, N, placement=Shard(0))):
        return matmul(x, w)  # Partial: every rank holds a summand

    down.plan("laptop-switch", num_ranks=4, M=256, K=64, N=128)
except tilelink.TileLinkError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# ## The same on the command line
# A spec in a file needs no Python around it. These lines plan, run and emit one of the examples:

# %%
sh("tilelink run examples/02_ag_gemm.py:ag_gemm M=256 K=64 N=128 --ranks 4")

# %%
sh("tilelink emit examples/02_ag_gemm.py:ag_gemm M=8192 K=4096 N=14336 --ranks 4 -o my_ag_gemm.py")
