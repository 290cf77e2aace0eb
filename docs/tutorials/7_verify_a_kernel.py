# %% [markdown]
# # 7. Verify a kernel you wrote
# `tilelink verify FILE.py` runs a kernel on emulated ranks. An adversary delays ranks, programs and copies, and a race
# detector watches every access. The kernel needs no spec, no schedule and no GPU.
#
# The kernel here is a one-shot all-reduce in plain Triton, over torch's symmetric memory. Nothing in it knows of tilelink.

# %%
from pathlib import Path

from shell import sh

text = Path("examples/stock/one_shot_all_reduce.py").read_text()
meeting = text[text.index("@triton.jit\ndef meet_peers") : text.index("@triton.jit\ndef one_shot_all_reduce")]
print(meeting)

# %% [markdown]
# `meet_peers` is a barrier of one program with the same program of the other ranks. It raises a word at each peer from 0 to
# 1, then takes its own words from 1 back to 0. The kernel meets, reads the copies of all ranks, and meets again:

# %%
kernel = text[text.index("@triton.jit\ndef one_shot_all_reduce") : text.index("class OneShotAllReduce")]
print(kernel)

# %% [markdown]
# ## The adapter
# `verify` has to know the inputs, how the host calls the kernel, and what is right. A class and a function say so:

# %%
print(text[text.index("class OneShotAllReduce") : text.index("def main")])

# %% [markdown]
# `symmetric_memory(fabric)` stands for torch's module of the same name. Calls inside `symm.launches()` go to the emulator.
# With a process group instead of a fabric it is torch's own, so the same file runs under torchrun.
#
# ## Run it

# %%
sh("tilelink verify examples/stock/one_shot_all_reduce.py --ranks 2 --seeds 2 --workers 1")

# %% [markdown]
# The verdict is `no run refutes`. It is no proof: a hand-written kernel has no schedule that could be proved. More
# `--ranks` and `--seeds` look further. What was left out is named.
#
# ## Leave out the second meeting
# The sums have been made, so why meet again?

# %%
call = "    meet_peers(signal_pads, rank, NUM_RANKS)\n"
before, _, after = text.rpartition(call)
Path("my_kernel.py").write_text(before + after)

# %%
sh("tilelink verify my_kernel.py --ranks 2 --seeds 0 --workers 1 | head -9", exits=1)

# %% [markdown]
# Rank 0 is in its next call and copies new data into its buffer. Rank 1 still reads the old ones. The second meeting
# protects the buffer of each rank until all have read it.
#
# ## Take a scope that is too small
# `scope="gpu"` orders accesses of one GPU, and nothing between GPUs:

# %%
Path("my_kernel.py").write_text(text.replace('scope="sys"', 'scope="gpu"'))

# %%
sh("tilelink verify my_kernel.py --ranks 2 --seeds 0 --workers 1 | head -4", exits=1)

# %% [markdown]
# Neither kernel is sure to give a wrong sum: the bad order has to happen first. The adversary looks for it.
#
# ## Look at a run again
# The last line of a counterexample is the command that repeats its run, for instance after a change:

# %%
last = sh("tilelink verify my_kernel.py --ranks 2 --seeds 0 --workers 1 | tail -1", exits=1)

# %%
sh(last.strip().removeprefix("again: ") + " | head -2", exits=1)

# %% [markdown]
# ## Your own file
# 1. Add a class with `INPUTS`, `__init__(self, fabric)` and `__call__`.
# 2. Replace torch's symmetric memory by `symmetric_memory(fabric)`, and put launches inside `symm.launches()`.
# 3. Add a `reference`.
#
# [Check a kernel you have](../check_a_kernel.md) has a table of these replacements, the inline assembly that is known, and
# what to do where the emulator cannot follow. [Verification](../verification.md) lists the 19 classes of bugs.
