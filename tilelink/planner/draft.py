"""What the cost model reads of a schedule, before there is one or of a schedule that was built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tilelink.ir.node_sums import parts_added
from tilelink.ir.nodes import Buffer, CopyProgram, Exchange, Launch
from tilelink.ir.schedule import Schedule
from tilelink.ir.spec import DTYPE_BYTES


@dataclass(frozen=True, eq=False)
class Parts:
    """Exchanges and buffers by name. `dtype`: of the first input, in which tiles are computed. `counted`: exchanges whose source
    is made in the call, and counted."""

    dtype: str
    exchanges: Mapping[str, Exchange]
    buffers: Mapping[str, Buffer]

    def exchange(self, name: str) -> Exchange:
        return self.exchanges[name]

    def buffer(self, name: str) -> Buffer:
        return self.buffers[name]

    def bytes_read(self, name: str, window: tuple[tuple[int, int], ...]) -> int:
        """Of a buffer, or of a window in it, or in each of its parts."""
        found = self.buffer(name)
        elements = math.prod(found.shape)
        of_nodes = next((one for one in self.exchanges.values() if one.relayed and one.target == name), None)
        if of_nodes is not None:  # programs that put read the rest
            elements = elements // found.shape[0] * parts_added(of_nodes)
        if window:
            elements = elements // math.prod(found.shape[-len(window) :])
            elements *= math.prod(end - first for first, end in window)
        return elements * DTYPE_BYTES[found.dtype]


@dataclass(frozen=True, eq=False)
class Draft:
    """Launches in order and what they are about: all that a schedule is but for its texts and its words."""

    parts: Parts
    launches: tuple[Launch, ...]

    @property
    def copied(self) -> bool:
        """Whether a kernel that finishes the call waits for copies to tell their end."""
        return any(isinstance(launch, CopyProgram) and launch.tells_end for launch in self.launches)


def draft_of(schedule: Schedule) -> Draft:
    """The draft that the schedule was."""
    exchanges = {exchange.name: exchange for exchange in schedule.exchanges}
    buffers = {buffer.name: buffer for buffer in schedule.buffers}
    return Draft(Parts(schedule.spec.inputs[0].dtype, exchanges, buffers), schedule.launches)
