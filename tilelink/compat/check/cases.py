"""What the check compares: what one call enqueues on a rank, and what is true after call number c.

Host code of the dialect: it runs on GPUs, and on emulated ranks as well.
"""

# mypy: ignore-errors
from __future__ import annotations

import torch
from triton.tools.tensor_descriptor import TensorDescriptor
from triton_dist.kernels.nvidia.common_ops import _memcpy_async_cuda, _set_signal_cuda, _wait_eq_cuda
from triton_dist.utils import launch_cooperative_grid_options, nvshmem_barrier_all_on_stream, nvshmem_create_tensors

from tilelink.compat.check import kernels

COUNT = 4096
SLICES, SLICE, ROWS = 4, 64, 64
GRID = 16


class Check:
    """One rank's part of a check. `step()` enqueues a call; `wanted(call)` pairs tensors with what they then hold."""

    emulated = True

    def __init__(self, group):
        self.rank, self.num_ranks = group.rank(), group.size()
        self.left, self.right = (self.rank - 1) % self.num_ranks, (self.rank + 1) % self.num_ranks
        self.clock = torch.zeros(1, dtype=torch.int64, device="cuda")

    def symmetric(self, *shape, dtype=torch.int32):
        """All ranks' parts; this rank's is zeroed."""
        peers = nvshmem_create_tensors(shape, dtype, self.rank, self.num_ranks)
        peers[self.rank].zero_()
        return peers

    def zeros(self, *shape, dtype=torch.int32):
        return torch.zeros(shape, dtype=dtype, device="cuda")

    def step(self):
        kernels.tick[(1,)](self.clock)
        self.enqueue()
        nvshmem_barrier_all_on_stream()

    @staticmethod
    def filled(call, rank, count=COUNT):
        return (torch.arange(count) + 7 * call + 1000 * rank).to(torch.int32)


class Notify(Check):
    def __init__(self, group, op, scope):
        super().__init__(group)
        self.options = {"N": COUNT, "OP": op, "SCOPE": scope}
        self.data, self.signal = self.symmetric(COUNT)[self.rank], self.symmetric(1, dtype=torch.int64)[self.rank]
        self.out = self.zeros(COUNT)

    def enqueue(self):
        kernels.notify_ring[(1,)](self.data, self.signal, self.out, self.clock, **self.options)

    def wanted(self, call):
        return [(self.out, self.filled(call, self.left)), (self.signal, torch.tensor([call]))]


class GatherPush(Check):
    def __init__(self, group):
        super().__init__(group)
        self.shard, self.out = self.zeros(COUNT), self.zeros(self.num_ranks, COUNT)
        self.gathered = self.symmetric(self.num_ranks * COUNT)[self.rank]
        self.signals = self.symmetric(self.num_ranks, dtype=torch.int64)[self.rank]

    def enqueue(self):
        kernels.fill[(1,)](self.shard, self.clock, self.rank, N=COUNT)
        grid = (self.num_ranks + 1,)
        kernels.gather_push[grid](self.shard, self.gathered, self.signals, self.out, self.clock, N=COUNT)

    def wanted(self, call):
        return [(self.out, torch.stack([self.filled(call, rank) for rank in range(self.num_ranks)]))]


class PutsAndGets(Check):
    def __init__(self, group, num_bytes):
        super().__init__(group)
        self.num_bytes = num_bytes
        self.x, self.landing = self.symmetric(COUNT)[self.rank], self.symmetric(4 * COUNT)[self.rank]
        self.signals, self.out = self.symmetric(3, dtype=torch.int64)[self.rank], self.zeros(4 * COUNT)

    def enqueue(self):
        kernels.fill[(1,)](self.x, self.clock, self.rank, N=COUNT)
        nvshmem_barrier_all_on_stream()
        kernels.puts_and_gets[(1,)](self.x, self.landing, self.signals, self.out, self.clock, self.num_bytes, N=COUNT)

    def wanted(self, call):
        want = torch.zeros(4, COUNT, dtype=torch.int32)
        for row, rank in enumerate((self.left, self.left, self.right)):
            source = self.filled(call, rank).view(torch.uint8)
            want[row].view(torch.uint8)[: self.num_bytes] = source[: self.num_bytes]
        want[3, 0] = call
        return [(self.out, want.view(-1)), (self.signals, torch.tensor([call, call, 3 * call]))]


class PlainPutsAndWords(Check):
    def __init__(self, group):
        super().__init__(group)
        self.x, self.landing = self.symmetric(COUNT)[self.rank], self.symmetric(5 * COUNT)[self.rank]
        self.flags, self.out = self.symmetric(1)[self.rank], self.zeros(5, COUNT)

    def enqueue(self):
        kernels.fill[(1,)](self.x, self.clock, self.rank, N=COUNT)
        nvshmem_barrier_all_on_stream()
        size = COUNT * 4
        kernels.plain_puts_and_words[(1,)](self.x, self.landing, self.flags, self.out, self.clock, size, N=COUNT)

    def wanted(self, call):
        sources = (self.left, self.left, self.right, self.left, 0)
        rows = torch.stack([self.filled(call, rank) for rank in sources])
        return [(self.out, rows), (self.flags, torch.tensor([call], dtype=torch.int32))]


class Collectives(Check):
    def __init__(self, group):
        super().__init__(group)
        self.x, self.gathered = self.symmetric(COUNT)[self.rank], self.symmetric(self.num_ranks * COUNT)[self.rank]
        self.out = self.zeros(self.num_ranks, COUNT)

    def enqueue(self):
        kernels.fill[(1,)](self.x, self.clock, self.rank, N=COUNT)
        kernels.collectives[(1,)](self.x, self.gathered, self.out, N=COUNT)

    def wanted(self, call):
        order = [self.num_ranks - 1, *range(1, self.num_ranks)]
        return [(self.out, torch.stack([self.filled(call, rank) for rank in order]))]


class WordsOfThreads(Check):
    def __init__(self, group):
        super().__init__(group)
        self.data, self.flags = self.symmetric(COUNT)[self.rank], self.symmetric(8)[self.rank]
        self.wide, self.out = self.symmetric(1, dtype=torch.int64)[self.rank], self.zeros(COUNT)

    def enqueue(self):
        kernels.words_of_threads[(1,)](self.data, self.flags, self.wide, self.out, self.clock, N=COUNT)

    def wanted(self, call):
        flags = torch.tensor([call, 2 * call, call, 3 * call, 5 * call, 0, 0, 0], dtype=torch.int32)
        wide = torch.tensor([call << 33])
        return [(self.out, self.filled(call, self.left)), (self.flags, flags), (self.wide, wide)]


class ArriveAndWait(Check):
    def __init__(self, group):
        super().__init__(group)
        self.data, self.count = self.zeros((GRID - 1) * COUNT), self.zeros(1)
        self.out = self.zeros(GRID - 1, COUNT)

    def enqueue(self):
        kernels.arrive_and_wait[(GRID,)](self.data, self.count, self.out, self.clock, N=COUNT)

    def wanted(self, call):
        return [(self.out, torch.stack([self.filled(call, program) for program in range(GRID - 1)]))]


class GridsAndRanksMeet(Check):
    def __init__(self, group):
        super().__init__(group)
        self.data, self.out = self.symmetric(GRID * 64)[self.rank], self.zeros(GRID, 64)
        self.words, self.flags = self.symmetric(64)[self.rank], self.symmetric(64)[self.rank]

    def enqueue(self):
        kernels.grids_and_ranks_meet[(GRID,)](
            self.data, self.words, self.flags, self.out, self.clock, self.rank, self.num_ranks, N=64,
            **launch_cooperative_grid_options(),
        )  # fmt: skip

    def wanted(self, call):
        return [(self.out, self.filled(call, self.right, 64).repeat(GRID, 1))]


class StreamWords(Check):
    """A side stream copies to the peer and writes its word; the main stream waits for equality and takes the word back."""

    def __init__(self, group, dtype):
        super().__init__(group)
        self.x, self.landing, self.out = self.zeros(COUNT), self.symmetric(COUNT), self.zeros(COUNT)
        self.words = self.symmetric(1, dtype=dtype)
        self.side = torch.cuda.Stream(priority=-1)

    def enqueue(self):
        main = torch.cuda.current_stream()
        kernels.fill[(1,)](self.x, self.clock, self.rank, N=COUNT)
        self.side.wait_stream(main)
        _memcpy_async_cuda(self.landing[self.right], self.x, self.x.nbytes, self.side)
        _set_signal_cuda(self.words[self.right], 3, self.side)
        _wait_eq_cuda(self.words[self.rank], 3, main)
        kernels.copied[(1,)](self.out, self.landing[self.rank], N=COUNT)
        _set_signal_cuda(self.words[self.rank], 0, main)
        main.wait_stream(self.side)

    def wanted(self, call):
        return [(self.out, self.filled(call, self.left))]


class Threads(Check):
    emulated = False
    THREADS = 128

    def __init__(self, group):
        super().__init__(group)
        self.out, self.wide = self.zeros(12 * self.THREADS), self.zeros(self.THREADS, dtype=torch.int64)

    def enqueue(self):
        kernels.by_thread[(1,)](self.out, self.wide, N=self.THREADS, num_warps=self.THREADS // 32)

    def wanted(self, call):
        thread = torch.arange(self.THREADS, dtype=torch.int32)
        lane = thread % 32
        rows = [
            lane,
            thread - lane + 5,
            torch.where(lane > 0, lane - 1, lane),
            torch.where(lane < 31, lane + 1, lane),
            lane ^ 3,
            torch.full_like(lane, 15),
            torch.full_like(lane, self.THREADS + 1000 * (self.THREADS // 32)),
            torch.ones_like(lane),
        ]
        turned = torch.cat(rows[:4]).view(-1, 4).flip(1).reshape(-1)
        return [(self.out, torch.cat([*rows, turned])), (self.wide, lane.long() | thread.long() << 32)]


class GemmPerSlice(Check):
    """A kernel on a side stream makes the slices that the kernel on the main stream waits for."""

    def __init__(self, group, by_descriptor):
        super().__init__(group)
        self.by_descriptor = by_descriptor
        generator = torch.Generator().manual_seed(self.rank)
        width = SLICES * SLICE
        self.source = torch.randint(-3, 4, (ROWS, width), generator=generator).float().to("cuda")
        self.b = torch.randint(-3, 4, (width, SLICE), generator=generator).to(torch.bfloat16).to("cuda")
        self.a, self.out = self.zeros(ROWS, width, dtype=torch.bfloat16), self.zeros(ROWS, SLICE, dtype=torch.float32)
        self.signals = self.symmetric(SLICES, dtype=torch.int64)[self.rank]
        self.side = torch.cuda.Stream(priority=-1)

    def enqueue(self):
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            kernels.produce_slices[(1,)](
                self.a, self.source, self.signals, self.clock, ROWS_=ROWS, WIDTH=SLICE, SLICES_=SLICES
            )
        kernel = kernels.gemm_by_descriptor if self.by_descriptor else kernels.gemm_per_slice
        a = TensorDescriptor.from_tensor(self.a, [ROWS, SLICE]) if self.by_descriptor else self.a
        sizes = {"M": ROWS, "N": SLICE, "BLOCK_K": SLICE}
        kernel[(1,)](a, self.b, self.out, self.signals, self.clock, SLICES * SLICE, **sizes)
        main.wait_stream(self.side)

    def wanted(self, call):
        return [(self.out, (self.source.cpu() + call % 4) @ self.b.cpu().float())]


CHECKS = {
    "notify set": lambda group: Notify(group, "set", "intra_node"),
    "notify add": lambda group: Notify(group, "add", "intra_node"),
    "notify inter_node": lambda group: Notify(group, "add", "inter_node"),
    "wait for all ranks": GatherPush,
    "puts and gets": lambda group: PutsAndGets(group, COUNT * 4),
    "puts and gets of odd sizes": lambda group: PutsAndGets(group, COUNT * 4 - 13),
    "plain puts and words": PlainPutsAndWords,
    "collectives": Collectives,
    "words of one thread": WordsOfThreads,
    "arrive and wait_eq": ArriveAndWait,
    "grid and rank barriers": GridsAndRanksMeet,
    "stream words of 32 bits": lambda group: StreamWords(group, torch.int32),
    "stream words of 64 bits": lambda group: StreamWords(group, torch.int64),
    "threads": Threads,
    "wait in a pipelined loop": lambda group: GemmPerSlice(group, False),
    "wait before a descriptor": lambda group: GemmPerSlice(group, True),
}
