"""A schedule or a source with one thing changed, what was said about it, and who says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from tilelink.schedule.roles import Schedule


@dataclass(frozen=True, slots=True)
class StepMutant:
    """`schedule` is the original but for what `operator` ("Wait.until: one more") did at `site`."""

    operator: str
    site: str
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class SourceMutant:
    """`source` is the original but for `before` at line `line` (from 1), which is `after` now; lines keep their numbers."""

    operator: str
    line: int
    before: str
    after: str
    source: str

    @property
    def site(self) -> str:
        return f"line {self.line}: {short(self.before)} -> {short(self.after)}"


def short(text: str) -> str:
    """On one line, cut after 60 characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."


class Mutant(Protocol):
    """What the runner needs of either kind."""

    @property
    def operator(self) -> str: ...

    @property
    def site(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """`by`: what killed the mutant ("proof", "Deadlock", "result"), or why a survivor is equivalent; empty for a hole."""

    killed: bool
    by: str
    detail: str


M_contra = TypeVar("M_contra", contravariant=True)


class Judge(Protocol[M_contra]):
    """Decides about one mutant. Runs in a worker process, so it must be picklable: a function of a module, or a
    dataclass that can be called. What it raises leaves the mutant undecided."""

    def __call__(self, mutant: M_contra, /) -> Verdict: ...
