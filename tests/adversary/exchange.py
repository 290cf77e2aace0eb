"""A hand-written operator of two ranks: each sends its tensor to the other in two halves. Correct; tests plant bugs in it."""

# mypy: ignore-errors
from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def advance(epoch):
    """Next call."""
    tl.store(epoch, tl.load(epoch) + 1)


@triton.jit
def exchange(x, inbox, inbox_peers, out, signals, signal_peers, epoch, rank, HALF: tl.constexpr):
    """Program 0 sends, program 1 receives; signals[0] counts halves, signals[1] says that the last call was read."""
    call = tl.load(epoch)
    offsets = tl.arange(0, HALF)
    there = tl.load(signal_peers + 1 - rank).to(tl.pointer_type(tl.int32))
    if tl.program_id(0) == 0:
        while tl.atomic_add(signals + 1, 0, sem="acquire", scope="sys") < call - 1:
            pass
        target = tl.load(inbox_peers + 1 - rank).to(tl.pointer_type(tl.float32))
        for half in range(2):
            tl.store(target + half * HALF + offsets, tl.load(x + half * HALF + offsets))
            tl.debug_barrier()
            tl.atomic_add(there, 1, sem="release", scope="sys")
    else:
        for half in range(2):
            while tl.atomic_add(signals, 0, sem="acquire", scope="sys") < 2 * call + half - 1:
                pass
            tl.store(out + half * HALF + offsets, tl.load(inbox + half * HALF + offsets))
        tl.debug_barrier()
        tl.atomic_xchg(there + 1, call, sem="release", scope="sys")


class Exchange:
    """`out = op(x)`: x float32[64] of the other rank."""

    INPUTS = {"x": ((64,), torch.float32)}  # noqa: RUF012
    NUM_RANKS = 2
    NUM_SMS = 2

    def __init__(self, fabric):
        self.fabric = fabric
        self.inbox = fabric.symmetric((64,), torch.float32)
        self.signals = fabric.symmetric((2,), torch.int32)
        self.epoch = torch.zeros(1, dtype=torch.int32, device=fabric.device)
        with fabric.loading():
            self(torch.empty(64, device=fabric.device))

    def __call__(self, x):
        out = torch.empty_like(x)
        main, inbox, signals = self.fabric.main(), self.inbox, self.signals
        main.launch(advance, (1,), self.epoch)
        main.launch(
            exchange,
            (2,),
            x,
            inbox.local,
            inbox.pointers,
            out,
            signals.local,
            signals.pointers,
            self.epoch,
            self.fabric.rank,
            HALF=32,
        )
        return out


def reference(rank_inputs):
    """Outputs of both ranks."""
    return [rank_inputs[1]["x"], rank_inputs[0]["x"]]
