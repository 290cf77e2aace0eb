"""Where all ranks of an OpenSHMEM team meet. The emulated node has one team, the world.

The calls of a rank are numbered; the n-th calls of all ranks are one collective.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilelink.compat.dialects.errors import OverlappingCollectives
from tilelink.emulator.errors import CollectiveMismatch
from tilelink.emulator.operations import Transfer
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilelink.compat.dialects.delivery import Deliveries
    from tilelink.emulator.machine import Machine


class Team:
    """The collectives of one world, over all of its runs."""

    def __init__(self, machine: Machine, deliveries: Deliveries) -> None:
        self._machine = machine
        self._deliveries = deliveries
        self._calls = [0] * machine.num_ranks
        self._inside: dict[int, tuple[str, str]] = {}  # by rank: task and operation
        self._first: dict[int, tuple[int, str]] = {}  # by collective: who came first, and what it called
        self._arrived: dict[int, set[int]] = {}
        self._sent: dict[tuple[int, int], int] = {}  # by collective and rank: the delivery of a broadcast
        self._left: dict[int, int] = {}  # how many ranks are through

    def meet(self, operation: str) -> None:
        """Block until every rank is here; what each did before happens before what any does after.

        Raises `CollectiveMismatch`, `OverlappingCollectives`.
        """
        machine = self._machine
        task = machine.scheduler.task
        with self._call(operation, operation) as number:
            key = ("team", number)
            machine.released(task, key)
            arrived = self._arrived.setdefault(number, set())
            arrived.add(task.identity.rank)
            if len(arrived) == machine.num_ranks:
                machine.scheduler.wake(key)
            while len(arrived) < machine.num_ranks:
                machine.scheduler.block(Wait(lambda: self._missing(operation, arrived), keys=(key,)))
            machine.acquired(task, key)

    def broadcast(self, operation: str, destinations: tuple[int, ...], source: int, num_bytes: int, root: int) -> None:
        """`num_bytes` of the root's `source` to the destination on each rank.

        The root goes on when its source may be reused, the others when their data is there: neither waits
        for the others' call, so that no rank may take it for a barrier. Raises `CollectiveMismatch`,
        `OverlappingCollectives`.
        """
        rank = self._machine.scheduler.task.identity.rank
        signature = f"{operation} of {num_bytes} bytes from rank {root}"
        with self._call(operation, signature) as number:
            key = ("broadcast", number)
            if rank == root:
                for pe, destination in enumerate(destinations):
                    transfer = Transfer(operation, pe, destination, source, num_bytes, stages=True, fenced=False)
                    self._sent[number, pe] = self._deliveries.issue(transfer)
                self._machine.scheduler.wake(key)
            while (number, rank) not in self._sent:
                self._machine.scheduler.block(Wait(lambda: f"rank {root} to come to {signature}", keys=(key,)))
            self._deliveries.await_("delivered", self._sent[number, rank])

    @contextmanager
    def _call(self, operation: str, signature: str) -> Iterator[int]:
        machine = self._machine
        task = machine.scheduler.task.identity
        inside = self._inside.get(task.rank)
        if inside is not None:
            other, other_operation = inside
            raise OverlappingCollectives(
                operation=operation,
                other=other,
                other_operation=other_operation,
                rank=task.rank,
                task=task.name,
                place=machine.place(),
            )
        number = self._calls[task.rank]
        self._calls[task.rank] += 1
        first = self._first.setdefault(number, (task.rank, signature))
        if first[1] != signature:
            raise CollectiveMismatch(
                stream="device code", number=number, rank=task.rank, own=signature, other_rank=first[0], other=first[1]
            )
        self._inside[task.rank] = (task.name, operation)
        try:
            yield number
        finally:
            del self._inside[task.rank]
        self._leave(number)

    def _leave(self, number: int) -> None:
        """Forget a collective when all ranks are through it."""
        num_ranks = self._machine.num_ranks
        left = self._left[number] = self._left.get(number, 0) + 1
        if left == num_ranks:
            del self._left[number], self._first[number]
            self._arrived.pop(number, None)
            for rank in range(num_ranks):
                self._sent.pop((number, rank), None)

    def _missing(self, operation: str, arrived: set[int]) -> str:
        ranks = [rank for rank in range(self._machine.num_ranks) if rank not in arrived]
        return f"ranks {', '.join(map(str, ranks))} to come to {operation}"
