"""Kernels and operators with one hazard each, which show only in some interleaving, replay or first launch."""

# mypy: ignore-errors

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.emulator.kernels import notify, wait

ROUNDS = 6
SIZE = 16


@triton.jit
def produce(data_pointers, signal_pointers, reader, value, SIZE: tl.constexpr):
    """Store `value` into the reader's buffer and raise its word 0."""
    data = tl.load(data_pointers + reader).to(tl.pointer_type(tl.int32))
    tl.store(data + tl.arange(0, SIZE), value)
    notify(tl.load(signal_pointers + reader).to(tl.pointer_type(tl.int32)), value)


@triton.jit
def read_late(data, signal_pointers, own, other, out, value, ROUNDS: tl.constexpr, SIZE: tl.constexpr):
    """Hand a token to and fro, then read what the producer sends, and only then wait for it."""
    mine = tl.load(signal_pointers + own).to(tl.pointer_type(tl.int32))
    theirs = tl.load(signal_pointers + other).to(tl.pointer_type(tl.int32))
    for turn in range(ROUNDS):
        notify(theirs + 1, (value - 1) * ROUNDS + turn + 1)
        wait(mine + 1, (value - 1) * ROUNDS + turn + 1)
    lanes = tl.arange(0, SIZE)
    tl.store(out + lanes, tl.load(data + lanes))
    wait(mine, value)


@triton.jit
def spin_counting(signal, out):
    """Counts its polls without a bound: no two rounds leave the same state, so that it is never blocked."""
    polls = 0
    while tl.atomic_add(signal, 0, sem="acquire", scope="sys") == 0:
        polls += 1
    tl.store(out, 1)


@triton.jit
def publish(x, signal, epoch, SIZE: tl.constexpr):
    """Double `x` in place, slowly enough to be overtaken, and raise the signal to the epoch in memory."""
    lanes = tl.arange(0, SIZE)
    tl.store(x + lanes, tl.load(x + lanes) * 2)
    call = tl.load(epoch) + 1
    tl.store(epoch, call)
    notify(signal, call)


@triton.jit
def consume(x, signal, call, out, SIZE: tl.constexpr):
    """`call` is a number of the host: baked in when the launch is captured."""
    wait(signal, call)
    lanes = tl.arange(0, SIZE)
    tl.store(out + lanes, tl.load(x + lanes) + 1)


class BakedEpoch:
    """out = 2 * x + 1 by two kernels on two streams; the host counts the calls and tells the waiting kernel."""

    def __init__(self, fabric) -> None:
        self.fabric = fabric
        self.signal = fabric.symmetric((1,), torch.int32)
        self.epoch = torch.zeros(1, dtype=torch.int32)
        self.calls = 0

    def __call__(self, x, out):
        self.calls += 1
        main, side = self.fabric.main(), self.fabric.stream("side")
        side.after(main)
        side.launch(publish, (1,), x, self.signal.local, self.epoch, SIZE=SIZE)
        main.launch(consume, (1,), x, self.signal.local, self.calls, out, SIZE=SIZE)
        main.after(side)
