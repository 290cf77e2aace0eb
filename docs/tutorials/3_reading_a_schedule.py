# %% [markdown]
# # 3. Reading a schedule
# A printed schedule is the code of one rank. This tutorial reads one from top to bottom: memory, launches, roles, waits, and
# the end of the call. Then it asks the planner why it chose this one.
#
# The operator is AllGather + GEMM on four H200. It is that of [examples/02_ag_gemm.py](../../examples/02_ag_gemm.py).

# %%
from shell import sh
from tilelink import Shard, Tensor, all_gather, dims, matmul, overlap

M, N, K = dims("M N K")


@overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return matmul(all_gather(x, dim=0), w)


plan = ag_gemm.plan("h200-nvswitch", num_ranks=4, M=8192, K=4096, N=14336)
steps = str(plan)
described = {"x_full.mover": "CopyEngine()", "x_full.chunks": "2", "out.tile": "128x256x64/8w3s"}
assert described.items() <= dict(plan.choices).items()  # the text below is about these choices


def show(first: str, last: str) -> None:
    """The lines from the one that begins with `first` to the one before `last`."""
    print(steps[steps.index(f"  {first}") : steps.index(f"  {last}")].rstrip())


# %% [markdown]
# ## Memory and signals

# %%
show("input x", "on copy_x_full")

# %% [markdown]
# Shapes here are those of one rank: 2,048 of the 8,192 rows of `x`, a quarter of the columns of `w`.
# `symmetric` is memory that peers can address. `x_full[4, 2048, 4096]` has a place for the rows of each rank.
# A `signal` is an array of words. `x_full_arrived[4, 2]` has one for each rank and chunk.
#
# ## Launches
# Lines that begin with `on` are launches. They name the stream, and what comes before it.

# %%
launches = [line for line in steps.splitlines() if line.startswith("  on ")]
print("\n".join(launches))

# %% [markdown]
# Two streams work side by side. `copy_x_full` moves bytes, `main` multiplies. At the end `main` joins both.
#
# ## The copy engine
# A launch holds roles. A role says who works, and on what.

# %%
show("  copy_x_full on", "on main:")

# %% [markdown]
# This role is a DMA engine of the GPU, so it takes no SM. It pushes six chunks: two to each of three peers.
# `@peer` behind a buffer or a word says in whose memory it lies.
#
# - The `wait` in front: peers must have finished the last call, because the copies overwrite what they read in it.
# - The `notify` behind each move: the chunk is there. It follows on the same stream, so it cannot overtake the data.
#
# ## The tile loop

# %%
show("  out_tiles on", "    last program")

# %% [markdown]
# One persistent kernel, 132 programs on 132 SMs, takes 896 tiles in turn. `m_segment` is the rank whose rows a tile has.
# Tiles of the own rows come first, since they wait for nobody. The order after that is no accident:

# %%
rank = 1
visited = [(rank + place) % 4 for place in range(4)]
# the copy engine of a sender: which of its transfers goes to `rank`
turn = {sender: next(t for t in range(3) if (sender + 3 - t) % 4 == rank) for sender in range(4) if sender != rank}
arrival = sorted(turn, key=lambda sender: turn[sender])
print(f"rank {rank} visits the rows of ranks {visited}; rows arrive from ranks {arrival}")
assert visited == [rank, *arrival]

# %% [markdown]
# Each rank sends to a different peer at any time, and each tile loop visits rows in the order in which they arrive.
#
# The `wait` names a word, a value, and behind `for` what it **covers**: loads of `x_full` need it, those of `w` do not.
# A tile waits for the chunk that holds its rows, and for no other one:

# %%
chunk_rows, tile_rows = 1024, 128
for m in (0, 896, 1024, 1920):
    print(f"rows {m:4} to {m + tile_rows - 1:4} wait for chunk {m // chunk_rows}")

# %% [markdown]
# `prefetched` moves the wait and the loads of the next tile in front of the store of this one.
#
# ## The end of a call

# %%
show("    last program", "on main, behind")

# %% [markdown]
# The program that ends last tells each peer that this rank has finished. That is what `done` counts in the next call.
# The copies are part of the call as well, so it waits for `copied` first.
#
# ## Why this one
# `explain` splits the predicted time into terms, and names the families of schedules that lost.

# %%
sh(
    "tilelink explain examples/02_ag_gemm.py:ag_gemm M=8192 K=4096 N=14336 --ranks 4 --families 3 --seconds 0 | head -22"
)

# %% [markdown]
# The critical path is the stream that computes; its terms add up to the predicted time. What is `hidden` runs beside it.
# Each loser names the part in which it loses most. With `CommSms(8)`, eight SMs move bytes and the tiles have the other 124.
#
# Without `--seconds 0`, `explain` also looks for the nearest size or rate at which another family wins.
#
# ## More
# - `tilelink plan … --legend` prints what each sign means.
# - `tilelink plan … --perfetto FILE` writes the predicted times as a trace, for a trace viewer.
# - [Reading a plan](../reading_a_plan.md) has every kind of line.
