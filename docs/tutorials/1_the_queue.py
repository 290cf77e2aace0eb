# %% [markdown]
# # 1. Wait and notify: the queue
# Every overlapped kernel rests on two operations. A **signal** is a word of memory that a peer can address.
# **Notify** raises the word, and says: what I stored before this is there.
# **Wait** blocks until the word has come far enough, and says: what I load after this needs it.
#
# This tutorial shows both in the smallest operator that needs them: each rank sends blocks to the next rank, through a
# ring buffer of two slots. At the end you break the order, and the verifier finds it.

# %%
from pathlib import Path

import lowering
from shell import sh
from tilelink import CommSms, Shard, Tensor, dims, overlap, send_recv
from tilelink.runtime.run import run_emulated

B, C = dims("B C")


@overlap
def blocks(x: Tensor(B, C, placement=Shard(0))):
    return send_recv(x, by=1)


# %% [markdown]
# The spec says what moves: rows of `x` go to the next rank. How they move is a schedule. The pins below ask for
# six chunks from each rank, two slots at the receiver, one program that sends and one that receives.

# %%
pins = {"mover": CommSms(1), "chunks": 6, "slots": 2, "consumers": 1}
plan = blocks.plan("laptop-switch", num_ranks=2, B=12, C=16, pin=pins)
steps = str(plan)
print(steps[steps.index("    out_queue_send") : steps.index("      last program")])

# %% [markdown]
# `out_queue_send` is the producer. `out_tiles` is the consumer, on the next rank: `@((rank + 1) % 2)` behind a buffer
# or a signal says at which rank it lies. `call` is the number of the call.
#
# Two signals order each slot. `out_queue_arrived` goes forward: the block is in the slot. `out_queue_free` goes back:
# the block has been read, and the slot may be used again. The second one is back-pressure.
# It stops a fast producer from overwriting what a slow consumer has not read.
#
# A word counts the uses of its slot and is never set back. So no old value can be mistaken for a new one.
# For one call of the plan above:

# %%
print("chunk  slot  the producer waits  and notifies  the consumer waits")
for chunk in range(6):
    slot, use = chunk % 2, chunk // 2
    print(f"{chunk:5}  {slot:4}  free[{slot}] >= {use}      arrived[{slot}] = {use + 1}  arrived[{slot}] >= {use + 1}")

# %% [markdown]
# The first use of a slot waits for 0, so it never blocks. Chunk 2 is the first one that waits for the consumer.
#
# ## Run it
# `lowering.emit` turns the schedule into a file in Triton. `run_emulated` runs it on emulated ranks in this process, and
# compares every element with what the spec means.

# %%
source = lowering.emit(plan)
result = run_emulated(plan, source, calls=3)
print("\n".join(result.lines()))
assert result.equal

# %% [markdown]
# In the file, the producer is a loop of three statements: wait, copy, notify.

# %%
loop = source.index("        wait_until(signals + OUT_QUEUE_FREE")
copy = source.index("        copy_run(", loop)
notify = source.index("        notify(", copy)
end = source.index("\n", notify) + 1
print(source[loop:end])

# %% [markdown]
# ## Notify too early
# Now put the notify in front of the copy. It is a common mistake: somebody hoists the signal to hide its latency.

# %%
broken = source[:copy] + source[notify:end] + source[copy:notify] + source[end:]
results = [run_emulated(plan, broken, calls=3, seed=seed).equal for seed in range(5)]
print(results)
assert all(results)

# %% [markdown]
# Five runs, and each result is right. The consumer was never fast enough to see the difference.
# A test on GPUs may pass as well. `tilelink verify` looks at the order instead of the outcome.
# A race detector watches every access. An adversary delays ranks, programs and copies.

# %%
Path("my_queue.py").write_text(source)
Path("my_broken_queue.py").write_text(broken)

# %%
sh("tilelink verify my_broken_queue.py --seeds 0 --workers 1 | head -10", exits=1)

# %% [markdown]
# The verdict is `refuted`, with the class of the bug and the line that is wrong. `first` and `second` are the two
# accesses that nothing orders: the store of the producer, and the load of the consumer.
# The rest of the output lists the events that led there, and the command that repeats the run.
#
# The line `compiled:` is about another question. It says that the compiler kept the order of this file; the file itself is wrong.
#
# The file as it was emitted passes:

# %%
sh("tilelink verify my_queue.py --seeds 0 --workers 1")

# %% [markdown]
# ## What to remember
# - Store, then notify. Wait, then load.
# - A buffer that is used again needs a signal in each direction.
# - A result that is equal proves no order. Ask the verifier.
#
# Nothing of this was written by hand: the planner derived both signals from `send_recv`. It proves each schedule before
# it gives it out. [examples/01_queue.py](../../examples/01_queue.py) is the same operator for 2,025 blocks a rank.
