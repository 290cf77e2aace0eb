"""The results as a JSON file: what ran where, every sample, every failure. Nothing in it is derived but the medians.

`Record` is the top level; keys are the field names of the dataclasses below, nested as they are. `schema` is 2; a change
of meaning raises it, new fields may come without. Times are in us, max over ranks. A time that was not measured
is null, and then `failure` says why, except for medians of a run that was cut short before its first round.
Errors are those of the element that is farthest off on the worst rank, in units of the bound that follows from dtype, length
of its sum and magnitude of its operands; one that is not finite is 1e9. (Schema 1: relative errors in Frobenius norm.)
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tilelink.bench.errors import NotABenchmarkFile, ResultsNotWritable
from tilelink.bench.rows import row_key
from tilelink.measuring.results import ContenderResult, ScheduleFacts

SCHEMA = 2
_READABLE = (1, SCHEMA)
LINES = ".jsonl"  # a file whose first line is a record without rows; each other line is a row


@dataclass(frozen=True, slots=True)
class ExpertFacts:
    """What a row of an operator with experts has besides. The busiest are those of any drawing that was timed."""

    experts: int  # of all ranks
    choices: int  # experts of a token
    routing: str  # how likely experts are: see tilelink/bench/routings.py
    busiest_rank_share: float  # of all assignments
    busiest_expert_rows: int


@dataclass(frozen=True, slots=True)
class RowResult:
    """One operator with one set of sizes."""

    operator: str
    name: str
    m: int
    hidden: int
    ffn: int
    dtype: str
    flops: float  # of one rank
    bytes_in: float  # into one rank
    link_gb_per_s: float  # 1e9 bytes a second into one rank, of the topology: `bytes_in` over it is the link's limit
    seconds: float  # wall time of the row
    failure: str  # empty, or why the row has no results: the ranks hung, the device was lost
    lost: tuple[str, ...]  # contenders that did that; the row was tried again without them
    contenders: tuple[ContenderResult, ...]
    experts: ExpertFacts | None = None  # older files have none

    @property
    def key(self) -> str:
        return row_key(self.operator, self.name, self.experts.routing if self.experts is not None else "", self.dtype)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran. Lines of `state` are those of nvidia-smi: name, driver, clocks, temperature, power."""

    gpu: str
    num_gpus: int
    driver: str
    num_ranks: int
    topology: str  # the descriptor that was planned for
    versions: Mapping[str, str]  # python, torch, triton, cuda, nccl
    environment: Mapping[str, str]  # variables that change what libraries do
    state_before: tuple[str, ...]
    state_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Record:
    schema: int
    commit: str
    date: str  # UTC, ISO 8601
    machine: Machine
    options: Mapping[str, float | int | bool | str]
    rows: tuple[RowResult, ...]
    complete: bool  # every row was tried

    def write(self, path: Path) -> None:
        """All or nothing: an interrupted run leaves the old file."""
        partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            partial.write_text(self._text(path.suffix == LINES), encoding="utf-8")
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    def _text(self, lines: bool) -> str:
        data = asdict(self)
        if not lines:
            return json.dumps(data, indent=1, allow_nan=False) + "\n"
        rows = data.pop("rows")
        return "".join(json.dumps(one, allow_nan=False) + "\n" for one in (data, *rows))


def read(path: Path) -> Record:
    """Raises NotABenchmarkFile."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == LINES:
            first, *lines = map(json.loads, text.splitlines())
            data = {**first, "rows": lines}
        else:
            data = json.loads(text)
        if data["schema"] not in _READABLE:
            reason = f"its schema is {data['schema']}, this version reads {' and '.join(map(str, _READABLE))}"
            raise NotABenchmarkFile(path=str(path), reason=reason)
        rows = tuple(_row(row) for row in data["rows"])
        states = {name: tuple(data["machine"][name]) for name in ("state_before", "state_after")}
        return Record(**{**data, "rows": rows, "machine": Machine(**{**data["machine"], **states})})
    except OSError as error:
        raise NotABenchmarkFile(path=str(path), reason=error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise NotABenchmarkFile(path=str(path), reason=f"{type(error).__name__}: {error}") from error


def check_folder(path: Path) -> None:
    """Before hours are spent. Raises ResultsNotWritable."""
    folder = path.resolve().parent
    if path.is_dir() or not folder.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder {folder.name!r}"
        raise ResultsNotWritable(path=str(path), reason=reason)
    if not os.access(folder, os.W_OK):
        raise ResultsNotWritable(path=str(path), reason=f"the folder {folder.name!r} is not yours to write")


def _row(data: dict[str, object]) -> RowResult:
    listed = data["contenders"]
    if not isinstance(listed, list):
        raise TypeError("contenders is no list")
    lost = data["lost"]
    if not isinstance(lost, list):
        raise TypeError("lost is no list")
    contenders = tuple(_contender(entry) for entry in listed)
    held = data.get("experts")
    experts = ExpertFacts(**held) if isinstance(held, dict) else None
    return RowResult(**{**data, "contenders": contenders, "lost": tuple(lost), "experts": experts})  # type: ignore[arg-type]


def _contender(data: dict[str, object]) -> ContenderResult:
    rounds, facts = data["rounds_us"], data["schedule"]
    if not isinstance(rounds, list):
        raise TypeError("rounds_us is no list")
    schedule = ScheduleFacts(**facts) if isinstance(facts, dict) else None
    fields = {**data, "rounds_us": tuple(tuple(samples) for samples in rounds), "schedule": schedule}
    return ContenderResult(**fields)  # type: ignore[arg-type]
