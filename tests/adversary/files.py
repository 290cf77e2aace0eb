"""A small file with an operator, of which tests change one part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilelink.adversary.campaign import run_trials, trials
from tilelink.adversary.subject import of_file

if TYPE_CHECKING:
    from pathlib import Path

    from tilelink.adversary.verdict import Verdict

DOUBLE = """
import torch
import triton
import triton.language as tl
from tilelink.compat.dialects.symm_mem import symmetric_memory

N = 16


@triton.jit
def double(x, out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), 2.0 * tl.load(x + tl.arange(0, N)))


class Double:
    INPUTS = {"x": ((N,), torch.float32)}
    NUM_RANKS = 2
    NUM_SMS = 2

    def __init__(self, fabric):
        self.symm = symmetric_memory(fabric)
        self.data = self.symm.empty(N, dtype=torch.float32)
        self.handle = self.symm.rendezvous(self.data)

    def __call__(self, x):
        symm, handle, out = self.symm, self.handle, torch.empty_like(x)
        peer = (handle.rank + 1) % handle.world_size
        with symm.launches():
            handle.barrier()
            double[(1,)](x, out, N=N)
            handle.barrier()
        return out


def reference(ranks):
    return [(2 * inputs["x"],) for inputs in ranks]
"""
LAUNCH = "            double[(1,)](x, out, N=N)\n"
REFERENCE = DOUBLE[DOUBLE.index("def reference") :]


def verified(folder: Path, text: str) -> Verdict:
    """The directed runs of a file with this text. Raises what `of_file` and a reference do."""
    path = folder / "operator.py"
    path.write_text(text)
    subject = of_file(path)
    todo = list(trials(subject.num_ranks, 0, any_stream=subject.any_stream, graphs=subject.graphs))
    return run_trials(lambda: subject, todo[:4], workers=1)
