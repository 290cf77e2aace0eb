"""What kernels of steps use beside `distributed`; each takes the place of the helper of its name on stock Triton."""

# mypy: ignore-errors
from __future__ import annotations

import triton.language as tl
import triton_dist
import triton_dist.language as dl

from lowering.device.barrier import program_barrier


@triton_dist.jit
def wait_until(word, value):
    """Block until `word` of this rank is `value`; returns the token for loads of what was published with it. Nobody raises the
    word further before all that wait for `value` have seen it. Threads do not meet."""
    return dl.wait(word, 1, "sys", "acquire", waitValue=value)


@triton_dist.jit
def notify_here(word, value):
    """Raise `word` of this rank to `value`: publishes all stores of this program and all data that it has acquired."""
    program_barrier()  # one thread releases, without waiting for the others
    tl.atomic_xchg(word, value, sem="release", scope="sys")
