# %% [markdown]
# # 5. A tile op of your own
# A tile op is a Triton function that computes one tile. You write its body; tilelink makes the loop around it, the waits and the
# order. This tutorial adds a norm of rows (RMSNorm) and overlaps it with communication.
#
# A norm is more than an elementwise function: a tile needs all columns of its rows. So an axis is taken **whole**.

# %%
import torch
import triton
import triton.language as tl

import lowering
import tilelink
from tilelink import Shard, Tensor, all_gather, dims, matmul, overlap
from tilelink.runtime.run import run_emulated

M, N, K = dims("M N K")
m, n = tilelink.axes("m n")
EPS = 1e-6

# %% [markdown]
# ## The body


# %%
@triton.jit
def normed_tile(x, m, n, num_m, num_n, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    rows = m + tl.arange(0, TILE_M)
    total = tl.zeros((TILE_M,), tl.float32)
    for start in range(0, num_n, TILE_N):  # all columns of the rows
        every = start + tl.arange(0, TILE_N)
        mask = (rows < num_m)[:, None] & (every < num_n)[None, :]
        part = tl.load(x + rows[:, None] * num_n + every[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(part * part, 1)
    cols = n + tl.arange(0, TILE_N)  # those of this tile
    mask = (rows < num_m)[:, None] & (cols < num_n)[None, :]
    tile = tl.load(x + rows[:, None] * num_n + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    return tile * tl.rsqrt(total / num_n + EPS)[:, None]


# %% [markdown]
# The names of the parameters say what they are:
#
# | parameter | value |
# | --- | --- |
# | `x` | pointer to the first element of a whole, row-major tensor |
# | `m`, `n` | first row and column of the tile |
# | `num_m`, `num_n` | ends of the axes, to mask against |
# | `TILE_M`, `TILE_N` | extents of the tile, chosen by the planner |
#
# The body returns the tile. It stores nothing and waits for nothing.
#
# ## The declaration
# `reads` and `writes` are the access maps: `x` has the axes `m` and `n`, and so has the result. `whole=n` adds that a tile
# reads all of the axis `n`, although it writes a piece of it. The reference is a torch function of whole tensors. It says
# what the op means, and every run is compared with it.


# %%
def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, (x.shape[1],), eps=EPS)


normed = tilelink.op(reads={"x": (m, n)}, writes=(m, n), whole=n, reference=reference)(normed_tile)

# %% [markdown]
# As a decorator, `@tilelink.op(…)` stands above `@triton.jit`.
#
# ## In a spec
# Rows are sharded, so each rank can norm its own rows. The gather then sends normed rows to the matmul.


# %%
@overlap
def norm_then_multiply(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return matmul(all_gather(normed(x), dim=0), w)


plan = norm_then_multiply.plan("laptop-switch", num_ranks=2, M=128, K=96, N=64)
result = run_emulated(plan, lowering.emit(plan))
print("\n".join(result.lines()))
assert result.equal

# %% [markdown]
# The norm is a tile loop like any other. At real sizes, the plan for four H200 has these launches and roles:

# %%
large = norm_then_multiply.plan("h200-nvswitch", num_ranks=4, M=8192, K=4096, N=14336)
steps = str(large).splitlines()
print("\n".join(line for line in steps if line.startswith("  on ") or (" on " in line and line.endswith(":"))))

# %% [markdown]
# A copy may leave when its rows are normed. Nobody wrote this signal; it follows from the access maps. A chunk of
# 1,024 rows is ready when its 256 tiles have counted:

# %%
print("\n".join(line.strip() for line in steps if "_count[" in line and ("wait" in line or "notify" in line)))

# %% [markdown]
# ## Why `whole` matters
# Suppose that the columns of `x` are sharded. Then a rank has a part of each row, and the mean over that part is wrong.
# A shape check would not notice. The declaration does:

# %%
try:

    @overlap
    def wrong(x: Tensor(M, N, placement=Shard(1))):
        return normed(x)

    wrong.plan("laptop-switch", num_ranks=2, M=128, N=96)
except tilelink.TileLinkError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# You cannot get around it by declaring something else. `tiled` says that a tile reads along these axes only what it
# writes. tilelink tries that on the reference, and the reference contradicts:

# %%
try:
    tilelink.op(reads={"x": (m, n)}, writes=(m, n), tiled=(m, n), reference=reference)(normed_tile)
except tilelink.TileLinkError as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# If the columns must stay sharded, declare a **fold**: each rank folds its part of a row into a small state, and one kernel
# sends and merges the states. [Your own ops](../your_own_ops.md#a-fold-over-an-axis-that-ranks-share) has one for this norm.
#
# ## What you get with it
# The op is part of the spec. So pins, proof, emitted file and `tilelink verify` work as for any other operation.
# [examples/06_user_op.py](../../examples/06_user_op.py) has a matmul in its body, and declares nothing beyond its access maps.
