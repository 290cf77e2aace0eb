"""What a rank enqueues on its GPU while it is measured, and the symmetric memory for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lowering.host.symmetric_memory import SymmetricMemoryFabric
from tilelink.calibrating import measure
from tilelink.calibrating.kernels import copy_parts, ping_pong
from tilelink.measuring.device import Call

_WORDS_APART = 64  # of 4 bytes, so that no two words of `words` share a line
_BLOCK = measure.BLOCK_BYTES // 4
_WARPS = 8  # as emitted programs that copy have


class GpuWork:
    """Of one rank; all ranks make theirs at once. `largest`: bytes of the largest copy of a copy engine; `places`: how many words
    are passed to and fro."""

    def __init__(self, fabric: SymmetricMemoryFabric, largest: int, places: int) -> None:
        self.fabric = fabric
        words = max(largest, measure.SM_COPY_BYTES) // 4
        self.source = fabric.symmetric((words,), torch.int32)
        self.landing = fabric.symmetric((words,), torch.int32)
        self.signals = fabric.symmetric((places * _WORDS_APART,), torch.int32)
        self.source.local.copy_(self._had_by(fabric.rank, 0, words))
        self.states = list[torch.Tensor]()
        self.tables = list[torch.Tensor]()  # which graphs read

    def _had_by(self, rank: int, first: int, words: int) -> torch.Tensor:
        """Words of the source of `rank`, which no other rank has."""
        begin = first + rank % 16 * (1 << 26)
        return torch.arange(begin, begin + words, dtype=torch.int32, device=self.fabric.device)

    def push(self, peer: int, num_bytes: int) -> Call:
        there, here = self.landing.peers[peer][: num_bytes // 4], self.source.local[: num_bytes // 4]

        def call() -> tuple[()]:
            self.fabric.main().copy(there, here)
            return ()

        return call

    def copy(self, peers: Sequence[int], programs: int, *, push: bool) -> Call:
        here, there = (self.source, self.landing) if push else (self.landing, self.source)
        table = torch.tensor(
            [there.peers[peer].data_ptr() for peer in peers], dtype=torch.int64, device=self.fabric.device
        )
        self.tables.append(table)
        blocks = measure.copied_bytes(len(peers)) // measure.BLOCK_BYTES // len(peers)

        def call() -> tuple[()]:
            copy_parts[(programs,)](
                here.local, table, blocks, PEERS=len(peers), PUSH=push, BLOCK=_BLOCK, num_warps=_WARPS
            )
            return ()

        return call

    def clear(self) -> None:
        self.landing.local.zero_()

    def wrong_words(self, owners: Sequence[int]) -> int:
        if not owners:
            return 0
        words = measure.copied_bytes(len(owners)) // 4 // len(owners)
        wrong = 0
        for part, owner in enumerate(owners):
            had = self._had_by(owner, (len(owners) - 1 - part) * words, words)
            wrong += int((self.landing.local[part * words : (part + 1) * words] != had).sum())
        return wrong

    def words(self, peer: int, place: int, *, first: bool, atomic: bool) -> Call:
        pointers = self.signals.pointers + 4 * place * _WORDS_APART
        own = self.signals.local[place * _WORDS_APART :]
        state = torch.zeros(2, dtype=torch.int32, device=self.fabric.device)
        self.tables.append(pointers)
        self.states.append(state)

        def play(rounds: int) -> tuple[()]:
            ping_pong[(1,)](own, pointers, peer, state, rounds, measure.POLLS, FIRST=first, ATOMIC=atomic, num_warps=1)
            return ()

        play(0)
        torch.cuda.synchronize()
        return lambda: play(measure.ROUND_TRIPS)

    def words_lost(self) -> bool:
        return any(bool(state[1].item()) for state in self.states)

    def device_copy(self) -> Call:
        source = self._had_by(self.fabric.rank, 0, measure.DEVICE_COPY_BYTES // 4)
        target = torch.empty_like(source)

        def call() -> tuple[()]:
            target.copy_(source)
            return ()

        return call

    def small_kernel(self) -> Call:
        element = torch.zeros(1, device=self.fabric.device)

        def call() -> tuple[()]:
            element.add_(1)
            return ()

        return call

    def gemm(self) -> Call:
        shape = (measure.GEMM_SIZE, measure.GEMM_SIZE)
        left, right = (torch.randn(shape, device=self.fabric.device).to(torch.bfloat16) for _ in range(2))
        out = torch.empty_like(left)

        def call() -> tuple[()]:
            torch.mm(left, right, out=out)
            return ()

        return call
