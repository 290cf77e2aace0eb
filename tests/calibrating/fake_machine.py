"""Ranks as threads, whose clocks go on by what a call is said to take: the measuring code runs as it does on GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from tilelink.calibrating import measure
from tilelink.measuring.device import Call, Change

T = TypeVar("T")
PATIENCE_S = 5.0  # a rank that calls something else than the others fails the test


class Ranks:
    """What `num_ranks` devices have in common."""

    def __init__(self, num_ranks: int) -> None:
        self.barrier = threading.Barrier(num_ranks)
        self.texts = [""] * num_ranks
        self.devices = [FakeDevice(self, rank) for rank in range(num_ranks)]

    def run(self, one: Callable[[FakeDevice], T]) -> list[T]:
        """`one` on every rank at once."""

        def guarded(device: FakeDevice) -> T:
            try:
                return one(device)
            except Exception:
                self.barrier.abort()  # the others must not wait for it
                raise

        with ThreadPoolExecutor(len(self.devices)) as pool:
            return [done.result() for done in [pool.submit(guarded, device) for device in self.devices]]


class FakeDevice:
    """One rank. `us` is its clock."""

    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.ranks, self.rank, self.num_ranks = ranks, rank, len(ranks.texts)
        self.us = 0.0

    def meet(self) -> None:
        self.ranks.barrier.wait(PATIENCE_S)

    def exchange(self, text: str) -> list[str]:
        self.ranks.texts[self.rank] = text
        self.meet()
        found = list(self.ranks.texts)
        self.meet()
        return found

    def capture(self, call: Call, calls: int) -> Call:
        def replay() -> tuple[()]:
            for _ in range(calls):
                call()
            return ()

        return replay

    def time(self, batch: Call, lead_in: int, batches: int, change: Change | None = None) -> list[float]:
        for _ in range(lead_in):
            batch()
        found = []
        for _ in range(batches):
            begin = self.us
            batch()
            found.append(self.us - begin)
        return found

    def usable(self) -> bool:
        return True

    def host_us(self, call: Call, calls: int) -> float:
        return 0.0

    def now_s(self) -> float:
        return 0.0

    def flush_l2(self) -> None: ...

    def release(self) -> None: ...


@dataclass
class FakeWork:
    """Takes what a machine of such numbers would take; the last rank is `slower` by a factor."""

    device: FakeDevice
    link: float = 400.0  # GB/s
    start_us: float = 2.0
    sm: float = 30.0  # GB/s
    trip_us: float = 3.0
    gemm_tflops: float = 650.0
    slower: float = 1.0
    lost: bool = False
    wrong: int = 0
    done: list[tuple[object, ...]] = field(default_factory=list)

    def _call(self, us: float, *what: object) -> Call:
        def call() -> tuple[()]:
            last = self.device.rank == self.device.num_ranks - 1
            self.device.us += us * (self.slower if last else 1.0)
            return ()

        self.done.append(what)
        return call

    def push(self, peer: int, num_bytes: int) -> Call:
        return self._call(max(self.start_us, num_bytes / self.link / 1e3), "push", peer, num_bytes)

    def copy(self, peers: Sequence[int], programs: int, *, push: bool) -> Call:
        rate = min(self.sm * programs, self.link - programs / 10)  # falls a little once the link is full
        return self._call(measure.copied_bytes(len(peers)) / rate / 1e3, "copy", tuple(peers), programs, push)

    def clear(self) -> None:
        self.done.append(("clear",))

    def wrong_words(self, owners: Sequence[int]) -> int:
        self.done.append(("wrong", tuple(owners)))
        return self.wrong if owners else 0

    def words(self, peer: int, place: int, *, first: bool, atomic: bool) -> Call:
        return self._call(measure.ROUND_TRIPS * self.trip_us, "words", peer, place, first, atomic)

    def words_lost(self) -> bool:
        return self.lost

    def device_copy(self) -> Call:
        return self._call(500.0)

    def small_kernel(self) -> Call:
        return self._call(1.1)

    def gemm(self) -> Call:
        return self._call(2.0 * measure.GEMM_SIZE**3 / self.gemm_tflops / 1e6)
