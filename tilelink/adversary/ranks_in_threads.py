"""torch.distributed for a reference that a file computes on every rank: ranks are threads that meet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


class ThreadedRanks:
    """The calls of `torch.distributed` that such a `reference` makes. Each rank runs in a thread of its own."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._local = threading.local()
        self._barrier = threading.Barrier(num_ranks)
        self._given: list[torch.Tensor | None] = [None] * num_ranks

    def get_world_size(self) -> int:
        return self._num_ranks

    def get_rank(self) -> int:
        rank: int = self._local.rank
        return rank

    def all_gather(self, parts: list[torch.Tensor], x: torch.Tensor) -> None:
        for part, given in zip(parts, self._meet(x), strict=True):
            part.copy_(given)

    def all_reduce(self, x: torch.Tensor) -> None:
        x.copy_(torch.stack(self._meet(x)).sum(0))

    def _meet(self, x: torch.Tensor) -> list[torch.Tensor]:
        self._given[self.get_rank()] = x.clone()
        self._barrier.wait()
        given = [tensor for tensor in self._given if tensor is not None]
        self._barrier.wait()
        return given

    def run(self, body: Callable[[int], Result]) -> list[Result]:
        """`body(rank)` of all ranks; raises what the first rank that failed raised."""
        results: dict[int, Result] = {}
        failures: list[Exception] = []

        def rank_body(rank: int) -> None:
            self._local.rank = rank
            try:
                results[rank] = body(rank)
            except threading.BrokenBarrierError:
                pass
            except Exception as error:
                failures.append(error)
                self._barrier.abort()

        threads = [threading.Thread(target=rank_body, args=(rank,)) for rank in range(self._num_ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return [results[rank] for rank in range(self._num_ranks)]
