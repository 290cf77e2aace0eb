"""What the process that plans hands to the ranks: rows with their schedules, how to measure, where results go."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

from tilelink.bench.errors import NotPlans
from tilelink.bench.plans import PlannedRow, planned_from_json, planned_to_json
from tilelink.measuring.measure import Options


@dataclass(frozen=True, slots=True)
class Job:
    """`rows` are measured in order. `resume`: rows that the file of results has already are left out."""

    rows: tuple[PlannedRow, ...]
    num_ranks: int
    topology: str
    link_gb_per_s: float
    options: Options
    commit: str
    results: Path
    resume: bool
    hang_s: float  # a step that takes longer hangs
    until_s: float = math.inf  # of `time.time()`; no row starts later

    def write(self, path: Path) -> None:
        data = {
            "rows": [planned_to_json(planned) for planned in self.rows],
            "num_ranks": self.num_ranks,
            "topology": self.topology,
            "link_gb_per_s": self.link_gb_per_s,
            "options": asdict(self.options),
            "commit": self.commit,
            "results": str(self.results),
            "resume": self.resume,
            "hang_s": self.hang_s,
            "until_s": self.until_s,
        }
        path.write_text(json.dumps(data), encoding="utf-8")


def read_job(path: Path) -> Job:
    """Raises NotPlans."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(planned_from_json(row) for row in data["rows"])
        rest = {"rows": rows, "options": Options(**data["options"]), "results": Path(data["results"])}
        return Job(**{**data, **rest})
    except OSError as error:
        raise NotPlans(path=str(path), reason=error.strerror or str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise NotPlans(path=str(path), reason=f"{type(error).__name__}: {error}") from error
