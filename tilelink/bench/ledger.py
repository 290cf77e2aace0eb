"""The results so far, and what to leave out after a loss. Rank 0 keeps them as a file that is whole after every row."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from tilelink.bench.job import Job
from tilelink.bench.machine import describe_machine, gpu_state
from tilelink.bench.plans import PlannedRow
from tilelink.bench.record import SCHEMA, ExpertFacts, Record, RowResult, read
from tilelink.bench.spec_rows import AnyRow, SpecRow
from tilelink.measuring.contender import Contender, Kind
from tilelink.measuring.results import ContenderResult

_LAST_WORDS_S = 10.0
_MOST_LOSSES = 3  # of one row


class Ledger:
    """A rank that cannot go on tells rank 0 through a file beside the results: the others may hang, and then only files
    get through. `parent` is the process id of the launcher."""

    def __init__(self, job: Job, rank: int, parent: int) -> None:
        self.job = job
        self.rank = rank
        self.parent = parent
        old = read(job.results) if job.resume and job.results.exists() else None
        options = {**asdict(job.options), "hang_s": job.hang_s}
        date = datetime.now(UTC).isoformat(timespec="seconds")
        machine = describe_machine(job.num_ranks, job.topology)
        rows = old.rows if old is not None else ()
        self.record = Record(SCHEMA, job.commit, date, machine, options, rows, complete=False)
        self._message(rank).unlink(missing_ok=True)

    def done(self, planned: PlannedRow) -> bool:
        """Whether the row needs no other try: it has results, or nobody to leave out the next time."""
        row = self._found(planned)
        return row is not None and (not row.failure or not row.lost or len(row.lost) > _MOST_LOSSES)

    def without_lost(self, planned: PlannedRow, contenders: Sequence[Contender]) -> list[Contender]:
        """Contenders that lost the ranks here, and baselines that did so in any row, fail before they start."""
        own = self._found(planned)
        here = own.lost if own is not None else ()
        anywhere = {name for row in self.record.rows for name in row.lost}
        return [
            replace(c, failure="not tried again: the ranks hung or the device was lost in it")
            if c.name in here or (c.kind is not Kind.OURS and c.name in anywhere)
            else c
            for c in contenders
        ]

    def add(self, planned: PlannedRow, seconds: float, contenders: Sequence[ContenderResult]) -> RowResult:
        """The row is measured."""
        old = self._found(planned)
        return self._put(planned, seconds, contenders, "", old.lost if old is not None else ())

    def lose(self, planned: PlannedRow, seconds: float, failure: str, contender: str) -> None:
        """The row ends the process, in a step of `contender` or of nobody: see that rank 0 has it."""
        if self.rank == 0:
            old = self._found(planned)
            lost = (*(old.lost if old is not None else ()), *([contender] if contender else ()))
            self._put(planned, seconds, (), failure, lost)
            return
        self._message(self.rank).write_text(failure, encoding="utf-8")
        time.sleep(_LAST_WORDS_S)  # when this process ends, torchrun ends the others

    def trouble(self) -> str:
        """On rank 0 what another rank died of; on every rank whether the launcher is gone."""
        if os.getppid() != self.parent:
            return "the launcher is gone"
        for other in range(1, self.job.num_ranks if self.rank == 0 else 0):
            if self._message(other).exists():
                return f"rank {other}: {self._message(other).read_text(encoding='utf-8')}"
        return ""

    def finish(self, complete: bool = True) -> None:
        after = replace(self.record.machine, state_after=gpu_state())
        self.record = replace(self.record, machine=after, complete=complete)
        self._write()

    def _found(self, planned: PlannedRow) -> RowResult | None:
        return next((row for row in self.record.rows if row.key == planned.row.key), None)

    def _put(
        self,
        planned: PlannedRow,
        seconds: float,
        contenders: Sequence[ContenderResult],
        failure: str,
        lost: tuple[str, ...],
    ) -> RowResult:
        row = planned.row
        result = RowResult(
            operator=row.title,
            name=row.name,
            m=row.m,
            hidden=row.hidden,
            ffn=row.ffn,
            dtype=row.dtype,
            flops=row.flops(self.job.num_ranks),
            bytes_in=row.bytes_in(self.job.num_ranks),
            link_gb_per_s=self.job.link_gb_per_s,
            seconds=round(seconds, 3),
            failure=failure,
            lost=lost,
            contenders=tuple(contenders),
            experts=expert_facts(row, self.job.num_ranks),
        )
        others = tuple(other for other in self.record.rows if other.key != result.key)
        self.record = replace(self.record, rows=(*others, result))
        self._write()
        return result

    def _message(self, rank: int) -> Path:
        return self.job.results.with_name(f".{self.job.results.name}.rank{rank}.lost")

    def _write(self) -> None:
        if self.rank == 0:
            self.record.write(self.job.results)


def expert_facts(row: AnyRow, num_ranks: int) -> ExpertFacts | None:
    experts = row.experts
    if experts is None or isinstance(row, SpecRow):
        return None
    most = row.busiest(num_ranks)
    return ExpertFacts(experts.number, experts.choices, experts.routing.value, most.rank_share, most.expert_rows)
