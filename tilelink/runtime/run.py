"""Run emitted source and compare with the reference: on emulated ranks, or under torchrun on GPUs."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tilelink.errors import FabricUnavailable, RunFailed
from tilelink.ir.calls import LibraryCollective
from tilelink.ir.schedule import Schedule
from tilelink.ir.user_op import of_user
from tilelink.runtime.compare import Difference, compare_call
from tilelink.runtime.emulated import EmulatedRun
from tilelink.runtime.first_off import first_off
from tilelink.runtime.load import SHIM, in_dialect
from tilelink.runtime.meaning import user_reference
from tilelink.runtime.torchrun import check_gpus, run_to_end, torchrun

_SHOWN = 8  # differences, at most


@dataclass(frozen=True, slots=True)
class RunResult:
    """Outcome of a run; `seconds` is wall time of all calls, not a benchmark.

    `max_error` is the largest of all elements of all outputs, in units of the bound of its element: up to 1 is right.
    `first_off` names the first operation whose value is off, where emulated ranks show it, or a table that a call makes of a
    routing, which has to be right even where no element shows that it is not; else it is empty.
    """

    equal: bool
    max_error: float
    differences: tuple[Difference, ...]
    first_off: str
    seconds: float
    num_ranks: int
    device: str
    calls: int

    def lines(self) -> list[str]:
        verdict = "equal" if self.equal else "NOT equal"
        ranks = {"cpu": "{} emulated ranks", "cuda": "{} ranks", "shared cuda": "{} ranks on shared GPUs"}[self.device]
        # where a result has to be exact, the bound is next to nothing, and an error has hundreds of digits
        error = f"{self.max_error:.2f}" if self.max_error < 1e6 else f"{self.max_error:.1e}"
        return [
            f"{verdict}: {ranks.format(self.num_ranks)}, {self.calls} calls, largest error {error} of its bound, "
            f"{self.seconds:.1f} s",
            *(difference.line() for difference in self.differences[:_SHOWN]),
            *([self.first_off] if self.first_off else []),
        ]


def run_emulated(schedule: Schedule, source: str, calls: int = 2, seed: int = 0, locate: bool = True) -> RunResult:
    """All ranks of `source` in this process, `calls` calls with fresh inputs enqueued at once. If an element of an output is
    wrong, `locate` runs them once more and looks at the buffers behind that call.

    Raises NoReference, ReferenceFailed and the errors of tilelink.emulator.
    """
    start = time.perf_counter()
    _check_references(schedule)
    run = EmulatedRun(schedule, source, seed)
    for _ in range(calls):
        run.call()
    run.finish()
    found = [compare_call(schedule, inputs, results, call) for call, (inputs, results) in enumerate(run.calls)]
    differences = tuple(difference for one in found for difference in one.differences)
    table = run.wrong_table()
    off = table or (first_off(schedule, source, seed, differences[0]) if differences and locate else "")
    worst = max((one.error for one in found), default=0.0)
    seconds = time.perf_counter() - start
    return RunResult(not differences and not table, worst, differences, off, seconds, schedule.num_ranks, "cpu", calls)


def run_cuda(
    schedule: Schedule,
    source: str,
    calls: int = 2,
    seed: int = 0,
    timeout_s: float = 300.0,
    share_gpus: bool = False,
) -> RunResult:
    """Start one process a rank with torchrun; the emitted file checks itself. With `share_gpus`, ranks may be more than GPUs.

    Raises FabricUnavailable, NoReference, and RunFailed if the ranks crash or take longer than `timeout_s` seconds.
    """
    check_gpus(schedule.num_ranks, "Let ranks take turns: --share-gpus. Or emulate them: --device cpu.", share_gpus)
    calls_nccl = any(isinstance(launch, LibraryCollective) for launch in schedule.launches)
    if share_gpus and calls_nccl:
        reason = "this schedule calls NCCL, which takes one rank a GPU"
        legal = "Pin another mover than the library's, or emulate the ranks: --device cpu."
        raise FabricUnavailable(num_ranks=schedule.num_ranks, reason=reason, legal=legal)
    _check_references(schedule)
    with tempfile.TemporaryDirectory() as folder:
        file, result = Path(folder) / f"{schedule.name}.py", Path(folder) / "result.json"
        file.write_text(source)
        shared = ["-m", "tilelink.runtime.shared_gpus"] if share_gpus else []
        shim = ["-m", SHIM] if in_dialect(source) else []
        arguments = [*shared, *shim, str(file), "--calls", str(calls), "--seed", str(seed), "--json", str(result)]
        reason, lines = run_to_end(torchrun(schedule.num_ranks, *arguments), timeout_s, lambda line: None)
        if not result.exists():
            shown = "\n".join(lines[-12:])
            raise RunFailed(num_ranks=schedule.num_ranks, operator=schedule.name, reason=reason, lines=shown)
        found = json.loads(result.read_text())
    differences = tuple(_difference(facts) for facts in found["wrong"])
    device = "shared cuda" if share_gpus else "cuda"
    seconds, ranks = found["seconds"], schedule.num_ranks
    return RunResult(found["equal"], found["max_error"], differences, "", seconds, ranks, device, calls)


def _difference(facts: dict[str, Any]) -> Difference:
    """From the JSON of an emitted file."""
    known = {field.name: facts[field.name] for field in fields(Difference)}
    return Difference(**known | {"rows": tuple(facts["rows"]), "cols": tuple(facts["cols"])})


def _check_references(schedule: Schedule) -> None:
    """Every tile op of the user's can be compared with something. Raises NoReference."""
    for node in schedule.spec.nodes:
        if (op := of_user(node.operation)) is not None:
            user_reference(op)
