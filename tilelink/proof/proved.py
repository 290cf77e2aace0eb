"""The outcome of a proof: findings, or what was checked."""

from __future__ import annotations

from dataclasses import dataclass

from tilelink.proof.findings import Finding
from tilelink.proof.happens_before.check import Outcome


@dataclass(frozen=True, slots=True)
class Proof:
    """Outcome of `verify`. `checked` counts what was looked at, by name; `seconds` is the time that it took. `order`: what the
    order of its steps was proved from; None where there are no steps."""

    schedule: str  # hash
    findings: tuple[Finding, ...]
    checked: tuple[tuple[str, int], ...]
    seconds: float
    order: Outcome | None = None

    @property
    def proved(self) -> bool:
        return not self.findings

    def lines(self) -> list[str]:
        counts = ", ".join(f"{count} {name}" for name, count in self.checked)
        if self.proved:
            steps = [f"as steps {self.order}"] if self.order is not None else []
            return [f"proved: {counts}; {self.seconds * 1e3:.0f} ms", *steps]
        shown = [line for finding in self.findings for line in str(finding).splitlines()]
        return [f"refuted by {len(self.findings)} findings ({counts})", *shown]
