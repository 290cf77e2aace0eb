"""What a proof says: a finding for each thing that is wrong, or what was checked."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.proof.bug_class import BugClass


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why a schedule is wrong. It holds on every rank: a schedule is one text for all of them."""

    bug: BugClass
    where: str  # launch, role, step
    fact: str  # what is wrong there, one sentence without a full stop
    signal: str = ""  # name of the signal concerned
    tile: str = ""  # an example of a tile, chunk or rank

    def __str__(self) -> str:
        concerned = ", ".join(part for part in (self.signal and f"signal {self.signal}", self.tile) if part)
        return f"{self.bug}\n  at {self.where}{f' ({concerned})' if concerned else ''}: {self.fact}"


@dataclass(frozen=True, slots=True)
class Proof:
    """Outcome of `verify`. `checked` counts what was looked at, by name; `seconds` is the time that it took."""

    schedule: str  # hash
    findings: tuple[Finding, ...]
    checked: tuple[tuple[str, int], ...]
    seconds: float

    @property
    def proved(self) -> bool:
        return not self.findings

    def lines(self) -> list[str]:
        counts = ", ".join(f"{count} {name}" for name, count in self.checked)
        if self.proved:
            return [f"proved: {counts}; {self.seconds * 1e3:.0f} ms"]
        shown = [line for finding in self.findings for line in str(finding).splitlines()]
        return [f"refuted by {len(self.findings)} findings ({counts})", *shown]
