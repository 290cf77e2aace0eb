"""Each rank reads the buffer of the next rank, between two meetings in inline assembly, as many published kernels have them.

    tilelink verify examples/stock/read_next.py --ranks 2
    torchrun --nproc-per-node=4 examples/stock/read_next.py

One thread for each peer raises a word of the peer's signal pad from 0 to 1, and takes the word that the peer has raised here
back to 0. The first meeting may raise its words relaxed: what it tells of was copied before the kernel was launched.
"""

# mypy: ignore-errors
from __future__ import annotations

import os

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from tilelink.compat.dialects.symm_mem import symmetric_memory

COUNT = 256
INPUTS = {"x": ((COUNT,), torch.float32)}


@triton.jit
def thread():
    """The number of the running thread."""
    return tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def raise_words(words, ORDER: tl.constexpr):
    """From 0 to 1, each as soon as it is 0."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32 old;
            .reg .pred done;
            again:
                atom.global.{ORDER}.sys.cas.b32 old, [$1], 0, 1;
                setp.eq.u32 done, old, 0;
                @!done bra again;
        }}
        """,
        "=r, l",
        [words],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def take_words(words, ORDER: tl.constexpr):
    """From 1 to 0, each as soon as it is 1."""
    tl.inline_asm_elementwise(
        f"""
        {{
            .reg .u32 old;
            .reg .pred done;
            again:
                atom.global.{ORDER}.sys.cas.b32 old, [$1], 1, 0;
                setp.eq.u32 done, old, 1;
                @!done bra again;
        }}
        """,
        "=r, l",
        [words],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def meet(signal_pads, rank, NUM_RANKS: tl.constexpr, RAISE: tl.constexpr, TAKE: tl.constexpr):
    """This program of all ranks meets."""
    peers = tl.arange(0, NUM_RANKS)
    pads = signal_pads.to(tl.pointer_type(tl.uint64))
    first = tl.program_id(0) * NUM_RANKS
    theirs = tl.load(pads + peers).to(tl.pointer_type(tl.uint32)) + first + rank
    ours = tl.load(pads + rank).to(tl.pointer_type(tl.uint32)) + first + peers
    tl.debug_barrier()
    if thread() < NUM_RANKS:
        raise_words(theirs, RAISE)
        take_words(ours, TAKE)
    tl.debug_barrier()


@triton.jit
def read_next(buffer_ptrs, signal_pad_ptrs, out, rank, NUM_RANKS: tl.constexpr, COUNT: tl.constexpr):
    """out[COUNT] = the buffer of the next rank."""
    offsets = tl.arange(0, COUNT)
    meet(signal_pad_ptrs, rank, NUM_RANKS, "relaxed", "acquire")
    buffers = buffer_ptrs.to(tl.pointer_type(tl.uint64))
    next_buffer = tl.load(buffers + (rank + 1) % NUM_RANKS).to(tl.pointer_type(tl.float32))
    tl.store(out + offsets, tl.load(next_buffer + offsets))
    meet(signal_pad_ptrs, rank, NUM_RANKS, "release", "relaxed")


class ReadNext:
    """x float32[COUNT] of each rank -> x of the next rank."""

    INPUTS = INPUTS
    NUM_SMS = 4

    def __init__(self, fabric):
        self.symm = symmetric_memory(fabric)
        self.buffer = self.symm.empty(COUNT, dtype=torch.float32)
        self.handle = self.symm.rendezvous(self.buffer)

    def __call__(self, x):
        out, handle = torch.empty_like(x), self.handle
        with self.symm.launches():
            self.symm.copy(self.buffer, x)
            tables = handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev
            read_next[(1,)](*tables, out, handle.rank, NUM_RANKS=handle.world_size, COUNT=COUNT)
        return out


def reference(rank_inputs):
    """Inputs of all ranks -> outputs of all ranks."""
    return [(rank_inputs[(rank + 1) % len(rank_inputs)]["x"],) for rank in range(len(rank_inputs))]


def main():
    """One rank on its GPU, started by torchrun: compares 20 calls with the reference."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    operator = ReadNext(dist.group.WORLD)
    for call in range(20):
        xs = [torch.full((COUNT,), 100.0 * call + rank) for rank in range(dist.get_world_size())]
        out = operator(xs[dist.get_rank()].cuda())
        (wanted,) = reference([{"x": x} for x in xs])[dist.get_rank()]
        torch.testing.assert_close(out.cpu(), wanted, rtol=0, atol=0)
    print(f"rank {dist.get_rank()}: 20 calls are right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
