"""A loop that merges the states of all ranks, as one access of all of their packets.

for state < n: mean = m[.., state, .., row : +R, col : +C]; log = l[.., state, .., row : +R, 0]; s = merge_state(s, mean, log)
->   s = merged_packets(...)                                       # R x C elements of n states are on their way at once
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilelink.ir.enums import Protocol
from tilelink.schedule.index import Index, names_in, replaced
from tilelink.schedule.memory import Buffer, Region
from tilelink.schedule.steps import Compute, For, Load

MERGE = "merge_state"


@dataclass(frozen=True, slots=True)
class Merge:
    """`results` = the merge of `count` states, whose first one lies at `means` and `logs`, along dimension `dim` of both."""

    results: tuple[str, ...]
    count: int
    means: Region
    logs: Region
    dim: int

    @property
    def most(self) -> int:
        """States that registers have room for."""
        return 1 << (self.count - 1).bit_length()


def merge_of(step: For, buffers: Mapping[str, Buffer]) -> Merge | None:
    """What a loop merges, if that are packets, and those of logarithms say the number of the call."""
    match step:
        case For(variable, int() as count, (Load(_, means), Load(_, logs), Compute(results, op)), (), True) if (
            op == MERGE
        ):
            dims = [[dim for dim, start in enumerate(one.start) if start == Index(variable)] for one in (means, logs)]
            names = [start for one in (means, logs) for start in one.start if start != Index(variable)]
            if dims[0] != dims[1] or len(dims[0]) != 1 or any(variable in names_in(one) for one in names):
                return None
            protocols = [buffers[one.buffer].protocol for one in (means, logs)]
            if protocols[0] is Protocol.SIMPLE or protocols[1] is not Protocol.LL:
                return None
            return Merge(results, count, _first(means, variable), _first(logs, variable), dims[0][0])
    return None


def _first(region: Region, variable: str) -> Region:
    return replace(region, start=tuple(replaced(one, {variable: 0}) for one in region.start))
