# %% [markdown]
# # 4. Pins: when you know better
# The planner picks each choice of a schedule. A **pin** fixes one of them, and the planner finds the best of the rest.
# Use it to ask "what if", to hold a schedule still, or to overrule a cost model that is wrong about your machine.

# %%
import tilelink
from shell import sh
from tilelink import CommSms, Shard, Tensor, all_gather, dims, matmul, overlap

M, N, K = dims("M N K")


@overlap
def ag_gemm(x: Tensor(M, K, placement=Shard(0)), w: Tensor(K, N, placement=Shard(1))):
    return matmul(all_gather(x, dim=0), w)


def plan(**pins: object) -> tilelink.Plan:
    return ag_gemm.plan("h200-nvswitch", num_ranks=4, pin=pins, M=8192, K=4096, N=14336)


best = plan()
for name, value in best.choices:
    print(f"{name} = {value}")

# %% [markdown]
# Each line is a pin: a name, and its value. `x_full` is what `all_gather` makes of `x`. Without the part before the dot,
# a pin is about every value that has such a choice.
#
# ## What if
# Who should move the bytes? A copy engine, SMs that are taken from the matmul, the tiles themselves, or NCCL:

# %%
movers = ("CopyEngine()", "CommSms(8)", "CommSms(32)", "Fused()", "Library()")
for mover in movers:
    print(f"{plan(mover=mover).predicted_us:7.1f} us  mover={mover}")

# %% [markdown]
# `Library()` overlaps nothing, since NCCL runs before the matmul. With `Fused()` each tile loads its rows from the peer.
# So rows cross the links once for each tile that reads them, and not once.
#
# Chunks are another trade. Many small ones let tiles of a peer start earlier, and each costs a copy and a signal:

# %%
for chunks in (1, 2, 4, 8):
    print(f"{plan(mover='CopyEngine()', chunks=chunks).predicted_us:7.1f} us  chunks={chunks}")

# %% [markdown]
# A pin is a text or an object: `mover="CommSms(8)"` and `mover=CommSms(8)` are the same. A tile is a text, too:
# 128 x 128, in steps of 64 along k, by 8 warps with 3 stages.

# %%
narrow = plan(tile="128x128x64/8w3s")
print(f"{narrow.predicted_us:7.1f} us  tile=128x128x64/8w3s")
assert plan(mover=CommSms(8)) == plan(mover="CommSms(8)")
assert all(best.predicted_us <= plan(mover=mover).predicted_us for mover in movers)

# %% [markdown]
# By the model, no pin here beats the plan without pins. Your machine may see it another way.
# There, `tilelink tune` measures the best alternatives and keeps the fastest; it needs GPUs.
#
# ## Hold a schedule still
# Pin all choices of a plan, and you get that plan, whatever the cost model says. It is planned at once:
# nothing is left to search.

# %%
kept = dict(best.choices)
assert plan(**kept) == best

# %% [markdown]
# ## Pins that cannot be
# A pin is never ignored. If it names nothing, means nothing here, or has no legal value, the message says what is legal.


# %%
def refusal(**pins: object) -> str:
    """The first line of the message."""
    try:
        plan(**pins)
    except tilelink.TileLinkError as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    raise AssertionError("it was planned")


print(refusal(mvoer=CommSms(8)))
print(refusal(chunks=5000))
print(refusal(slots=4))
print(refusal(protocol="ll"))

# %% [markdown]
# A legal value may still have no schedule on this machine. This tile needs more shared memory than an SM has:

# %%
print(refusal(tile="256x256x64/8w4s"))

# %% [markdown]
# On the command line that exits with 3, and a value that no schedule has with 2:

# %%
sh(
    "tilelink plan examples/02_ag_gemm.py:ag_gemm M=8192 K=4096 N=14336 --ranks 4 --pin tile=256x256x64/8w4s",
    exits=3,
)

# %%
sh(
    "tilelink plan examples/02_ag_gemm.py:ag_gemm M=8192 K=4096 N=14336 --ranks 4 --pin mover=CommSms --pin chunks=4",
    exits=2,
)

# %% [markdown]
# Quote a pin that the shell would read: `--pin 'mover=CommSms(8)'`.
#
# ## A pin is proved like any choice
# A pinned schedule passes the same proof. Pins can make a schedule slow, but not wrong.
# [Pins](../pins.md) lists every field with its values, and says what each means.
