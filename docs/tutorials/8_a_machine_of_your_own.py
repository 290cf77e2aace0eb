# %% [markdown]
# # 8. A machine of your own
# The planner knows a machine by a **descriptor**, a TOML file with numbers: links, copy engines, GPUs. tilelink ships some.
# For other machines you write one. Here it is one with four GPUs, and a link between each two.

# %%
from pathlib import Path

import tilelink
import topologies
from shell import sh
from tilelink import Shard, Tensor, all_gather, dims, matmul, overlap

# %%
sh("tilelink topo list")

# %% [markdown]
# ## Write it
# Rates are in GB/s of 1e9 bytes, times in microseconds. A rate is what a program gets, not what a datasheet promises;
# only `dense_tflops` is the peak.

# %%
LINKS = """
name = "my-mesh"

# [bytes of one copy, GB/s], and what a copy of no bytes takes
copy_engine = [[262144, 20], [4194304, 43], [67108864, 50]]
copy_engine_start_us = 2.5
# [SMs that copy, GB/s of a rank over all its links]
push_sms = [[1, 14], [4, 55], [16, 143]]
pull_sms = [[1, 10], [4, 40], [16, 135]]

[[levels]]
name = "links"
fabric = "full mesh"     # or "switch", "host bridge", "network"
size = 4                 # GPUs
gb_per_s = 50            # of one link, one direction
signal_us = 1.6          # from a store on one GPU to the load on another that sees it
multicast = false
peer_atomics = true
"""

GPU = """
[gpu]
name = "my GPU"
vendor = "nvidia"
arch = "sm_90"
num_sms = 114
memory_gb_per_s = 1800
l2_bytes = 52428800
shared_bytes_per_sm = 233472
num_dies = 1
num_copy_engines = 3
tensor_descriptors = true   # TMA
stream_wait_value = true    # a stream can wait for a word
gemm_efficiency = 0.65      # of the dense peak, by a good matmul
kernel_launch_us = 2.5
comm_beside_compute = true

[gpu.dense_tflops]
bf16 = 756
"""

# %% [markdown]
# A descriptor also says where its numbers come from, so that nobody takes a guess for a measurement.
# `"gpu"` stands for all numbers of that table; a number with its own key comes first.

# %%
ORIGINS = """
[provenance]
"gpu" = "estimate: as the nearest GPU that ships"
"gpu.num_sms" = "datasheet"
"gpu.dense_tflops" = "datasheet"
"levels.links" = "estimate"
copy_engine = "estimate"
copy_engine_start_us = "estimate"
push_sms = "estimate"
pull_sms = "estimate"
"""
Path("my_machine.toml").write_text(LINKS + GPU + ORIGINS)

# %% [markdown]
# ## Look at it
# A path stands wherever a name of a topology does. `topo show` draws the links:

# %%
sh("tilelink topo show ./my_machine.toml | head -13")

# %% [markdown]
# A number without an origin is refused, and so is any key that does not belong there:

# %%
for text in (LINKS + GPU, (LINKS + GPU + ORIGINS).replace("num_sms", "num_sm", 1)):
    Path("my_wrong_machine.toml").write_text(text)
    try:
        topologies.load("./my_wrong_machine.toml")
    except tilelink.TileLinkError as error:
        print(f"{type(error).__name__}: {error}\n")

# %% [markdown]
# ## Plan on it

# %%
M, N, K = dims("M N K")


@overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return matmul(all_gather(x, dim=0), w)


mine = ag_gemm.plan("./my_machine.toml", num_ranks=4, M=8192, K=4096, N=14336)
h200 = ag_gemm.plan("h200-nvswitch", num_ranks=4, M=8192, K=4096, N=14336)
print(f"{mine.predicted_us:.0f} us here, {h200.predicted_us:.0f} us on four H200")
for (name, value), (_, other) in zip(mine.choices, h200.choices, strict=True):
    if value != other:
        print(f"{name} = {value}, there {other}")
assert dict(mine.choices)["x_full.streams"] == "peer"

# %% [markdown]
# On a mesh, one link carries a third of a rank's bytes. So the schedule sends to all peers at once, by a stream for each.
# A switch gives the whole rate to any pair, and there one peer after the other is better: its rows are complete earlier.
#
# Emulated ranks follow no clock, so they run a plan for any machine:

# %%
sh("tilelink run examples/02_ag_gemm.py:ag_gemm M=256 K=64 N=128 --ranks 4 --topology ./my_machine.toml | tail -1")

# %% [markdown]
# ## On the machine itself
# `tilelink topo detect` finds the descriptor of the GPUs that torch sees, by their names. `compile` and
# `run --device cuda` do the same. If no descriptor has these GPUs, all three refuse, and name the most similar one.
# They never guess; give your file with `--topology` instead.
#
# On N GPUs of one host, `detect --calibrate` replaces estimates by measurements. It takes a minute or two:
#
# ```sh
# torchrun --nproc-per-node N -m tilelink topo detect --calibrate -o my.toml
# ```
#
# It begins with the descriptor of these GPUs, writes another one to a new file, and prints both numbers of each field.
# For a GPU that no descriptor has, `--tflops` gives the peak, and `--like NAME|FILE` a descriptor to begin with.
#
# | number | what is timed |
# | --- | --- |
# | `copy_engine`, `copy_engine_start_us` | pushes to a peer, of several sizes and of 4 bytes |
# | `push_sms`, `pull_sms` | a Triton kernel that copies to or from peers, on several numbers of SMs |
# | `gb_per_s` of a level | the largest push across it |
# | `signal_us` | half of the time that two kernels take to pass a word to and fro |
# | `memory_gb_per_s` | a copy of 1 GiB on one GPU; reads and writes both count |
# | `kernel_launch_us` | kernels of one program, one behind the other |
# | `gemm_efficiency` | a matmul of the library, over the dense peak |
#
# The slowest rank counts. All other numbers are kept, with levels that the N GPUs do not span, and their origins say so.
#
# `tilelink explain` says how far a rate is from the next change: it looks for the nearest factor at which another family
# of schedules wins.
# `tilelink bench --topology ./my.toml` shows measured times beside predicted ones.
