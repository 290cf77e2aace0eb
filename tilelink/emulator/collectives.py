"""Library collectives (NCCL): all ranks meet, then the result is computed in fp32 and rounded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from tilelink.emulator.errors import CollectiveMismatch
from tilelink.emulator.operations import Collective, CollectiveKind
from tilelink.emulator.task import Wait

if TYPE_CHECKING:
    from tilelink.emulator.machine import Machine


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
