"""On two GPUs: how fast 64-bit packets and lines of 128 bytes bring a peer's part, exchange after exchange in one kernel.

    torchrun --nproc-per-node 2 lab/lines.py --json lines.json

`ll` and `lamport` are packets as emitted kernels store and load them (`lowering/device`): 4 of 8 bytes are data, or all 8, and
whoever reads empties them. `ll128` are lines: 15 words of data and one with the number of the exchange, in whole lines an
instruction (16 bytes a thread, 8 threads a line). Each program stores all of its blocks at the peer, then takes its blocks. Two
sets alternate. Every part is compared with the peer's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

from lowering.device.nvidia import get_words_where, put_words_where
from lowering.device.packets import absent, packets_of

ROUNDS, TRIALS = 200, 4
KINDS = ("ll", "lamport", "ll128")
SHAPES = (
    (1, 2),
    (4, 2),
    (4, 4),
    (8, 1),
    (8, 2),
    (8, 4),
)  # warps of a program, packets or 16 bytes of lines of a thread
KILOBYTES = (4, 16, 64, 256, 512, 1024, 2048, 4096)


@triton.jit
def packets(x, out, own, peer, rounds, n, NUMBERED: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    for exchange in range(rounds):
        call, base = exchange + 1, exchange % 2 * n
        for block in range(BLOCKS):
            at = (tl.program_id(0) * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
            data = tl.load(x + at, mask=at < n, other=0).to(tl.int64)
            data = data & 0xFFFFFFFF if NUMBERED else data
            put_words_where(peer + base + at, packets_of(data, call, NUMBERED), at < n)
        for block in range(BLOCKS):
            at = (tl.program_id(0) * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
            found = get_words_where(own + base + at, at < n)
            while tl.max(tl.where(at < n, absent(found, call, NUMBERED), 0)) > 0:
                found = get_words_where(own + base + at, at < n)
            if NUMBERED:
                tl.store(out + at, found.to(tl.int32), mask=at < n)
            else:
                put_words_where(own + base + at, tl.zeros([BLOCK], tl.int64), at < n)
                tl.store(out + at, ~found, mask=at < n)


@triton.jit
def lines(x, out, own, peer, rounds, n, LINES: tl.constexpr, BLOCKS: tl.constexpr):
    word = tl.arange(0, 16)[None, :]
    for exchange in range(rounds):
        call, base = exchange + 1, exchange % 2 * n * 16
        for block in range(BLOCKS):
            line = ((tl.program_id(0) * BLOCKS + block) * LINES + tl.arange(0, LINES))[:, None]
            data = tl.load(x + line * 15 + word, mask=(line < n) & (word < 15), other=0)
            tl.store(peer + base + line * 16 + word, tl.where(word == 15, call, data), mask=line < n)
        for block in range(BLOCKS):
            line = ((tl.program_id(0) * BLOCKS + block) * LINES + tl.arange(0, LINES))[:, None]
            there, flags = (line < n) & (word < 16), (line < n) & (word == 15)
            found = tl.load(own + base + line * 16 + word, mask=there, other=0, volatile=True)
            while tl.max(tl.max(tl.where(flags & (found != call), 1, 0), 1), 0) > 0:
                found = tl.load(own + base + line * 16 + word, mask=there, other=0, volatile=True)
            tl.store(out + line * 15 + word, found, mask=(line < n) & (word < 15))


def exchanged(kind: str, kilobytes: int, programs: int, warps: int, each: int, own: torch.Tensor, peer: torch.Tensor):
    """(us of an exchange, whether the peer's part came); None where programs would have nothing to do."""
    size = kilobytes * 1024
    x = torch.randint(1, 2**62, (size // 8 + 64,), device="cuda")
    out = torch.zeros_like(x)
    ll, n = kind == "ll", -(-size // {"ll": 4, "lamport": 8, "ll128": 120}[kind])
    block = warps * (4 if kind == "ll128" else 32) * each
    blocks = -(-n // (block * programs))
    if blocks > 32 or (programs - 1) * block * blocks >= n + block * programs:
        return None
    given, made = (x.view(torch.int32), out.view(torch.int32)) if ll else (x, out)

    def run() -> None:
        if kind == "ll128":
            lines[(programs,)](given, made, own, peer, ROUNDS, n, block, blocks, num_warps=warps)
        else:
            packets[(programs,)](given, made, own, peer, ROUNDS, n, ll, block, blocks, num_warps=warps)

    times = []
    for _ in range(TRIALS):
        own.zero_()
        out.zero_()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        dist.barrier()
        times.append(begin.elapsed_time(end) * 1e3 / ROUNDS)
    all_parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(all_parts, x)
    theirs = all_parts[1 - dist.get_rank()]
    return min(times[1:]), torch.equal(out[: size // 8], theirs[: size // 8])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    own = symm_mem.empty(1 << 22, dtype=torch.int64, device="cuda")
    peer = symm_mem.rendezvous(own, dist.group.WORLD).get_remote_tensor(1 - rank, own.shape, own.dtype)
    rows = []
    for kilobytes, kind in product(KILOBYTES, KINDS):
        best, right = None, True
        for programs, (warps, each) in product((16, 32, 64, 128), SHAPES):
            found = exchanged(kind, kilobytes, programs, warps, each, own, peer)
            if found is not None:
                right &= found[1]
                shape = {"us": round(found[0], 3), "programs": programs, "warps": warps, "each": each}
                best = min(best or shape, shape, key=lambda one: one["us"])
        rows.append({"kilobytes": kilobytes, "kind": kind, "right": right, **(best or {})})
    if rank == 0:
        print("\n".join(map(str, rows)))
        if arguments.json is not None:
            arguments.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dist.destroy_process_group()
    sys.exit(0 if all(row["right"] for row in rows) else 1)


if __name__ == "__main__":
    main()
