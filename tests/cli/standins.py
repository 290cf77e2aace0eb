"""Stand-ins for what the commands call: the command line is tested alone, without planning or emulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilelink.errors import NoLegalSchedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topologies import Topology


@dataclass(frozen=True)
class StandInSchedule:
    """Prints what it was asked for."""

    asked: str

    def __str__(self) -> str:
        return f"schedule {self.asked}"

    def to_json(self) -> str:
        return '{"asked": "' + self.asked + '"}'


class StandInOverlap:
    """Takes the place of tilelink.overlap.Overlap. No schedule is legal for M=13."""

    def plan(
        self,
        topology: str | Topology,
        num_ranks: int,
        dtype: str = "bf16",
        pin: Mapping[str, object] | None = None,
        **sizes: int,
    ) -> StandInSchedule:
        name = topology if isinstance(topology, str) else topology.name
        if sizes.get("M") == 13:
            raise NoLegalSchedule(
                function="ag_gemm", topology=name, num_ranks=num_ranks, pins="no pins", reason="13 is prime"
            )
        return StandInSchedule(f"{name} x{num_ranks} {dtype} pin={dict(pin or {})} {sizes}")


@dataclass(frozen=True)
class StandInResult:
    """Takes the place of tilelink.runtime.run.RunResult."""

    equal: bool
    asked: str

    def lines(self) -> list[str]:
        return [self.asked, "equal" if self.equal else "not equal"]
