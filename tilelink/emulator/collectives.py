"""Library collectives (NCCL): all ranks meet, then the result is computed in fp32 and rounded. In a send with its receive a rank
meets two others: it leaves when its sender has come, and its receiver too, as for a large message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tilelink.emulator.errors import CollectiveMismatch
from tilelink.emulator.operations import Collective, CollectiveKind, SendReceive, describe
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from tilelink.emulator.machine import Machine
    from tilelink.emulator.task import Task


_Way = tuple[str, int, int]  # a stream, the rank that sends, and the one that receives


@dataclass(slots=True)
class _Meeting:
    parts: dict[int, Collective] = field(default_factory=dict)
    done: bool = False


class Meetings:
    """Where the ranks meet: by stream name and the running number of the collective on that stream."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._meetings: dict[tuple[str, int], _Meeting] = {}

    def meet(self, stream: str, number: int, rank: int, part: Collective) -> None:
        """Block the running task until all ranks are here; the last one computes for all.

        Raises `CollectiveMismatch` when another rank brings a different collective.
        """
        key = (stream, number)
        meeting = self._meetings.setdefault(key, _Meeting())
        for other_rank, other in meeting.parts.items():
            if str(other) != str(part):
                raise CollectiveMismatch(
                    stream=stream, number=number, rank=rank, own=part, other_rank=other_rank, other=other
                )
        meeting.parts[rank] = part
        if len(meeting.parts) == self._machine.num_ranks:
            _compute(part.kind, [meeting.parts[rank] for rank in range(self._machine.num_ranks)])
            meeting.done = True
            del self._meetings[key]
            self._machine.scheduler.wake(("collective", key))
        while not meeting.done:
            wait = Wait(lambda: self._missing(part, meeting), keys=(("collective", key),))
            self._machine.scheduler.block(wait)

    def _missing(self, part: Collective, meeting: _Meeting) -> str:
        ranks = [rank for rank in range(self._machine.num_ranks) if rank not in meeting.parts]
        return f"ranks {', '.join(map(str, ranks))} to come to {part}"


class Messages:
    """Those of each stream from a rank to another one, in their order."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._sent: dict[_Way, list[torch.Tensor]] = defaultdict(list)
        self._awaited: dict[_Way, int] = defaultdict(int)  # receives that a rank has come to

    def meet(self, stream: str, rank: int, part: SendReceive, task: Task) -> None:
        """Block the running task until both other ranks are here. Raises `CollectiveMismatch` when what comes has another
        shape."""
        machine, out, come = self._machine, (stream, rank, part.to), (stream, part.source, rank)
        number, mine = self._awaited[come], len(self._sent[out])
        machine.released(task, ("message", *out, mine))
        self._sent[out].append(part.x.clone())
        self._awaited[come] += 1
        for way in (out, come):
            machine.scheduler.wake(("message", *way))
        while len(self._sent[come]) <= number or self._awaited[out] <= mine:
            wait = Wait(lambda: f"ranks {part.source} and {part.to} to come to {part}", keys=_keys(out, come))
            machine.scheduler.block(wait)
        found = self._sent[come][number]
        if found.shape != part.out.shape or found.dtype != part.out.dtype:
            raise CollectiveMismatch(
                stream=stream,
                number=number,
                rank=rank,
                own=f"a receive into {describe(part.out)}",
                other_rank=part.source,
                other=f"a send of {describe(found)}",
            )
        machine.acquired(task, ("message", *come, number))
        part.out.copy_(found)
        self._sent[come][number] = found[:0]


def _keys(*ways: _Way) -> tuple[Hashable, ...]:
    return tuple(("message", *way) for way in ways)


def _compute(kind: CollectiveKind, parts: list[Collective]) -> None:
    inputs = [part.x for part in parts]
    if kind is CollectiveKind.ALL_GATHER:
        gathered = torch.cat(inputs)
        for part in parts:
            part.out.copy_(gathered)
        return
    # in rank order, so that the result does not depend on who came last
    total = torch.zeros(inputs[0].shape, dtype=_accumulator(inputs[0].dtype))
    for x in inputs:
        total += x
    for rank, part in enumerate(parts):
        mine = total if kind is CollectiveKind.ALL_REDUCE else total.chunk(len(parts))[rank]
        part.out.copy_(mine)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype
